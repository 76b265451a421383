//! `cronbox`: the operator's tool. One file per noun.

mod client;
mod cron;
mod dlq;
mod drift;
mod jobs;
mod outbox;
mod print;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cron::run_cron;
use crate::dlq::run_dlq;
use crate::drift::run_drift;
use crate::jobs::show_jobs;
use crate::outbox::run_outbox;
use crate::print::print_error;
use crate::verify::verify_ledger;

/// The operator's tool of cronbox.
#[derive(Parser)]
#[command(name = "cronbox", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
enum Noun {
    /// Explain a cron: its meaning and its times; works offline.
    #[command(subcommand)]
    Cron(cron::Verb),
    /// Show the fires that were not delivered, deliver them again or discard them.
    #[command(subcommand)]
    Dlq(dlq::Verb),
    /// Show how EventBridge differs from the database, and request a sweep.
    #[command(subcommand)]
    Drift(drift::Verb),
    /// Show the background jobs: the instance that runs each, its last result, and when it is due.
    Jobs(jobs::Arguments),
    /// Show the outbox, retry failed rows or discard them.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// Verify that every due time of a span was decided once; exit 1 with the differences.
    Verify(verify::Verify),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.noun {
        Noun::Cron(verb) => run_cron(&verb),
        Noun::Dlq(verb) => run_dlq(&verb),
        Noun::Drift(verb) => run_drift(&verb),
        Noun::Jobs(arguments) => show_jobs(&arguments),
        Noun::Outbox(verb) => run_outbox(&verb),
        Noun::Verify(arguments) => verify_ledger(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        print_error(&format!("{error:#}"));
        error.downcast_ref::<client::Refusal>().map_or(ExitCode::FAILURE, client::Refusal::exit_code)
    })
}
