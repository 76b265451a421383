//! `cronbox`: the command line. One file per noun.

mod apply;
mod audit;
mod backfill;
mod bulk;
mod channel;
mod client;
mod common;
mod config;
mod cron;
mod dlq;
mod drift;
mod events;
mod freeze;
mod import;
mod jobs;
mod key;
mod listen;
mod listing;
mod login;
mod logs;
mod merge_patch;
mod missed;
mod named;
mod notification;
mod outbox;
mod output;
mod print;
mod progress;
mod reference;
mod rows;
mod rule;
mod run;
mod schedule_noun;
mod settings;
mod shell;
mod sign_in;
mod signature;
mod team;
mod times;
mod top;
mod verify;
mod watch;
mod workflow;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::client::{Refusal, wait_for};
use crate::print::print_error;

/// cronbox on the command line: workflows, their schedules and their runs.
///
/// Exit codes: 0 = as it must be, 1 = something differs or failed, 2 = asked wrongly.
#[derive(Parser)]
#[command(name = "cronbox", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value exists, and it is read at once")]
enum Noun {
    /// Define workflows, change them and run them.
    #[command(subcommand)]
    Workflow(workflow::Verb),
    /// Show when workflows run, and run past times again.
    #[command(subcommand)]
    Schedule(schedule_noun::Verb),
    /// Show what ran, and repeat or cancel it.
    #[command(subcommand)]
    Run(run::Verb),
    /// Show backfills, and stop them.
    #[command(subcommand)]
    Backfill(backfill::Verb),
    /// Pause, resume, archive, fire, retry or cancel many at once.
    #[command(subcommand)]
    Bulk(bulk::Verb),
    /// Stop all schedules of a team, or of all teams, for a time.
    #[command(subcommand)]
    Freeze(freeze::Verb),
    /// Define where notifications go.
    #[command(subcommand)]
    Channel(channel::Verb),
    /// Define which events become notifications.
    #[command(subcommand)]
    Rule(rule::Verb),
    /// Show notifications and their messages.
    #[command(subcommand)]
    Notification(notification::Verb),
    /// List due times that did not run; exit 1 if one was missed.
    Missed(missed::Missed),
    /// Show what changes.
    Events(events::Events),
    /// Show an overview of what runs, what failed and what is paused.
    Top(top::Top),
    /// Create or change what files define, after a plan.
    Apply(apply::Apply),
    /// Show what `apply` would change; exit 1 if that is anything, and 2 if a part is refused or could not be compared.
    Diff(apply::Diff),
    /// Print workflows as a file for `apply`.
    Export(apply::Export),
    /// Archive the workflows that files define.
    Delete(apply::Delete),
    /// Turn schedules of cron, EventBridge, Kubernetes, GitHub or pg-boss into a file for `apply`.
    #[command(subcommand)]
    Import(import::Verb),
    /// Manage teams.
    #[command(subcommand)]
    Team(team::Verb),
    /// Manage keys.
    #[command(subcommand)]
    Key(key::Verb),
    /// Show who sends the requests, and what is permitted.
    Me(login::Me),
    /// Keep an address and a key in a profile.
    Login(login::Login),
    /// Remove a profile.
    Logout(login::Logout),
    /// List the timezones that a workflow may have.
    Timezones(Timezones),
    /// Receive requests of workflows on this machine, and verify their signatures.
    Listen(listen::Listen),
    /// Verify the signature of a request.
    #[command(subcommand)]
    Signature(signature::Verb),
    /// Print the log lines of a request, a run or a workflow.
    Logs(logs::Logs),
    /// List, export or verify the audit log.
    #[command(subcommand)]
    Audit(audit::Verb),
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
    /// Print the completions of a shell.
    Completions(shell::Completions),
    /// Write manual pages.
    Man(shell::Man),
    /// Print the commands as Markdown, for the documentation.
    #[command(hide = true)]
    Reference,
}

/// Which timezones.
#[derive(clap::Args)]
struct Timezones {
    #[command(flatten)]
    common: common::Common,
    /// Only names with this text.
    #[arg(value_name = "TEXT")]
    text: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run_noun(&arguments.noun).unwrap_or_else(|error| {
        print_error(&format!("{error:#}"));
        error.downcast_ref::<Refusal>().map_or(ExitCode::FAILURE, Refusal::exit_code)
    })
}

fn run_noun(noun: &Noun) -> anyhow::Result<ExitCode> {
    match noun {
        Noun::Workflow(verb) => wait_for(workflow::run_workflow(verb)),
        Noun::Schedule(verb) => wait_for(schedule_noun::run_schedule(verb)),
        Noun::Run(verb) => wait_for(run::run_run(verb)),
        Noun::Backfill(verb) => wait_for(backfill::run_backfill(verb)),
        Noun::Bulk(verb) => wait_for(bulk::run_bulk(verb)),
        Noun::Freeze(verb) => wait_for(freeze::run_freeze(verb)),
        Noun::Channel(verb) => wait_for(channel::run_channel(verb)),
        Noun::Rule(verb) => wait_for(rule::run_rule(verb)),
        Noun::Notification(verb) => wait_for(notification::run_notification(verb)),
        Noun::Missed(arguments) => wait_for(missed::list_missed(arguments)),
        Noun::Events(arguments) => wait_for(events::print_events(arguments)),
        Noun::Top(arguments) => wait_for(top::show_overview(arguments)),
        Noun::Apply(arguments) => wait_for(apply::apply_files(arguments)),
        Noun::Diff(arguments) => wait_for(apply::show_difference(arguments)),
        Noun::Export(arguments) => wait_for(apply::export_workflows(arguments)),
        Noun::Delete(arguments) => wait_for(apply::delete_defined(arguments)),
        Noun::Import(verb) => import::import_file(verb),
        Noun::Team(verb) => wait_for(team::run_team(verb)),
        Noun::Key(verb) => wait_for(key::run_key(verb)),
        Noun::Me(arguments) => wait_for(login::show_me(arguments)),
        Noun::Login(arguments) => wait_for(login::log_in(arguments)),
        Noun::Logout(arguments) => login::log_out(arguments),
        Noun::Timezones(arguments) => wait_for(workflow::list_timezones(&arguments.common, arguments.text.as_deref())),
        Noun::Listen(arguments) => wait_for(listen::listen(arguments)),
        Noun::Signature(verb) => signature::run_signature(verb),
        Noun::Logs(arguments) => logs::print_log_lines(arguments),
        Noun::Audit(verb) => audit::run_audit(verb),
        Noun::Cron(verb) => cron::run_cron(verb),
        Noun::Dlq(verb) => dlq::run_dlq(verb),
        Noun::Drift(verb) => drift::run_drift(verb),
        Noun::Jobs(arguments) => jobs::show_jobs(arguments),
        Noun::Outbox(verb) => outbox::run_outbox(verb),
        Noun::Verify(arguments) => verify::verify_ledger(arguments),
        Noun::Completions(arguments) => shell::print_completions(arguments, Arguments::command()),
        Noun::Reference => reference::print_reference(Arguments::command()),
        Noun::Man(arguments) => shell::write_man_pages(arguments, Arguments::command()),
    }
}
