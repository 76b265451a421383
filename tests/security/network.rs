//! Whether this program runs in a network namespace of its own: then nothing can leave the machine, and every address leads
//! to our listeners. `scripts/security.sh` makes the namespace.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use tokio::net::TcpListener;

/// The name server of the namespace; nothing answers there until an attack does.
pub(crate) const NAME_SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 0, 0, 77), 53);

static IS_ISOLATED: OnceLock<bool> = OnceLock::new();

/// Records, once, whether every address is this machine's.
pub(crate) fn set_isolated(is_isolated: bool) {
    IS_ISOLATED.set(is_isolated).unwrap();
}

/// Whether every address is this machine's, so that a request to any of them reaches a listener here.
pub(crate) fn is_isolated() -> bool {
    *IS_ISOLATED.get().unwrap()
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
