//! An admin lists the hosts of a team: no other is saved, and none is called.

use local::stack::StackOptions;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Answer, Story};

use crate::receiver::{Receiver, accept, until_state};

async fn set_hosts(s: &Story, hosts: Value) -> Answer {
    let path = format!("/api/v1/teams/{}/hosts", s.keys.team_id);
    tests::send_request(s.admin().request(Method::PUT, &path).json(&json!({ "allowed_hosts": hosts }))).await
}

#[tokio::test]
async fn only_listed_hosts_are_saved_and_called() {
    let s = Story::with(StackOptions::default()).await;
    let receiver = Receiver::kind().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    until_state(&s, accept(&s, wf).await, "succeeded").await;

    let set = set_hosts(&s, json!(["*.Example.com", "127.0.0.2"])).await.expect(200);
    assert_eq!(set.json["allowed_hosts"], json!(["*.example.com", "127.0.0.2"]));
    let failed = until_state(&s, accept(&s, wf).await, "failed").await;
    assert_eq!(failed["error"], "127.0.0.1 is none of the hosts that the team may call; an admin can add it");
    assert_eq!(receiver.received().len(), 1, "it is not called");

    let action = |url: &str| json!({"type": "http", "method": "POST", "url": url});
    let path = format!("/api/v1/workflows/{wf}");
    for key in [s.editor(), s.admin()] {
        key.patch(&path, &json!({"action": action(&receiver.url)})).await.refused(
            400,
            "invalid_field",
            Some("action.url"),
        );
        key.patch(&path, &json!({"action": action("https://a.example.com/")})).await.expect(200);
        key.patch(&path, &json!({"description": "x"})).await.expect(200);
    }
    let body = json!({"name": "new", "action": action(&receiver.url)});
    s.editor().post("/api/v1/workflows", &body).await.refused(400, "invalid_field", Some("action.url"));
    set_hosts(&s, json!([])).await.expect(200);
    s.editor().post("/api/v1/workflows", &body).await.expect(201);
    s.end().await;
}

#[tokio::test]
async fn only_admins_list_hosts() {
    let s = Story::today().await;
    let path = format!("/api/v1/teams/{}/hosts", s.keys.team_id);
    set_hosts(&s, json!(["https://a.example"])).await.refused(400, "invalid_field", Some("allowed_hosts"));
    set_hosts(&s, json!(vec!["a.example"; 101])).await.refused(400, "invalid_field", Some("allowed_hosts"));
    set_hosts(&s, json!(["b.example", "a.example", "b.example."])).await.expect(200);
    assert_eq!(s.editor().get(&path).await.expect(200).json["allowed_hosts"], json!(["a.example", "b.example"]));
    tests::send_request(s.editor().request(Method::PUT, &path).json(&json!({"allowed_hosts": []}))).await.refused(
        403,
        "forbidden",
        None,
    );
    let audited = "SELECT count(*) FROM audit_log WHERE verb = 'hosts'";
    assert_eq!(s.count(audited).await, 1);
    s.end().await;
}
