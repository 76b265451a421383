//! What an action may not have when it is saved: http to public addresses, ports of other protocols, doubtful headers.

use serde_json::json;
use tests::Story;

use crate::receiver::{accept, until_state};

#[tokio::test]
async fn http_and_other_ports_are_not_saved() {
    let s = Story::today().await;
    let wf = s.create_with(json!({})).await;
    for (url, detail) in [
        ("http://93.184.216.34/", "the URL must begin with https://; an operator can permit http"),
        ("https://93.184.216.34:22/", "port 22 is not permitted; an operator can permit it"),
        ("http://127.0.0.1:6379/", "port 6379 is not permitted; an operator can permit it"),
        ("https://168.63.129.16/", "168.63.129.16 is not a public address; an operator can allow its network"),
    ] {
        let action = json!({"type": "http", "method": "GET", "url": url});
        let refused = s.editor().patch(&format!("/api/v1/workflows/{wf}"), &json!({ "action": action })).await;
        refused.refused(400, "invalid_field", Some("action.url"));
        assert_eq!(refused.json["detail"], detail, "{url}");
    }
    let headers = json!({"X-A": "1", "x-a": "2"});
    let action = json!({"type": "http", "method": "GET", "url": "https://93.184.216.34/", "headers": headers});
    let refused = s.editor().patch(&format!("/api/v1/workflows/{wf}"), &json!({ "action": action })).await;
    refused.refused(400, "invalid_field", Some("action.headers.x-a"));
    s.end().await;
}

/// A workflow that was saved before https was required goes on until its URL changes. `64:ff9b::7f00:1` may be reached, because
/// what it translates to may be, and no operator has allowed it itself. Without a translator nothing answers there: a
/// connection fails at once, or after ten seconds if the machine has a way to it.
#[tokio::test]
async fn old_http_urls_go_on_until_changed() {
    let s = Story::today().await;
    let wf = s.create_with(json!({"max_attempts": 1})).await;
    let path = format!("/api/v1/workflows/{wf}");
    let action = json!({"type": "http", "method": "GET", "url": "http://[64:ff9b::7f00:1]:8080/"});
    s.editor().patch(&path, &json!({ "action": action })).await.refused(400, "invalid_field", Some("action.url"));
    // Stores it directly, as if its name had led to an allowed network when it was saved.
    let written = "UPDATE workflows SET action = $2 WHERE id = $1";
    sqlx::query(written).bind(wf.0).bind(&action).execute(&s.pool).await.unwrap();
    let failed = until_state(&s, accept(&s, wf).await, "failed").await;
    assert_eq!(failed["error"], "cannot connect: the URL must begin with https://; an operator can permit http");

    s.execute("UPDATE workflows SET may_use_http = TRUE").await;
    s.editor().patch(&path, &json!({"description": "x"})).await.expect(200);
    let failed = until_state(&s, accept(&s, wf).await, "failed").await;
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("connect") && !error.contains("https"), "a connection was tried: {error}");

    let excused = "SELECT count(*) FROM workflows WHERE may_use_http";
    assert_eq!(s.count(excused).await, 1);
    let encrypted = json!({"action": {"type": "http", "method": "GET", "url": "https://93.184.216.34/"}});
    s.editor().patch(&path, &encrypted).await.expect(200);
    assert_eq!(s.count(excused).await, 0);
    s.end().await;
}
