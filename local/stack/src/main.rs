//! `cronbox-local up`: all parts on this machine. `cronbox-local scheduler`: only the stand-in.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use local::config::{Command, Config};
use local::up;
use logging::Form;
use stand_in::{process, steps};

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    match config.log_format {
        Form::Text => steps::print_steps(),
        Form::Json => logging::start_log(Form::Json, "info,sqlx=warn"),
    }
    match run(config.command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    let stop = process::stop_signal()?;
    match command {
        Command::Up(args) => up::run_all_parts(args, stop).await,
        Command::Scheduler(args) => process::run_stand_in(&args, stop).await,
    }
}
