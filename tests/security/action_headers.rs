//! Headers of actions that frame or route a request, or that a receiver reads as ours.

use serde_json::json;
use uuid::Uuid;

use crate::ground::idle_story;
use crate::process::App;
use crate::report::Tally;

/// Headers of one hop, of framing, and of ours.
const RESERVED: [&str; 30] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "http2-settings",
    "date",
    "via",
    "forwarded",
    "early-data",
    "Host",
    "TRANSFER-ENCODING",
    "Connection",
    "webhook-id",
    "webhook-signature",
    "Webhook-Timestamp",
    "x-cronbox-run-id",
    "X-Cronbox-Context",
    "X-CRONBOX-ANY",
    ":authority",
    ":path",
    "a b",
    "a\r\nb",
];
/// Values that would begin a line of their own, or that are no text.
const VALUES: [&str; 8] = ["a\r\nb: c", "a\nb: c", "a\rb", "a\0b", "\r\n", "a\u{b}b", "a\u{7f}b", "ä\r\n"];

/// Saves each header, each value, and names that differ only in their case.
pub(crate) async fn attack_headers() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8")]).await;
    let editor = app.api(&s.keys.editor);
    let mut tally = Tally::default();
    let names = RESERVED.iter().map(|name| json!({*name: "x"}));
    let values = VALUES.iter().map(|value| json!({"x-a": value}));
    let doubled = [json!({"X-A": "1", "x-a": "2"}), json!({"authorization": "1", "Authorization": "2"})];
    for headers in names.chain(values).chain(doubled) {
        let action = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/", "headers": headers});
        let saved = editor.post("/api/v1/workflows", &json!({"name": Uuid::new_v4(), "action": action})).await;
        tally.record(saved.status == 400, || format!("{headers} is saved: {saved:?}"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}
