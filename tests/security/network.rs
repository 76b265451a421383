//! Whether this program runs in a network namespace of its own: then nothing can leave the machine, and every address leads
//! to our listeners. `scripts/security.sh` makes the namespace.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tokio::net::TcpListener;

/// The name server of the namespace; nothing answers there until an attack does.
pub(crate) const NAME_SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 0, 0, 77), 53);

/// Whether loopback is the only interface.
pub(crate) fn is_isolated() -> bool {
    let interfaces = std::fs::read_dir(Path::new("/sys/class/net")).ok();
    let listed = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    // /sys may show the interfaces of the namespace in which it was mounted; /proc shows those of this process.
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
    interfaces.is_some() && names == ["lo"]
}

/// One line for the report.
pub(crate) fn describe() -> &'static str {
    match is_isolated() {
        true => "a namespace of its own, in which every address is this machine's",
        false => "the machine's; addresses of other machines are saved and never sent to",
    }
}

/// A listener on all addresses of this machine, IPv6 included if the machine has it.
pub(crate) async fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    }
}
