//! The page of the documentation in a real browser: its own policy must permit all that it does.

use std::path::PathBuf;
use std::process::Stdio;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use tests::PATIENCE;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::ground::idle_story;
use crate::process::App;
use crate::report::Tally;

/// What Chromium says of code that a policy forbids.
const VIOLATION: &str = "Content Security Policy";

/// What a browser shows, and what it says of the policy.
struct Shown {
    document: String,
    violations: String,
}

/// Loads `/docs` in Chromium, after a page that violates its own policy, so that a silent browser proves something.
pub(crate) async fn attack_docs() -> Tally {
    let Some(chromium) = find_chromium() else {
        return Tally::skipped("Chromium is not installed");
    };
    let mut tally = Tally::default();
    let forbidden = show(&chromium, &serve_forbidden_page().await).await;
    assert!(!forbidden.violations.is_empty(), "a violation is not seen");
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[]).await;
    let docs = show(&chromium, &format!("http://{}/docs/", app.address())).await;
    tally.record(docs.violations.is_empty(), || format!("/docs violates its policy: {}", docs.violations));
    let is_drawn = docs.document.contains("/api/v1/workflows");
    tally.record(is_drawn, || format!("/docs shows no operations: {}", docs.document));
    app.stop().await;
    s.end_early().await;
    tally
}

fn find_chromium() -> Option<PathBuf> {
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
}

/// A page with code that its policy forbids.
async fn serve_forbidden_page() -> String {
    let page = || async { ([("content-security-policy", "script-src 'none'")], Html("<script>1</script>")) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(page))).await.unwrap() });
    url
}

/// Opens a page in a browser with an empty profile, and waits until its code has ended.
async fn show(chromium: &PathBuf, url: &str) -> Shown {
    let profile = std::env::temp_dir().join(format!("cronbox-browser-{}", uuid::Uuid::new_v4()));
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]);
    browser.args(["--virtual-time-budget=20000", "--enable-logging=stderr", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.display())).arg(url);
    browser.stdin(Stdio::null()).kill_on_drop(true);
    let shown = tokio::time::timeout(2 * PATIENCE, browser.output()).await.expect("the browser ends").unwrap();
    std::fs::remove_dir_all(&profile).ok();
    let violations = String::from_utf8_lossy(&shown.stderr)
        .lines()
        .filter(|line| line.contains("CONSOLE") && line.contains(VIOLATION))
        .collect::<Vec<_>>()
        .join(" ");
    Shown { document: String::from_utf8_lossy(&shown.stdout).into_owned(), violations }
}
