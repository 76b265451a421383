//! Requests, names and answers about which a server should be strict.

use serde_json::json;

use crate::ground::idle_story;
use crate::process::App;
use crate::raw::{CLOSES_SOON, answers_to, statuses_in};
use crate::report::Tally;

/// Requests without exactly one valid Host, and bodies that do not say that they are JSON.
pub(crate) async fn attack_requests() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &CLOSES_SOON).await;
    let mut tally = Tally::default();
    for hosts in ["", "host: a\r\nhost: b\r\n", "host: a/b\r\n", "host: a b\r\n"] {
        let request = format!("GET /healthz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        let statuses = statuses_in(&answers_to(app.address(), request.as_bytes()).await);
        tally.record(statuses == [400], || format!("{hosts:?} is answered {statuses:?}"));
    }
    let invoke = "/api/v1/cron/workflows/987654321:invoke";
    for kind in ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"] {
        let request = app.api(&s.keys.scheduler).request(reqwest::Method::POST, invoke);
        let request = if kind.is_empty() { request } else { request.header("content-type", kind) };
        let answer = tests::send_request(request.body(r#"{"scheduled_time":"2026-01-01T00:00:00Z"}"#)).await;
        tally.record(answer.status == 415, || format!(":invoke with the type {kind:?}: {answer:?}"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}

/// Characters that are not seen, or that change the order of others.
const UNSEEN: [&str; 16] = [
    "\u{202e}",
    "\u{202d}",
    "\u{2066}",
    "\u{2069}",
    "\u{200b}",
    "\u{200c}",
    "\u{200d}",
    "\u{200e}",
    "\u{200f}",
    "\u{feff}",
    "\u{ad}",
    "\u{61c}",
    "\u{2060}",
    "\u{180e}",
    "\u{e0041}",
    "\u{fff9}",
];

/// Two names that look alike.
pub(crate) async fn attack_names() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[]).await;
    let mut tally = Tally::default();
    for sign in UNSEEN {
        let name = format!("pay{sign}ments");
        let action = json!({"type": "log", "message": "x"});
        let workflow =
            app.api(&s.keys.editor).post("/api/v1/workflows", &json!({"name": name, "action": action})).await;
        tally.record(workflow.status == 400, || format!("the workflow {} is created", name.escape_unicode()));
        let team = app.api(&s.keys.admin).post("/api/v1/teams", &json!({"name": name})).await;
        tally.record(team.status == 400, || format!("the team {} is created", name.escape_unicode()));
    }
    app.stop().await;
    s.end_early().await;
    tally
}

/// Response headers that a browser or a shared cache needs.
pub(crate) async fn attack_browsers() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[]).await;
    let mut tally = Tally::default();
    let id = s.create("0 9 * * *", "UTC").await;
    let pages = [
        ("/docs/", "content-security-policy", "frame-ancestors"),
        ("/docs/", "x-content-type-options", "nosniff"),
        ("/openapi.json", "x-content-type-options", "nosniff"),
        ("/healthz", "x-content-type-options", "nosniff"),
        ("/missing", "x-content-type-options", "nosniff"),
    ];
    for (path, header, value) in pages {
        let answer = app.anonymous().get(path).await;
        let found = answer.headers.get(header).map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned());
        let is_there = found.as_ref().is_some_and(|found| found.contains(value));
        // A page that is not served here needs no header.
        let is_absent = answer.status == 404 && path == "/docs/";
        tally.record(is_there || is_absent, || format!("{path}: {header} is {found:?}"));
    }
    for path in ["/api/v1/workflows".to_owned(), format!("/api/v1/workflows/{id}"), "/api/v1/runs".to_owned()] {
        let answer = app.api(&s.keys.editor).get(&path).await;
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let cache = header("cache-control").to_lowercase();
        let is_private = cache.contains("no-store") || cache.contains("private");
        tally.record(is_private, || format!("{path}: cache-control is {cache:?}"));
        let vary = header("vary").to_lowercase();
        tally.record(vary.contains("x-api-key") || cache.contains("no-store"), || format!("{path}: vary is {vary:?}"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}
