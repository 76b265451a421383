//! Step 6 of 7: the configuration of the runner.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{Args, Parser};
use old_names::OldVariable;
use scheduler_key::KeySource;
use url::Url;

/// The time limit of one try.
pub const TRY: Duration = Duration::from_secs(8);
/// The time limit of all tries of one delivery; Lambda ends the function after 15 s.
pub const ALL_TRIES: Duration = schedule::delivery::RUNNER_TIME_LIMIT;

/// The address of the app, and the key for it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The app's address, without `/api/v1`.
    pub app_base_url: Url,
    /// The scheduler key.
    pub key: KeySource,
    /// The limits of a delivery.
    pub limits: Limits,
}

/// The limits of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long one try may take.
    pub one_try: Duration,
    /// How long all tries may take.
    pub all_tries: Duration,
    /// How many tries there may be.
    pub most_tries: u32,
}

impl Limits {
    /// In Lambda only time limits the number of tries.
    pub const LAMBDA: Limits = Limits { one_try: TRY, all_tries: ALL_TRIES, most_tries: u32::MAX };
}

/// Delivers a fire of EventBridge Scheduler to the app's `:invoke`; runs only as a Lambda.
#[derive(Parser)]
#[command(name = "cronbox-runner", bin_name = "cronbox-runner", version)]
struct Arguments {
    /// The app's address, without `/api/v1`.
    #[arg(long, env = "CRONBOX_APP_BASE_URL", value_parser = address)]
    app_base_url: Url,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
struct Key {
    /// The scheduler key.
    #[arg(long, env = "CRONBOX_SCHEDULER_API_KEY", hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    scheduler_api_key: Option<String>,
    /// ARN of the scheduler key in Secrets Manager.
    #[arg(long, env = "CRONBOX_SCHEDULER_API_KEY_SECRET_ARN", value_parser = NonEmptyStringValueParser::new())]
    scheduler_api_key_secret_arn: Option<String>,
}

impl Config {
    /// Parses the command line and the environment; also returns the variables that have an old name.
    ///
    /// # Errors
    /// Returns one sentence that says what to do; `--help` and `--version` print and end the process.
    pub fn read_environment() -> Result<(Config, Vec<OldVariable>), String> {
        let (Arguments { app_base_url, key }, old_variables) = match old_names::parse_arguments::<Arguments>() {
            Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => error.exit(),
            _ if !is_lambda() => {
                return Err("this program runs only as a Lambda: `make up` starts it on this machine".to_owned());
            }
            parsed => parsed.map_err(|error| sentence(&error))?,
        };
        let key = match (key.scheduler_api_key, key.scheduler_api_key_secret_arn) {
            (Some(key), _) => KeySource::Value(key),
            (None, Some(arn)) => KeySource::Secret(arn),
            (None, None) => {
                return Err("set CRONBOX_SCHEDULER_API_KEY or CRONBOX_SCHEDULER_API_KEY_SECRET_ARN".to_owned());
            }
        };
        Ok((Config { app_base_url, key, limits: Limits::LAMBDA }, old_variables))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read; clap would make it a flag")]
fn is_lambda() -> bool {
    std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some()
}

fn sentence(error: &clap::Error) -> String {
    match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            "set CRONBOX_APP_BASE_URL, and CRONBOX_SCHEDULER_API_KEY or CRONBOX_SCHEDULER_API_KEY_SECRET_ARN".to_owned()
        }
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

fn address(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}: write https://host"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("{other} is not http: write https://host")),
    }
}
