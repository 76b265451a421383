//! Limits: the app refuses large, slow and too many requests, and still serves other clients.

use std::io::ErrorKind;
use std::time::Instant;

use access::gate::{Admission, KeyPools};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tests::{Api, PATIENCE, Story};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::tenant_isolation::{lock_workflow, without_timeouts};

#[tokio::test]
async fn bodies_above_256_kib_are_refused() {
    let s = Story::today().await;
    let body = json!({"name": "a", "starting_inputs": {"a": "x".repeat(256 * 1024)}, "action": {}});
    s.editor().post("/api/v1/workflows", &body).await.refused(413, "body_too_large", None);
    let allowed = json!({"name": "a", "starting_inputs": {"a": "x".repeat(200 * 1024)},
                         "action": {"type": "log", "message": "hi"}});
    s.editor().post("/api/v1/workflows", &allowed).await.expect(201);
    s.end().await;
}

#[tokio::test]
async fn headers_above_16_kib_are_refused() {
    let s = Story::today().await;
    let request = s.editor().request(Method::GET, "/api/v1/workflows").header("x-large", "x".repeat(20 * 1024));
    assert_eq!(tests::send_request(request).await.status, 431);
    s.end().await;
}

#[tokio::test]
async fn only_unknown_keys_are_limited_by_address() {
    let s = Story::with_app(|config| config.bad_keys_per_min = 5).await;
    let stranger = Api::new(s.url(), "cb_000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    for _ in 0..4 {
        stranger.get("/api/v1/runs").await.refused(401, "unauthorized", None);
    }
    Api::new(s.url(), "no key").get("/api/v1/runs").await.refused(401, "unauthorized", None);
    let limited = stranger.get("/api/v1/runs").await;
    limited.refused(429, "rate_limited", None);
    assert!(limited.headers.contains_key("retry-after"));
    s.editor().get("/api/v1/runs").await.expect(200);
    s.scheduler_key().post("/api/v1/cron/workflows/1:invoke", &json!({})).await.expect(400);
    s.end().await;
}

/// What anybody may send without a key.
fn sign_in(s: &Story, path: &str, body: String) -> RequestBuilder {
    let form = Api::without_key(s.url()).request(Method::POST, path).header("sec-fetch-site", "same-origin");
    form.header("content-type", "application/x-www-form-urlencoded").body(body)
}

#[tokio::test]
async fn forms_of_the_sign_in_are_small() {
    let s = Story::today().await;
    for (path, field) in [("/sign-in", "key"), ("/sign-in/link", "link")] {
        let form = |length| sign_in(&s, path, format!("{field}={}", "a".repeat(length)));
        tests::send_request(form(8 * 1024)).await.refused(413, "body_too_large", None);
        tests::send_request(form(7 * 1024)).await.expect(401);
        tests::send_request(sign_in(&s, path, "other=1".to_owned())).await.refused(400, "missing_field", Some(field));
    }
    s.end().await;
}

/// Connects, and sends all of a sign-in but its last byte.
async fn begin_sign_in(s: &Story, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(s.url().strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nsec-fetch-site: same-origin\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: 100\r\n\r\n{}",
        "a".repeat(99)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The task of the request kept the bytes and the connection for as long as the client liked: six hundred clients without a key
/// took all memory of an instance.
#[tokio::test]
async fn unfinished_sign_ins_lose_their_connection() {
    let s = Story::with_app(|config| config.request_timeout_ms = 500).await;
    for path in ["/sign-in", "/sign-in/link"] {
        let (mut stream, mut answer) = (begin_sign_in(&s, path).await, String::new());
        let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
        read.expect("the connection stays open").unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    s.end().await;
}

/// Nothing else limits those that an address begins behind a proxy.
#[tokio::test]
async fn sign_ins_in_progress_are_limited() {
    let s = Story::with_app(|config| {
        config.requests_in_flight = 1;
        config.request_timeout_ms = 600_000;
    })
    .await;
    let unfinished = begin_sign_in(&s, "/sign-in").await;
    until_status(&s, 429).await;
    tests::send_request(sign_in(&s, "/sign-in/link", "link=a".to_owned())).await.refused(
        429,
        "limit_requests_in_flight",
        None,
    );
    drop(unfinished);
    until_status(&s, 200).await;
    s.end().await;
}

/// Any client may begin as many without a key as its connections, and the pages of the console call the API, too.
#[tokio::test]
async fn sign_ins_take_no_place_of_callers() {
    let s = Story::with_app(|config| {
        config.requests_in_flight = 8;
        config.request_timeout_ms = 600_000;
    })
    .await;
    let unfinished = futures::future::join_all((0..8).map(|_| begin_sign_in(&s, "/sign-in"))).await;
    until_status(&s, 429).await;
    s.editor().get("/api/v1/workflows").await.expect(200);
    drop(unfinished);
    until_status(&s, 200).await;
    s.end().await;
}

/// Waits until the page of the sign-in has this status.
async fn until_status(s: &Story, status: u16) {
    let (stranger, began) = (Api::without_key(s.url()), Instant::now());
    while stranger.get("/sign-in").await.status != status {
        assert!(began.elapsed() < PATIENCE, "never {status}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The first request of a new key and the next ones, which arrive before its key is read, need one try together.
#[tokio::test]
async fn requests_of_one_key_need_one_try() {
    let s = Story::with_app(|config| config.bad_keys_per_min = 1).await;
    let (gate, pools, now) = (&s.app().gate, &s.app().pools, s.app().clock.now());
    let pools = || KeyPools { of_request: &pools.reads, fires: &pools.fires };
    let [flooding, honest] = [[127, 0, 0, 2], [127, 0, 0, 3]].map(std::net::IpAddr::from);
    // The second one needs the digests of the active keys, which are then cached.
    for nth in 0..2 {
        let unknown = format!("cb_{nth:012x}_{}", "A".repeat(43));
        let refused = gate.admit_key(pools(), &unknown, flooding, now).await.unwrap();
        assert!(matches!(refused, Admission::Unknown | Admission::TooManyUnknown), "{refused:?}");
    }
    let body = json!({"kind": "admin", "name": "new"});
    let created = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let key = created["key"].as_str().unwrap();
    let admit = || gate.admit_key(pools(), key, honest, now);
    let (first, second) = tokio::join!(admit(), admit());
    for admission in [first.unwrap(), second.unwrap()] {
        assert!(matches!(admission, Admission::Admitted(_)), "{admission:?}");
    }
    s.end().await;
}

/// An editor's key has one.
#[tokio::test]
async fn scheduler_keys_have_no_request_limit() {
    let s = Story::with_app(|config| config.key_requests_per_sec = 1).await;
    // At one request per second, all of them would take a minute.
    let editor = s.editor();
    let answers = futures::future::join_all((0..60).map(|_| editor.get("/api/v1/runs"))).await;
    assert!(answers.iter().any(|answer| answer.status == 429), "sixty at once passed a limit of one a second");
    for _ in 0..12 {
        s.scheduler_key().post("/api/v1/cron/workflows/1:invoke", &json!({})).await.expect(400);
    }
    s.end().await;
}

/// A fire would wait for the same lock, and a later edit for this one.
#[tokio::test]
async fn edits_wait_briefly_for_locks() {
    let s = Story::with_app(|config| config.edit_lock_timeout_ms = 100).await;
    let id = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    // Only the limit of edits is left; without it, the edit would wait until its request times out.
    without_timeouts(&s.app().pools.edits).await;
    let holder = lock_workflow(&s, id).await;
    let busy = s.editor().patch(&path, &json!({"description": "x"})).await;
    busy.refused(503, "database_busy", None);
    assert!(busy.headers.contains_key("retry-after"));
    holder.rollback().await.unwrap();
    s.editor().patch(&path, &json!({"description": "x"})).await.expect(200);
    s.end().await;
}

/// Opens 200 connections that never complete a request.
async fn slow_clients(s: &Story) -> Vec<TcpStream> {
    let address = s.url().strip_prefix("http://").unwrap().to_owned();
    let mut slow = Vec::new();
    for i in 0..200 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // Half a request line, half a header, or nothing.
        let beginning = ["GET /api", "GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: ", ""][i % 3];
        stream.write_all(beginning.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    slow
}

#[tokio::test]
async fn slow_clients_delay_no_request() {
    let s = Story::with_app(|config| config.header_timeout_ms = 600_000).await;
    let slow = slow_clients(&s).await;
    let api = Api::without_key(s.url());
    for _ in 0..100 {
        let answer = tokio::time::timeout(PATIENCE, api.get("/healthz")).await;
        answer.expect("the slow clients delay it").expect(200);
    }
    for stream in slow {
        let read = stream.try_read(&mut [0]);
        assert!(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "all of them were connected meanwhile");
    }
    s.end_early().await;
}

#[tokio::test]
async fn slow_clients_lose_their_connection() {
    let s = Story::with_app(|config| config.header_timeout_ms = 1_500).await;
    for mut stream in slow_clients(&s).await {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        let ended = ended.expect("a slow client keeps its connection for ever");
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
    s.end().await;
}

#[tokio::test]
async fn unfinished_bodies_time_out() {
    let s = Story::with_app(|config| config.request_timeout_ms = 500).await;
    let address = s.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /api/v1/workflows HTTP/1.1\r\nhost: a\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{",
        s.keys.admin
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    read.expect("the server waits for ever").unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("request_timeout"));
    s.end().await;
}
