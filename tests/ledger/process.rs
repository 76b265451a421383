//! The app's binary on a story's database. A fault can kill it at a named point.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::Arc;

use local::stack::StackOptions;
use tests::{Api, PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

/// A lease that does not expire even on a slow machine, so that it lapses only if the story says so.
pub(crate) const LONG_LEASE: [(&str, &str); 1] = [("CRONBOX_LOST_AFTER_SECS", "3600")];

/// A lease that no heartbeat renews and that does not expire, so that the story can end it.
pub(crate) const UNRENEWED: [(&str, &str); 2] =
    [("CRONBOX_LOST_AFTER_SECS", "36000"), ("CRONBOX_HEARTBEAT_MS", "3600000")];

/// An app in its own process.
pub(crate) struct App {
    child: Child,
    pub(crate) url: String,
    stopping: Arc<Notify>,
}

/// A stack whose own app executes no run, so that the processes do.
pub(crate) async fn idle() -> Story {
    Story::with(StackOptions { app: |config| config.executor_slots = 0, ..StackOptions::default() }).await
}

impl App {
    /// Starts an app that dies or blocks at the point that `fault` names, on the database `dsn`.
    ///
    /// Its leases are short, so that a story need not wait for minutes. On a slow machine they may expire at any time.
    pub(crate) async fn start(dsn: &str, fault: Option<&str>) -> Self {
        Self::with(dsn, &fault.map(|fault| ("CRONBOX_FAULT", fault)).into_iter().collect::<Vec<_>>()).await
    }

    /// Starts an app with short leases and these additional settings.
    pub(crate) async fn with(dsn: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(local::config::target_folder().join("debug/cronbox-app"));
        command.arg("serve").env_clear().env("PATH", "/usr/bin:/bin").kill_on_drop(true);
        command
            .env("DATABASE_URL", dsn)
            .env("CRONBOX_BIND_ADDR", "127.0.0.1:0")
            .env("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8");
        command
            .env("CRONBOX_LOST_AFTER_SECS", "2")
            .env("CRONBOX_HEARTBEAT_MS", "200")
            .env("CRONBOX_RECOVERY_INTERVAL_SECS", "1");
        command.env("CRONBOX_EXECUTOR_POLL_MS", "50").env("CRONBOX_SHUTDOWN_DRAIN_SECS", "1").env("NO_COLOR", "1");
        // No server listens there, so an action that obeys the proxy variables fails.
        command.env("HTTP_PROXY", "http://127.0.0.1:9").env("http_proxy", "http://127.0.0.1:9");
        command.envs(settings.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, rest)) = line.split_once("listens on ") {
                let url = rest.split_whitespace().next().unwrap().to_owned();
                let stopping = Arc::new(Notify::new());
                let heard = Arc::clone(&stopping);
                tokio::spawn(async move {
                    while let Ok(Some(line)) = lines.next_line().await {
                        // Shows the log if the test fails.
                        println!("app: {line}");
                        if line.contains("shutdown started") {
                            heard.notify_one();
                        }
                    }
                });
                return App { child, url, stopping };
            }
        }
        panic!("the app ended before it listened");
    }

    pub(crate) fn editor(&self, s: &Story) -> Api {
        Api::new(&self.url, &s.keys.editor)
    }

    pub(crate) fn runner(&self, s: &Story) -> Api {
        Api::new(&self.url, &s.keys.scheduler)
    }

    /// Waits until the app has killed itself.
    pub(crate) async fn assert_killed(mut self, point: &str) {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("{point} is never passed")).unwrap();
        assert_eq!(ended.signal(), Some(9), "{point}: it ended by itself");
    }

    /// Whether the process has ended.
    pub(crate) fn is_dead(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the process has ended, in whatever way.
    pub(crate) async fn wait_for_death(&mut self) {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it lives").unwrap();
    }

    /// Stops the app with SIGTERM, and waits for its end.
    pub(crate) async fn stop(mut self) {
        self.signal("-TERM").await;
        self.ended().await;
    }

    /// Waits until the app has exited with code 0.
    pub(crate) async fn ended(&mut self) {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        assert!(ended.expect("it does not stop").unwrap().success());
    }

    /// Waits until the app has received the first signal.
    pub(crate) async fn until_stopping(&self) {
        tokio::time::timeout(PATIENCE, self.stopping.notified()).await.expect("it notices no signal");
    }

    /// Sends the app a signal.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    }
}
