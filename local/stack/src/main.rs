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
    match run(Config::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> Result<()> {
    let stop = process::stop_signal()?;
    match config.command {
        Command::Up(args) => up::run_all_parts(args, config.log_format, stop).await,
        Command::Scheduler(args) => {
            match config.log_format {
                Form::Text => steps::print_steps(),
                Form::Json => logging::start_log(Form::Json, up::LOG_FILTER),
            }
            process::run_stand_in(&args, stop).await
        }
    }
}
