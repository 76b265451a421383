//! `local up`: all parts on this machine. `local scheduler`: only the stand-in.

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
    match run(config.command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    let stop = stop()?;
    match command {
        Command::Up(args) => up::up(args, stop).await,
        Command::Scheduler(args) => scheduler(&args, stop).await,
    }
}

async fn scheduler(args: &SchedulerArgs, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let listener = up::listen(args.listen, "--listen")?;
    steps::say(&format!("scheduler   http://{}   (AWS_ENDPOINT_URL_SCHEDULER)", listener.local_addr()?));
    StandIn::new(args.options(), args.clock()).serve(listener, stop).await
}

/// Resolves at Ctrl-C or SIGTERM. Signals count from the call on, not from the first await.
fn stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}
