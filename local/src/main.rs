//! `local scheduler`: the stand-in alone.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use local::config::{Command, Config, SchedulerArgs};
use local::stand_in::StandIn;
use local::steps;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    steps::print();
    let ended = match config.command {
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
    let listener = listen(args.listen, "--listen").await?;
    println!("scheduler   http://{}   (AWS_ENDPOINT_URL_SCHEDULER)", listener.local_addr()?);
    StandIn::new(args.options(), args.clock()).serve(listener, interrupted()).await
}

async fn listen(address: SocketAddr, option: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: stop the program that does, or choose another port with {option}")
    })
}

async fn interrupted() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::error!(%error, "Ctrl-C cannot be noticed");
    }
}
