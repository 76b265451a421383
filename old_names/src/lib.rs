//! Old names of environment variables and programs, accepted for one version.
//!
//! A variable is found by its new name, then by its old one. The names of our variables begin with [`PREFIX`]; the old
//! name of a variable is its name without it. To end the old names, delete this crate; the callers of
//! [`parse_arguments`] then call clap's `try_parse`.

mod program;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

pub use crate::program::exec_new_program;

/// What the names of our variables begin with.
pub const PREFIX: &str = "CRONBOX_";

/// The variables that had no prefix, by their old names. Variables that are newer have no old name.
pub const VARIABLES: [&str; 47] = [
    // The app's, in the order of its settings.
    "DB_CA_FILE",
    "BIND_ADDR",
    "ENV",
    "SCHEDULES_FILE",
    "DB_MAX_CONNECTIONS",
    "ACTION_ALLOW_CIDRS",
    "EXECUTOR_SLOTS",
    "EXECUTOR_TEAM_PERCENT",
    "EXECUTOR_POLL_MS",
    "SHUTDOWN_DRAIN_SECS",
    "HEARTBEAT_MS",
    "LOST_AFTER_SECS",
    "RECOVERY_MAX_ATTEMPTS",
    "RECOVERY_MAX_AGE_SECS",
    "JOBS_ENABLED",
    "JOBS_TIMEZONE",
    "JOB_WATCHDOG",
    "JOB_QUEUE",
    "JOB_BACKFILLS",
    "RECOVERY_INTERVAL_SECS",
    "JOB_TIMEOUTS",
    "JOB_PRUNE",
    "OUTBOX_KEEP_DAYS",
    "OUTBOX_KEEP_FAILED_DAYS",
    "RETENTION_DAYS",
    "FAULT",
    "CLOCK_OFFSET_SECS",
    "HEADER_TIMEOUT_MS",
    "REQUEST_TIMEOUT_MS",
    "MAX_CONNECTIONS",
    "KEY_REQUESTS_PER_SEC",
    "BAD_KEYS_PER_MIN",
    // The publisher's.
    "METRICS_ADDR",
    "DB_DSN",
    "DB_SECRET_ARN",
    "RUNNER_LAMBDA_ARN",
    "SCHEDULER_ROLE_ARN",
    "SCHEDULE_GROUP",
    "SCHEDULE_DLQ_ARN",
    "BATCH_SIZE",
    "MAX_ATTEMPTS",
    "API_CONCURRENCY",
    "API_TPS",
    "CONFIG_GENERATION",
    // The runner's.
    "APP_BASE_URL",
    "SCHEDULER_API_KEY",
    "SCHEDULER_API_KEY_SECRET_ARN",
];

/// A variable that was read by its old name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OldVariable(&'static str);

/// The name by which a variable is read.
#[derive(Debug, Eq, PartialEq)]
enum Name {
    /// The new name is read, also if neither name has a value, or if both have the same value.
    New,
    Old,
    /// Both names have a value, and the values differ.
    Contradicted,
}

/// Parses the command line and the environment; also returns the variables that were read by their old names.
///
/// # Errors
/// Returns clap's error, or one that names both names of a variable if their values differ.
pub fn parse_arguments<T: CommandFactory + FromArgMatches>() -> Result<(T, Vec<OldVariable>), clap::Error> {
    let mut command = T::command();
    // The help shows the new names, whatever is set.
    if let Err(error) = command.clone().try_get_matches_from(std::env::args_os())
        && !error.use_stderr()
    {
        return Err(error);
    }
    let matches = accept_old_names(command.clone()).try_get_matches_from(std::env::args_os())?;
    let old_variables = match find_old_variables(&command, &matches) {
        Ok(found) => found,
        Err(sentence) => return Err(command.error(ErrorKind::ArgumentConflict, sentence)),
    };
    let parsed = T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((parsed, old_variables))
}

/// Logs a warning for each variable that was read by its old name.
pub fn warn_of_variables(found: &[OldVariable]) {
    for OldVariable(old) in found {
        let new = new_name(old);
        tracing::warn!(
            old = *old,
            new = new.as_str(),
            "old variable name: the next version ignores it, set the new one"
        );
    }
}

fn new_name(old: &str) -> String {
    format!("{PREFIX}{old}")
}

/// The command, whose arguments read the old variable if only that one is set.
fn accept_old_names(command: Command) -> Command {
    let command = command.mut_args(|argument| match old_name_of(&argument) {
        Some(old) if name_in_use(old, read_variable) == Name::Old => argument.env(old),
        _ => argument,
    });
    command.mut_subcommands(accept_old_names)
}

/// The variables whose old name gave an argument of the chosen command its value.
fn find_old_variables(command: &Command, matches: &ArgMatches) -> Result<Vec<OldVariable>, String> {
    let mut found = Vec::new();
    for argument in command.get_arguments() {
        let Some(old) = old_name_of(argument) else { continue };
        // An option of the command line has priority over both names.
        if matches.value_source(argument.get_id().as_str()) != Some(ValueSource::EnvVariable) {
            continue;
        }
        match name_in_use(old, read_variable) {
            Name::New => {}
            Name::Old => found.push(OldVariable(old)),
            Name::Contradicted => {
                return Err(format!("{old} and {} differ: unset {old}, which is the old name", new_name(old)));
            }
        }
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        found.extend(find_old_variables(command, matches)?);
    }
    Ok(found)
}

/// The old name of the variable that an argument reads; `None` if it has none.
fn old_name_of(argument: &Arg) -> Option<&'static str> {
    let name = argument.get_env()?.to_str()?.strip_prefix(PREFIX)?;
    VARIABLES.into_iter().find(|old| *old == name)
}

fn name_in_use(old: &str, read: impl Fn(&str) -> Option<OsString>) -> Name {
    match (read(&new_name(old)), read(old)) {
        (None, Some(_)) => Name::Old,
        (Some(new), Some(old)) if new != old => Name::Contradicted,
        _ => Name::New,
    }
}

#[expect(clippy::disallowed_methods, reason = "clap reads one name only")]
fn read_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn name_with(set: &[(&str, &str)]) -> Name {
        let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        name_in_use("BIND_ADDR", value)
    }

    #[test]
    fn old_names_count_without_new_names() {
        assert_eq!(name_with(&[]), Name::New);
        assert_eq!(name_with(&[("CRONBOX_BIND_ADDR", "a")]), Name::New);
        assert_eq!(name_with(&[("BIND_ADDR", "a")]), Name::Old);
        assert_eq!(name_with(&[("BIND_ADDR", "a"), ("CRONBOX_BIND_ADDR", "a")]), Name::New);
        assert_eq!(name_with(&[("BIND_ADDR", "a"), ("CRONBOX_BIND_ADDR", "b")]), Name::Contradicted);
    }

    #[test]
    fn an_old_name_is_listed_once() {
        assert_eq!(BTreeSet::from(VARIABLES).len(), VARIABLES.len());
    }
}
