//! Requests whose framing two servers may read differently. A second request inside the first must never be executed.

use serde_json::json;

use crate::ground::idle_story;
use crate::process::App;
use crate::raw::{CLOSES_SOON, answers_to, statuses_in};
use crate::report::Tally;

/// In the answer of the smuggled request, and nowhere else.
const TARGET: &str = "smuggled-3c9d";

/// Requests of which at most one may be answered. `{smuggled}` is a second request, `{length}` its length with the five
/// bytes of a last chunk in front of it.
const AMBIGUOUS: [(&str, &str); 33] = [
    (
        "CL and TE",
        "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "TE and CL",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "TE and CL 4",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    ("two CL", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: {length}\r\n\r\n{smuggled}"),
    ("CL list", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0, {length}\r\n\r\n{smuggled}"),
    ("CL with plus", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: +0\r\n\r\n{smuggled}"),
    ("CL hex", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0x0\r\n\r\n{smuggled}"),
    ("CL negative", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n{smuggled}"),
    ("CL with space", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0 0\r\n\r\n{smuggled}"),
    ("CL 2^64", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551616\r\n\r\n{smuggled}"),
    ("CL empty", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: \r\n\r\n{smuggled}"),
    ("TE xchunked", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"),
    ("TE identity", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n{smuggled}"),
    (
        "TE chunked, identity",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "TE twice",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "TE with space",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\ncontent-length: {length}\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    ("TE with tab", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n{smuggled}"),
    ("TE in quotes", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n{smuggled}"),
    ("TE folded", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n{smuggled}"),
    (
        "TE of HTTP/1.0",
        "POST /x HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    ("folded header", "POST /x HTTP/1.1\r\nhost: a\r\nx: a\r\n content-length: {length}\r\n\r\n{smuggled}"),
    ("bare CR", "POST /x HTTP/1.1\r\nhost: a\r\nx: a\rcontent-length: {length}\r\n\r\n{smuggled}"),
    ("NUL in a header", "POST /x HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n{smuggled}"),
    ("space in a name", "POST /x HTTP/1.1\r\nhost: a\r\ncontent length: 5\r\n\r\n{smuggled}"),
    ("no colon", "POST /x HTTP/1.1\r\nhost: a\r\nx\r\n\r\n{smuggled}"),
    (
        "chunk of 2^68",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n{smuggled}",
    ),
    ("chunk with plus", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n+0\r\n\r\n{smuggled}"),
    ("chunk hex", "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0x0\r\n\r\n{smuggled}"),
    (
        "chunk without end",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nZZ\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "chunk extension with LF",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0;a\n\r\n\r\n{smuggled}",
    ),
    ("h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{smuggled}"),
    ("HTTP/9.9", "GET /x HTTP/9.9\r\nhost: a\r\n\r\n{smuggled}"),
    ("method of NUL", "G\0T /x HTTP/1.1\r\nhost: a\r\n\r\n{smuggled}"),
];
/// Requests that contain the second one as text.
const FRAMED: [(&str, &str); 8] = [
    ("body of CL", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: {body}\r\nconnection: close\r\n\r\n{smuggled}"),
    (
        "body of a chunk",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n{chunk}\r\n{smuggled}\r\n0\r\n\r\n",
    ),
    (
        "body of GET",
        "GET /healthz HTTP/1.1\r\nhost: a\r\ncontent-length: {body}\r\nconnection: close\r\n\r\n{smuggled}",
    ),
    (
        "after an upgrade",
        "GET /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n{smuggled}",
    ),
    ("after CONNECT", "CONNECT a:80 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n{smuggled}"),
    ("after close", "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n{smuggled}"),
    ("after a long header", "GET /x HTTP/1.1\r\nhost: a\r\nx: {long}\r\n\r\n{smuggled}"),
    ("after a long path", "GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n{smuggled}"),
];
/// Requests whose headers claim another method, path or address; the answer must be that of the request line.
const OVERRIDES: [&str; 12] = [
    "x-http-method-override: DELETE",
    "x-http-method: DELETE",
    "x-method-override: DELETE",
    "x-original-url: /api/v1/keys",
    "x-rewrite-url: /api/v1/keys",
    "x-forwarded-prefix: /api/v1/keys",
    "x-forwarded-host: evil.example",
    "x-forwarded-proto: gopher",
    "forwarded: for=127.0.0.1;host=evil.example",
    "x-original-method: DELETE",
    "content-location: /api/v1/keys",
    "host: evil.example",
];

/// Sends the corpus, and a valid request before and after each.
pub(crate) async fn attack_framing() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &CLOSES_SOON).await;
    s.create_with(json!({"name": TARGET})).await;
    let key = &s.keys.editor;
    let smuggled = format!("GET /api/v1/workflows HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\n\r\n");
    let alone = answers_to(app.address(), smuggled.as_bytes()).await;
    assert!(String::from_utf8_lossy(&alone).contains(TARGET), "the smuggled request works when it is sent openly");
    let mut tally = Tally::default();
    for (name, template) in AMBIGUOUS.iter().chain(&FRAMED) {
        let body = smuggled.len();
        let request = template
            .replace("{length}", &(body + 5).to_string())
            .replace("{body}", &body.to_string())
            .replace("{chunk}", &format!("{body:x}"))
            .replace("{long}", &"a".repeat(70_000))
            .replace("{smuggled}", &smuggled);
        let answer = answers_to(app.address(), request.as_bytes()).await;
        let statuses = statuses_in(&answer);
        let is_refused = !String::from_utf8_lossy(&answer).contains(TARGET) && statuses.len() <= 1;
        tally.record(is_refused && statuses.iter().all(|status| *status < 500), || format!("{name}: {statuses:?}"));
    }
    for header in OVERRIDES {
        let request = |header: &str| {
            format!(
                "GET /api/v1/workflows HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\nconnection: close\r\n{header}\r\n\r\n"
            )
        };
        let answer = answers_to(app.address(), request(header).as_bytes()).await;
        let is_the_list = statuses_in(&answer) == [200] && String::from_utf8_lossy(&answer).contains(TARGET);
        // Two Host headers may be refused.
        let is_refused = statuses_in(&answer) == [400];
        tally.record(is_the_list || is_refused, || format!("{header}: {:?}", statuses_in(&answer)));
    }
    app.stop().await;
    s.end_early().await;
    tally
}
