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

/// The operator's tool of cronbox.
#[derive(Parser)]
#[command(name = "cronbox", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
enum Noun {
    /// Read a cron and say when it fires; works offline.
    #[command(subcommand)]
    Cron(cron::Verb),
    /// See the fires that were not delivered, send them again or let them go.
    #[command(subcommand)]
    Dlq(dlq::Verb),
    /// See how EventBridge differed from the database, and have it looked at again.
    #[command(subcommand)]
    Drift(drift::Verb),
    /// See the background jobs: who is at which, how it went, when it is due.
    Jobs(jobs::Arguments),
    /// Look at the outbox, try failed rows again or let them go.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// Prove that every time owed over a span was decided, once; exit 1 with the differences.
    Verify(verify::Verify),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.noun {
        Noun::Cron(verb) => cron::run(&verb),
        Noun::Dlq(verb) => dlq::run(&verb),
        Noun::Drift(verb) => drift::run(&verb),
        Noun::Jobs(arguments) => jobs::run(&arguments),
        Noun::Outbox(verb) => outbox::run(&verb),
        Noun::Verify(arguments) => verify::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("cronbox: {error:#}");
        error.downcast_ref::<client::Refusal>().map_or(ExitCode::FAILURE, client::Refusal::exit_code)
    })
}
