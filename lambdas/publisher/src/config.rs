//! Step 3 of 7: the configuration of the publisher.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use db::Pooler;
use old_names::{OldVariable, PREFIX};
use schedule::Environment;

use crate::arn;
#[cfg(debug_assertions)]
use crate::failpoint::Fault;

/// Drains the outbox into EventBridge Scheduler.
#[derive(Parser)]
#[command(name = "cronbox-publisher", bin_name = "cronbox-publisher", version)]
pub struct Arguments {
    /// Drain until nothing is due, print the report as one JSON line, exit.
    #[arg(long, conflicts_with = "listen")]
    pub once: bool,
    /// Run as a daemon that publishes each edit as soon as Postgres notifies it.
    #[arg(long)]
    pub listen: bool,
    /// With --listen: the address of `/metrics`, for example 127.0.0.1:9090; without it there are no metrics.
    #[arg(long, env = "CRONBOX_METRICS_ADDR", requires = "listen")]
    pub metrics_addr: Option<SocketAddr>,
    /// The form of the log: text, or one JSON object for each line, as a Lambda writes it.
    #[arg(long, env = "CRONBOX_LOG_FORMAT", default_value = "text", value_name = "text|json")]
    pub log_format: logging::Form,
    /// Set only by Lambda.
    #[arg(skip)]
    pub is_lambda: bool,
    /// The database of the outbox.
    #[command(flatten)]
    pub database: Database,
    /// What to publish, and at which rate.
    #[command(flatten)]
    pub config: Config,
}

/// The database of the outbox: a DSN, or the secret that contains it. No `Debug`, because a DSN contains a password.
#[derive(Args, Clone)]
pub struct Database {
    /// `postgres://user:password@host:port/database`
    #[arg(long, env = "CRONBOX_DB_DSN", hide_env_values = true, required_unless_present = "db_secret_arn", value_parser = NonEmptyStringValueParser::new())]
    pub db_dsn: Option<String>,
    /// ARN in Secrets Manager of a DSN, or of RDS's JSON (username, password; host, port, dbname if it has them).
    #[arg(long, env = "CRONBOX_DB_SECRET_ARN", value_parser = arn::parse_secret_arn)]
    pub db_secret_arn: Option<String>,
    /// The database's host, for a secret that names none: RDS keeps only username and password in the secret it rotates.
    #[arg(long, env = "CRONBOX_DB_HOST", value_parser = NonEmptyStringValueParser::new())]
    pub db_host: Option<String>,
    /// The database's port, for a secret that names none.
    #[arg(long, env = "CRONBOX_DB_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub db_port: Option<u16>,
    /// The database's name, for a secret that names none.
    #[arg(long, env = "CRONBOX_DB_NAME", value_parser = NonEmptyStringValueParser::new())]
    pub db_name: Option<String>,
    /// A PEM file of certificate authorities for the database's certificate, in addition to the public ones.
    #[arg(long, env = "CRONBOX_DB_CA_FILE", value_parser = db::ca_file)]
    pub db_ca_file: Option<PathBuf>,
    /// What the DSN leads to: Postgres itself (none), or a pooler that works by sessions or by transactions.
    #[arg(long, env = "CRONBOX_POOLER", default_value = "none", value_name = "none|session|transaction")]
    pub pooler: Pooler,
    /// With --listen: a DSN that leads past the pooler, for LISTEN; without a user it has the login of the other DSN.
    #[arg(long, env = "CRONBOX_DB_DIRECT_DSN", hide_env_values = true)]
    pub db_direct_dsn: Option<String>,
}

/// What to publish, and at which rate.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Part of every schedule's name, so that environments can share an account.
    #[arg(long, env = "CRONBOX_ENV")]
    pub env: Environment,
    /// The Lambda function that a schedule invokes.
    #[arg(long, env = "CRONBOX_RUNNER_LAMBDA_ARN", value_parser = arn::parse_function_arn)]
    pub runner_lambda_arn: String,
    /// The role that EventBridge assumes to invoke it.
    #[arg(long, env = "CRONBOX_SCHEDULER_ROLE_ARN", value_parser = arn::parse_role_arn)]
    pub scheduler_role_arn: String,
    /// The schedule group. Terraform (or the local stack) creates it, never the publisher.
    #[arg(long, env = "CRONBOX_SCHEDULE_GROUP", value_parser = arn::parse_group_name)]
    pub schedule_group: String,
    /// The queue for fires that EventBridge cannot deliver.
    #[arg(long, env = "CRONBOX_SCHEDULE_DLQ_ARN", value_parser = arn::parse_queue_arn)]
    pub schedule_dlq_arn: String,
    /// Workflows per claim.
    #[arg(long, env = "CRONBOX_BATCH_SIZE", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub batch_size: u16,
    /// Claims of a workflow without a success before it fails permanently.
    #[arg(long, env = "CRONBOX_MAX_ATTEMPTS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_attempts: u16,
    /// Calls in flight at once.
    #[arg(long, env = "CRONBOX_API_CONCURRENCY", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub api_concurrency: u16,
    /// Calls per second, for all publishers together.
    #[arg(long, env = "CRONBOX_API_TPS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub api_tps: u32,
    /// The number of this deployment: raise it with each change of what is published.
    #[arg(long, env = "CRONBOX_CONFIG_GENERATION", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub config_generation: i64,
    /// A point at which this process stops or exits: `P8:1:kill`. For tests; releases do not have it.
    #[cfg(debug_assertions)]
    #[arg(long, env = "CRONBOX_FAULT", hide = true)]
    pub fault: Option<Fault>,
}

impl Arguments {
    /// Parses the command line and the environment; also returns the variables that have an old name.
    ///
    /// # Errors
    /// Returns one sentence that names the variable; `--help` and `--version` print and end the process.
    pub fn read_environment() -> Result<(Arguments, Vec<OldVariable>), String> {
        let read = old_names::parse_arguments::<Arguments>();
        let read = read.map(|(arguments, old)| (Arguments { is_lambda: is_lambda(), ..arguments }, old));
        read.map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
            ErrorKind::MissingRequiredArgument => format!("set {} in the environment", missing(&error)),
            _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read; clap would make it a flag")]
fn is_lambda() -> bool {
    std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some()
}

/// The names of the missing variables; clap's value names are these names without the prefix.
fn missing(error: &clap::Error) -> String {
    let Some(ContextValue::Strings(arguments)) = error.get(ContextKind::InvalidArg) else {
        return "a variable".to_owned();
    };
    let variables = arguments.iter().map(|argument| match argument.split_once('<') {
        Some((_, names)) => {
            let names = names.trim_end_matches('>').split('|').map(|name| format!("{PREFIX}{name}"));
            names.collect::<Vec<_>>().join(" or ")
        }
        None => argument.clone(),
    });
    variables.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_variable_is_named() {
        let error =
            Arguments::try_parse_from(["publisher", "--env", "dev", "--db-dsn", "x"]).err().map(|e| missing(&e));
        let missing = "CRONBOX_RUNNER_LAMBDA_ARN, CRONBOX_SCHEDULER_ROLE_ARN, CRONBOX_SCHEDULE_GROUP, \
                       CRONBOX_SCHEDULE_DLQ_ARN";
        assert_eq!(error.as_deref(), Some(missing));
    }
}
