//! `cronbox import`: turns other schedulers' files into a file for `apply`, with notes about what could not be taken over.

mod crontab;
mod definition;
mod dialect;
mod eventbridge;
mod github_actions;
mod kubernetes;
mod pg_boss;

use std::fs;
use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use schedule::{Clock, TimezoneError, parse_timezone};

use self::definition::{FileOptions, Imported, file_text};
use crate::print::{print_error, print_file};

/// Where the schedules come from.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// A crontab, of a user or of the system.
    Crontab(Crontab),
    /// EventBridge schedules or rules, as `aws scheduler get-schedule` or `aws events list-rules` prints them.
    Eventbridge(Source),
    /// Cron jobs of Kubernetes, YAML or JSON.
    Kubernetes(Source),
    /// A workflow file of GitHub Actions.
    GithubActions(Source),
    /// The rows of `pgboss.schedule`, as a JSON array.
    PgBoss(Source),
}

/// A file.
#[derive(Args)]
pub(crate) struct Source {
    /// The file; - for standard input.
    #[arg(value_name = "FILE")]
    file: String,
    /// The team of the workflows.
    #[arg(long, value_name = "NAME")]
    team: Option<String>,
    /// The owner of the file, for --prune of `apply`.
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Where the workflows send their requests; without it their actions only write to the log.
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// Each new workflow is paused, so that nothing runs twice before the old scheduler is switched off.
    #[arg(long)]
    paused: bool,
}

/// A crontab.
#[derive(Args)]
pub(crate) struct Crontab {
    #[command(flatten)]
    source: Source,
    /// Each line has a user after its times, as in /etc/crontab.
    #[arg(long)]
    system: bool,
    /// The timezone of the machine, unless the file sets `CRON_TZ`.
    #[arg(long, value_name = "NAME", default_value = "UTC", value_parser = check_timezone)]
    timezone: String,
}

/// Parses the option of a crontab: by a name that does not exist, all times would be those of UTC.
fn check_timezone(name: &str) -> Result<String, TimezoneError> {
    parse_timezone(name).map(|_| name.to_owned())
}

/// Prints the file, and how much was taken over; exit 1 if a schedule was not.
pub(crate) fn import_file(verb: &Verb) -> anyhow::Result<ExitCode> {
    let (source, imported) = match verb {
        Verb::Crontab(crontab) => {
            let text = read_source(&crontab.source)?;
            if !crontab.system && crontab::has_users(&crontab.source.file, &text) {
                bail!("this is a crontab of the system, with a user after the times: add --system");
            }
            let now = Clock::System.now();
            (&crontab.source, crontab::import_crontab(&text, crontab.system, &crontab.timezone, now))
        }
        Verb::Eventbridge(source) => (source, eventbridge::import_eventbridge(&read_source(source)?)?),
        Verb::Kubernetes(source) => (source, kubernetes::import_kubernetes(&read_source(source)?)?),
        Verb::GithubActions(source) => (source, github_actions::import_actions(&read_source(source)?)?),
        Verb::PgBoss(source) => (source, pg_boss::import_pg_boss(&read_source(source)?)?),
    };
    print_imported(source, &imported)
}

fn read_source(source: &Source) -> anyhow::Result<String> {
    let mut text = String::new();
    match source.file.as_str() {
        "-" => std::io::stdin().lock().read_to_string(&mut text).map(|_| text).context("cannot read standard input"),
        file => fs::read_to_string(file).with_context(|| format!("cannot read {file}")),
    }
}

fn print_imported(source: &Source, imported: &Imported) -> anyhow::Result<ExitCode> {
    let options = FileOptions {
        team: source.team.as_deref(),
        owner: source.owner.as_deref(),
        target: source.target.as_deref(),
        is_paused: source.paused,
    };
    print_file(&file_text(options, imported)?)?;
    let refused = imported.refused();
    print_error(&format!("{} schedules taken over, {refused} not; read the notes in the file", imported.taken()));
    if source.target.is_some() && !source.paused && imported.taken() > 0 {
        print_error(
            "their actions send requests: switch the old scheduler off before you apply the file, or import with --paused; \
             while both are active, each time runs twice",
        );
    }
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
