//! MiniStack: an emulator that runs the functions' zips, fires rules and schedules, and checks permissions.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::Response;
use local::config::target_folder;
use serde_json::Value;
use tests::{PATIENCE, find_kept_port};
use tokio::process::{Child, Command};

use crate::account::{aws, credentials};

/// How an emulator differs from AWS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The name of its folder in the target folder.
    pub(crate) name: &'static str,
    /// Seconds before Lambda's second try; AWS waits 60, and 120 before the third.
    pub(crate) retry_base_secs: &'static str,
    /// Whether it checks signatures and the policies of roles.
    pub(crate) checks_permissions: bool,
}

/// MiniStack's server; it stops when this value is dropped.
pub(crate) struct MiniStack {
    pub(crate) endpoint: String,
    /// Its own address, without the proxy.
    behind: String,
    /// The folder into which MiniStack unpacks, and for files that a test reads.
    pub(crate) folder: PathBuf,
    _process: Child,
}

impl MiniStack {
    pub(crate) async fn start(options: Options) -> MiniStack {
        let program = target_folder().join("venv-ministack/bin/ministack");
        assert!(program.exists(), "MiniStack is not installed: run `make terraform`");
        let folder = target_folder().join(options.name);
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        let port = find_kept_port();
        let mut command = Command::new(program);
        command.env_clear().envs(credentials()).env("TMPDIR", &folder).current_dir(&folder).envs([
            ("BIND_HOST", "127.0.0.1"),
            ("GATEWAY_PORT", &port.to_string()),
            ("LAMBDA_ASYNC_RETRY_BASE_SECONDS", options.retry_base_secs),
            ("AUTH", if options.checks_permissions { "true" } else { "false" }),
        ]);
        let log = std::fs::File::create(folder.join("ministack.log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        let behind = format!("http://127.0.0.1:{port}");
        let endpoint = if options.checks_permissions { like_tls(&behind).await } else { behind.clone() };
        let ministack = MiniStack { endpoint, behind, folder, _process: command.spawn().unwrap() };
        ministack.answers().await;
        ministack
    }

    async fn answers(&self) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answered = async {
            while http.get(format!("{}/_ministack/health", self.behind)).send().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("MiniStack answers");
    }

    pub(crate) async fn aws<'a>(&self, arguments: impl AsRef<[&'a str]>) -> Value {
        aws(&self.endpoint, arguments).await
    }
}

/// A proxy that says of each request that it came by TLS, as a terminator of TLS does: the policies of our queues refuse others.
/// Returns its address. The signature of a request covers its `Host`, which stays.
async fn like_tls(behind: &str) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let behind = behind.to_owned();
    let forward = move |request: Request| forward(http.clone(), behind.clone(), request);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(forward)).await });
    format!("http://{address}")
}

async fn forward(http: reqwest::Client, behind: String, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    parts.headers.insert("x-forwarded-proto", "https".parse().unwrap());
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let sent = http.request(parts.method, format!("{behind}{path}")).headers(parts.headers).body(body).send().await;
    let Ok(answer) = sent else { return Response::builder().status(502).body(Body::empty()).unwrap() };
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers().iter().filter(|(name, _)| *name != "transfer-encoding") {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.bytes().await.unwrap_or_default())).unwrap()
}
