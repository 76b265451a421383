//! The sign-in of a person, at a provider that accepts each refresh token once.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::PATIENCE;
use tokio::sync::Notify;

use crate::Person;

/// A provider, and an app whose only caller is a person.
#[derive(Clone)]
struct Provider {
    url: Arc<str>,
    /// The refresh token that is accepted next.
    current: Arc<Mutex<String>>,
    /// How often a renewal was requested.
    requests: Arc<AtomicUsize>,
    /// Permits the answer to the first renewal.
    released: Arc<Notify>,
}

impl Provider {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Self {
            url: format!("http://{}", listener.local_addr().unwrap()).into(),
            current: Arc::new(Mutex::new("first".to_owned())),
            requests: Arc::default(),
            released: Arc::default(),
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(describe))
            .route("/token", post(renew))
            .route("/api/v1/me", get(me))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }
}

async fn describe(State(provider): State<Provider>) -> Json<Value> {
    Json(json!({"token_endpoint": format!("{}/token", provider.url)}))
}

async fn renew(State(provider): State<Provider>, form: String) -> (StatusCode, Json<Value>) {
    let is_accepted = {
        let mut current = provider.current.lock().unwrap();
        let is_accepted = form.ends_with(&format!("refresh_token={current}"));
        "second".clone_into(&mut current);
        is_accepted
    };
    provider.requests.fetch_add(1, Ordering::SeqCst);
    if !is_accepted {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"})));
    }
    provider.released.notified().await;
    let token = format!("a.{}.c", URL_SAFE_NO_PAD.encode(r#"{"exp":4102444800}"#));
    (StatusCode::OK, Json(json!({"access_token": token, "refresh_token": "second"})))
}

async fn me() -> Json<Value> {
    Json(json!({"actor": "person:ann", "name": "ann", "kind": "team", "is_person": true, "teams": [], "scopes": []}))
}

/// The profile of a person whose token has ended.
fn person(provider: &Provider) -> Person {
    let person = Person::without_key();
    let url = &provider.url;
    let profile = format!(
        "[profiles.default]\nurl = \"{url}\"\n\n[profiles.default.oidc]\nissuer = \"{url}\"\nclient_id = \"cli\"\n\
         token = \"t\"\nexpires_on = \"2020-01-01T00:00:00Z\"\nrefresh_token = \"first\"\n"
    );
    let file = person.write(".config/cronbox/config.toml", &profile);
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    person
}

/// Whether a process waits for the lock of the renewal, or is about to.
fn has_lock_file(pid: u32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|path| path.ends_with("config.lock"))
}

async fn until(is_true: impl Fn() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it happens");
}

/// The second command waits for the first, and uses what that one has written.
#[tokio::test]
async fn one_command_renews_for_all() {
    let provider = Provider::start().await;
    let person = person(&provider);
    let start = || {
        let mut command = person.command(&["me", "-o", "json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = start();
    until(|| provider.requests.load(Ordering::SeqCst) == 1).await;
    let second = start();
    let pid = second.id().unwrap();
    until(|| has_lock_file(pid) || provider.requests.load(Ordering::SeqCst) == 2).await;
    provider.released.notify_one();
    for command in [first, second] {
        let said = command.wait_with_output().await.unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(serde_json::from_slice::<Value>(&said.stdout).unwrap()["name"], "ann");
    }
    assert_eq!(provider.requests.load(Ordering::SeqCst), 1);
}
