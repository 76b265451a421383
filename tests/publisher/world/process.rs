//! Publishers as processes.

use std::process::Stdio;

use local::postgres::{Login, log_in_as};
use publisher::Config;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::World;

impl World {
    /// Starts a publisher process.
    pub(crate) fn process(&self, arguments: &[&str], fault: Option<&str>) -> Child {
        let mut command = self.command();
        command.args(arguments);
        if let Some(fault) = fault {
            command.env("CRONBOX_FAULT", fault);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Starts a publisher process that the Lambda runtime API at `runtime` invokes.
    pub(crate) fn lambda(&self, runtime: &str) -> Child {
        self.lambda_command(runtime).stdout(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn lambda_command(&self, runtime: &str) -> Command {
        let mut command = self.command();
        command.envs([
            ("AWS_LAMBDA_RUNTIME_API", runtime),
            ("AWS_LAMBDA_FUNCTION_NAME", "publisher"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "g"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "s"),
        ]);
        command
    }

    pub(crate) fn command(&self) -> Command {
        let Config { runner_lambda_arn, scheduler_role_arn, schedule_group, schedule_dlq_arn, .. } = self.config();
        let mut command = Command::new(crate::database::publisher_binary());
        command.kill_on_drop(true).env_clear().envs([
            ("CRONBOX_ENV", "dev"),
            ("CRONBOX_DB_DSN", &log_in_as(&self.dsn, Login::Publisher)),
            ("CRONBOX_RUNNER_LAMBDA_ARN", &runner_lambda_arn),
            ("CRONBOX_SCHEDULER_ROLE_ARN", &scheduler_role_arn),
            ("CRONBOX_SCHEDULE_GROUP", &schedule_group),
            ("CRONBOX_SCHEDULE_DLQ_ARN", &schedule_dlq_arn),
            ("AWS_ENDPOINT_URL_SCHEDULER", &self.endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("PATH", "/usr/bin:/bin"),
        ]);
        command
    }
}

/// Returns when a process has stopped at its fault point.
pub(crate) async fn stopped(process: &mut Child) {
    let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
    while let Some(line) = said.next_line().await.unwrap() {
        if line.starts_with("stopped at ") {
            return;
        }
    }
    panic!("it never came to that point");
}
