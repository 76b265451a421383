//! `local up`: everything on this machine. `local scheduler`: the stand-in alone.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use local::config::{Command, Config, SchedulerArgs};
use local::stand_in::StandIn;
use local::{steps, up};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    steps::print();
    let ended = match config.command {
        Command::Up(args) => up::up(args, interrupted()).await,
        Command::Scheduler(args) => scheduler(&args).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn scheduler(args: &SchedulerArgs) -> Result<()> {
    let listener = up::listen(args.listen, "--listen").await?;
    steps::say(&format!("scheduler   http://{}   (AWS_ENDPOINT_URL_SCHEDULER)", listener.local_addr()?));
    StandIn::new(args.options(), args.clock()).serve(listener, interrupted()).await
}

/// Ctrl-C, or what a process manager sends.
async fn interrupted() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
