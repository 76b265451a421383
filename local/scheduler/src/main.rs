//! `cronbox-stand-in`: an EventBridge Scheduler that fires, for any AWS client.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use stand_in::config::SchedulerArgs;
use stand_in::{process, steps};

#[tokio::main]
async fn main() -> ExitCode {
    let args = SchedulerArgs::parse();
    steps::print_steps();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-stand-in: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &SchedulerArgs) -> Result<()> {
    let stop = process::stop_signal()?;
    process::run_stand_in(args, stop).await
}
