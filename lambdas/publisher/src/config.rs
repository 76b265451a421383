//! Step 3 of 7: the configuration of the publisher.

use std::fmt;
use std::net::SocketAddr;

use clap::builder::NonEmptyStringValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use lambda_database::Database;
use old_names::{OldVariable, PREFIX};
use schedule::Environment;
use url::Url;

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
    /// With --listen: a DSN that leads past the pooler, for LISTEN; without a user it has the login of the other DSN.
    #[arg(long, env = "CRONBOX_DB_DIRECT_DSN", hide_env_values = true)]
    pub db_direct_dsn: Option<String>,
    /// What to publish, and at which rate.
    #[command(flatten)]
    pub config: Config,
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
    /// The dead letters that it mirrors and redrives.
    #[command(flatten)]
    pub letters: DeadLetterSettings,
    /// A point at which this process stops or exits: `P8:1:kill`. For tests; releases do not have it.
    #[cfg(debug_assertions)]
    #[arg(long, env = "CRONBOX_FAULT", hide = true)]
    pub fault: Option<Fault>,
}

/// The dead-letter queues that the publisher mirrors, and the app to which it redrives their fires. The default mirrors none.
#[derive(Args, Clone, Default)]
pub struct DeadLetterSettings {
    /// The URL of the queue for fires that EventBridge cannot deliver.
    #[arg(long, env = "CRONBOX_SCHEDULE_DLQ_URL")]
    pub schedule_dlq_url: Option<Url>,
    /// The URL of the queue for fires that the runner cannot deliver.
    #[arg(long, env = "CRONBOX_RUNNER_DLQ_URL")]
    pub runner_dlq_url: Option<Url>,
    /// The URL of the queue for the publisher's own failed ticks.
    #[arg(long, env = "CRONBOX_PUBLISHER_DLQ_URL")]
    pub publisher_dlq_url: Option<Url>,
    /// The app's address, without `/api/v1`, for redrives.
    #[arg(long, env = "CRONBOX_APP_BASE_URL")]
    pub app_base_url: Option<Url>,
    /// The scheduler key, for redrives.
    #[arg(long, env = "CRONBOX_SCHEDULER_API_KEY", hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub scheduler_api_key: Option<String>,
    /// ARN of the scheduler key in Secrets Manager.
    #[arg(long, env = "CRONBOX_SCHEDULER_API_KEY_SECRET_ARN", value_parser = lambda_database::arn::parse_secret_arn)]
    pub scheduler_api_key_secret_arn: Option<String>,
    /// Whether the environment names the endpoint of SQS, so that the URL of a queue does not.
    #[arg(skip = has_sqs_endpoint())]
    pub has_sqs_endpoint: bool,
}

impl DeadLetterSettings {
    /// The mirrored queues: each with its name in the table and its URL.
    pub(crate) fn queue_urls(&self) -> impl Iterator<Item = (&'static str, &Url)> {
        let all = [
            ("schedules", &self.schedule_dlq_url),
            ("runner", &self.runner_dlq_url),
            ("publisher", &self.publisher_dlq_url),
        ];
        all.into_iter().filter_map(|(name, url)| Some((name, url.as_ref()?)))
    }
}

/// Without the key.
impl fmt::Debug for DeadLetterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues: Vec<_> = self.queue_urls().map(|(name, url)| (name, url.as_str())).collect();
        f.debug_struct("DeadLetterSettings").field("queues", &queues).finish_non_exhaustive()
    }
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

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read; clap would make it a flag")]
fn has_sqs_endpoint() -> bool {
    ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS"].iter().any(|name| std::env::var_os(name).is_some())
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
