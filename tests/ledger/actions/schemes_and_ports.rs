//! What an action may not have when it is saved: http to public addresses, ports of other protocols, doubtful headers.

use serde_json::json;
use tests::Story;

/// What an earlier version saved is still sent.
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
