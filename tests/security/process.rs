//! The app's program in its own process, with its log and its memory.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tests::{Api, PATIENCE};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

/// An honest client without an answer for so long is denied the service: an attack got through. It is not [`PATIENCE`], because a
/// service that stalls for minutes is none.
pub(crate) const DENIED: Duration = Duration::from_secs(60);

/// The settings of every attack: no limit of keys, because one address sends all requests, and http, so that addresses are
/// refused because of what they are. An attack on a limit sets it.
const USUAL: [(&str, &str); 15] = [
    ("CRONBOX_BIND_ADDR", "127.0.0.1:0"),
    ("CRONBOX_SHUTDOWN_DRAIN_SECS", "1"),
    ("CRONBOX_EXECUTOR_POLL_MS", "50"),
    ("CRONBOX_JOBS_ENABLED", "false"),
    ("CRONBOX_BAD_KEYS_PER_MIN", "0"),
    ("CRONBOX_KEY_REQUESTS_PER_SEC", "0"),
    ("CRONBOX_KEY_REQUESTS_IN_FLIGHT", "0"),
    ("CRONBOX_TEAM_REQUESTS_IN_FLIGHT", "0"),
    ("CRONBOX_TEAM_FIRES_PER_MINUTE", "0"),
    ("CRONBOX_ADDRESS_CONNECTIONS", "0"),
    ("CRONBOX_ADDRESS_REQUESTS_IN_FLIGHT", "0"),
    ("CRONBOX_REQUESTS_IN_FLIGHT", "0"),
    ("CRONBOX_EGRESS_ALLOW_HTTP", "true"),
    ("CRONBOX_SECRETS_KEY", "k1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
    ("NO_COLOR", "1"),
];

/// A running app.
pub(crate) struct App {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    log: Log,
}

/// What the app wrote to its log so far; clones are the same.
type Log = Arc<Mutex<Vec<u8>>>;

/// The app's program, without arguments.
pub(crate) fn program() -> Command {
    let program = local::config::target_folder().join("debug/cronbox-app");
    assert!(program.exists(), "{} is missing: run `cargo build --workspace --bins`", program.display());
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").kill_on_drop(true);
    command
}

impl App {
    /// Starts an app on this database; `settings` replace the usual ones.
    pub(crate) async fn start(dsn: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = program();
        command.arg("serve").env("DATABASE_URL", dsn).envs(USUAL).envs(settings.iter().copied());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Log::default();
        let mut stderr = child.stderr.take().unwrap();
        let reader = Arc::clone(&log);
        tokio::spawn(async move {
            let mut chunk = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
                reader.lock().unwrap().extend_from_slice(&chunk[..read]);
            }
        });
        let url = url_in(&mut child, &log).await;
        App { child, url, log }
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// A client with this key.
    pub(crate) fn api(&self, key: &str) -> Api {
        Api::new(&self.url, key)
    }

    /// A client without a key.
    pub(crate) fn anonymous(&self) -> Api {
        Api::without_key(&self.url)
    }

    /// What the app wrote to its log so far.
    pub(crate) fn log(&self) -> Vec<u8> {
        self.log.lock().unwrap().clone()
    }

    /// Whether a new connection is answered within [`DENIED`].
    pub(crate) async fn answers(&self) -> bool {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(DENIED).build().unwrap();
        client.get(format!("{}/healthz", self.url)).send().await.is_ok_and(|answer| answer.status() == 200)
    }

    /// The most memory that the process has used, in mebibytes; 0 where there is no /proc.
    pub(crate) fn peak_mebibytes(&self) -> u64 {
        let status = self.child.id().map(|id| std::fs::read_to_string(format!("/proc/{id}/status")));
        let status = status.and_then(Result::ok).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
    }

    /// Kills the app, which an attack may have left with threads that wait for a name server.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops the app, and returns its complete log.
    pub(crate) async fn stop(mut self) -> Vec<u8> {
        if let Some(id) = self.child.id() {
            assert!(Command::new("kill").args(["-TERM", &id.to_string()]).status().await.unwrap().success());
        }
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        assert!(ended.expect("the app does not stop").is_ok());
        self.log()
    }
}

async fn url_in(child: &mut Child, log: &Log) -> String {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let text = String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
        if let Some(url) = text.split_once("listens on ").and_then(|(_, rest)| rest.split_once(char::is_whitespace)) {
            return url.0.trim_end_matches('"').to_owned();
        }
        assert!(child.try_wait().unwrap().is_none(), "the app ended before it listened: {text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the app does not listen");
}
