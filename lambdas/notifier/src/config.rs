//! The configuration of the notifier.

use clap::Parser;
use clap::error::ErrorKind;
use lambda_database::Database;
use schedule::Environment;
use url::Url;

/// Sends notifications to event buses and SNS topics; runs only as a Lambda.
#[derive(Parser)]
#[command(name = "cronbox-notifier", bin_name = "cronbox-notifier", version)]
pub struct Config {
    /// The environment, which messages name.
    #[arg(long, env = "CRONBOX_ENV")]
    pub env: Environment,
    /// Where people reach the service, for the links in messages, for example `https://cronbox.example.com`.
    #[arg(long, env = "CRONBOX_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<Url>,
    /// The database of the messages.
    #[command(flatten)]
    pub database: Database,
}

impl Config {
    /// Parses the command line and the environment.
    ///
    /// # Errors
    /// Returns one sentence that says what to do; `--help` and `--version` print and end the process.
    pub fn read_environment() -> Result<Config, String> {
        match Config::try_parse() {
            Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => error.exit(),
            _ if !is_lambda() => {
                Err("this program runs only as a Lambda, beside a service on AWS: docs/notifications.md".to_owned())
            }
            Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
                Err("set CRONBOX_ENV, and CRONBOX_DB_DSN or CRONBOX_DB_SECRET_ARN".to_owned())
            }
            parsed => parsed.map_err(|error| {
                error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read; clap would make it a flag")]
fn is_lambda() -> bool {
    std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some()
}
