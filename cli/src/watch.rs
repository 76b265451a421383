//! `--watch`: shows a list again and again.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

/// Whether a list is shown again.
#[derive(Args, Clone, Copy)]
pub(crate) struct Watch {
    /// Show it again every 2 s, until Ctrl-C.
    #[arg(long)]
    watch: bool,
}

/// Clears the terminal, and moves to its first line.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Shows a list once, or again and again.
///
/// # Errors
/// Fails as the list does.
pub(crate) async fn repeat(watch: Watch, show: impl AsyncFn() -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    loop {
        if watch.watch && std::io::stdout().is_terminal() {
            print!("{CLEAR}");
            std::io::stdout().flush().ok();
        }
        let shown = show().await?;
        if !watch.watch {
            return Ok(shown);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(shown),
        }
    }
}
