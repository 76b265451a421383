//! The stand-in as a process: its address and its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::SchedulerArgs;
use crate::stand_in::StandIn;
use crate::steps;

/// Starts the stand-in, prints its address, and runs until `shutdown`.
///
/// # Errors
/// Returns one sentence that says what to do.
pub async fn run_stand_in(args: &SchedulerArgs, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| cannot_listen(args.listen, "--listen"))?;
    steps::print_line(&format!("scheduler   http://{}   (AWS_ENDPOINT_URL_SCHEDULER)", listener.local_addr()?));
    StandIn::new(args.stand_in_options(), args.clock()).serve_until(listener, shutdown).await
}

/// What a person can do if another process listens on the address.
pub fn cannot_listen(address: SocketAddr, option: &str) -> String {
    format!("cannot listen on {address}: stop the program that does, or choose another port with {option}")
}

/// Resolves at Ctrl-C or SIGTERM. Signals count from the call on, not from the first await.
///
/// # Errors
/// Fails if the signals cannot be observed.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}
