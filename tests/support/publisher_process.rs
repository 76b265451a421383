//! The publisher's binary, as the Lambda that a tick invokes, and as the daemon that Prometheus scrapes.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use local::stack::Stack;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::{Ended, PATIENCE, Runtime, find_kept_port};

/// The name of the Lambda.
pub const PUBLISHER: &str = "cronbox-dev-publisher";
/// Enough to claim, for which 10 s must be left after the way to the claim; too little to wait for many retries.
const TICK: Duration = Duration::from_secs(15);

/// The publisher as a Lambda.
pub struct Lambda {
    runtime: Runtime,
    lines: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

/// What one tick left: how it ended, and its line for CloudWatch.
pub struct Tick {
    /// What the function answered.
    pub ended: Ended,
    /// Its line in the embedded metric format.
    pub line: Value,
}

fn command(stack: &Stack) -> Command {
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox-publisher"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("RUST_LOG", "off").kill_on_drop(true);
    command.envs(stack.publisher_environment());
    command
}

impl Lambda {
    /// Starts the Lambda with these additional settings.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start(stack: &Stack, settings: &[(&str, String)]) -> Self {
        let mut runtime = Runtime::start().await;
        let mut command = command(stack);
        command.envs(runtime.environment(PUBLISHER)).envs(settings.iter().map(|(name, value)| (name, value)));
        let mut process = command.stdout(Stdio::piped()).spawn().expect("a publisher");
        let lines = BufReader::new(process.stdout.take().expect("a publisher")).lines();
        // The start of the process takes nothing of the first tick.
        runtime.wait_for_polls(1).await;
        Self { runtime, lines, _process: process }
    }

    /// Invokes it as the rule of each minute does.
    ///
    /// # Panics
    /// It does not answer.
    pub async fn tick(&mut self) -> Tick {
        #[expect(clippy::disallowed_methods, reason = "Lambda gives its deadline as a time of day")]
        let deadline = SystemTime::now() + TICK;
        let ended = self.runtime.invoke_until(json!({}), deadline).await;
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .expect("a line")
            .expect("a publisher")
            .expect("a publisher");
        Tick { ended, line: serde_json::from_str(&line).expect("a publisher") }
    }
}

/// The publisher as a daemon.
pub struct Daemon {
    process: Child,
    address: String,
}

impl Daemon {
    /// Starts the daemon; returns when it serves its page.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start(stack: &Stack) -> Self {
        let daemon = Self::start_with(stack, &[]);
        let began = std::time::Instant::now();
        while daemon.page().await.is_none() {
            assert!(began.elapsed() < PATIENCE, "the daemon does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        daemon
    }

    /// Starts the daemon with these additional settings, for example a fault, and does not wait.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_with(stack: &Stack, settings: &[(&str, &str)]) -> Self {
        let address = format!("127.0.0.1:{}", find_kept_port());
        let mut command = command(stack);
        command.envs(settings.iter().copied());
        let process =
            command.args(["--listen", "--metrics-addr", &address]).stdout(Stdio::null()).spawn().expect("a publisher");
        Self { process, address }
    }

    /// Its page, if it answers.
    pub async fn page(&self) -> Option<String> {
        reqwest::get(format!("http://{}/metrics", self.address)).await.ok()?.text().await.ok()
    }

    /// Waits until the value of a metric is as wanted.
    ///
    /// # Panics
    /// It stays another one.
    pub async fn until(&self, metric: &str, enough: impl Fn(f64) -> bool) {
        let began = std::time::Instant::now();
        loop {
            let page = self.page().await.unwrap_or_default();
            let value = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' ')?.parse().ok());
            if value.is_some_and(&enough) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{metric} stays {value:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until it has ended, in whatever way.
    ///
    /// # Panics
    /// It does not end.
    pub async fn wait_for_death(&mut self) {
        tokio::time::timeout(PATIENCE, self.process.wait()).await.expect("an end in time").expect("a publisher");
    }

    /// Ends it with SIGKILL.
    ///
    /// # Panics
    /// It cannot be ended.
    pub async fn kill(&mut self) {
        self.process.kill().await.expect("a publisher");
    }
}
