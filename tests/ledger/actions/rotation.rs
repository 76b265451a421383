//! The rotation of a team's signing secret, secrets by receiver, and the signature of the context.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use tokio::process::Command;

use super::encryption::{encrypting, run_of};
use super::signatures::{noon, received_by_the_docs};
use crate::receiver::{Received, Receiver};

/// A team with its first secret, and a workflow of it that calls the receiver.
async fn team_and_workflow(s: &Story, receiver: &Receiver) -> (i64, String, WorkflowId) {
    let team = s.admin().post("/api/v1/teams", &json!({"name": "books"})).await.expect(201);
    let mut action = receiver.action();
    action["body"] = json!("custom");
    let workflow = json!({"team_id": team.id(), "name": "w", "action": action});
    let id = s.admin().post("/api/v1/workflows", &workflow).await.expect(201).id();
    (team.id(), team.json["signing_secret"].as_str().unwrap().to_owned(), WorkflowId(id))
}

async fn rotate(s: &Story, team: i64, body: Value) -> (String, Value) {
    let rotated = s.admin().post(&format!("/api/v1/teams/{team}:rotate-signing-secret"), &body).await.expect(200);
    assert_eq!(rotated.headers["cache-control"], "no-store");
    (rotated.json["signing_secret"].as_str().unwrap().to_owned(), rotated.json)
}

/// Whether the receiver of the docs accepts a request with this secret.
async fn verifies(secret: &str, request: &Received, now: i64) -> bool {
    received_by_the_docs(secret, std::slice::from_ref(request), now).await.0 == [200]
}

#[tokio::test]
async fn both_secrets_sign_during_an_overlap() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let (team, first, wf) = team_and_workflow(&s, &receiver).await;
    let (second, view) = rotate(&s, team, json!({"overlap_secs": 3600})).await;
    assert_eq!(view["previous_until"], "2026-03-02T13:00:00Z");
    assert_ne!(first, second);
    run_of(&s, wf, "succeeded").await;
    let sent = receiver.received().remove(0);
    assert!(verifies(&first, &sent, noon()).await && verifies(&second, &sent, noon()).await);
    s.now_is("2026-03-02T13:00:00Z").await;
    run_of(&s, wf, "succeeded").await;
    let sent = receiver.received().remove(1);
    assert!(!verifies(&first, &sent, noon() + 3600).await && verifies(&second, &sent, noon() + 3600).await);
    let (third, view) = rotate(&s, team, json!({"overlap_secs": 0})).await;
    assert_eq!(view["previous_until"], Value::Null);
    run_of(&s, wf, "succeeded").await;
    let sent = receiver.received().remove(2);
    assert!(!verifies(&second, &sent, noon() + 3600).await && verifies(&third, &sent, noon() + 3600).await);
    let kept = s.table("SELECT teams::text FROM teams").await + &s.table("SELECT audit_log::text FROM audit_log").await;
    assert!([&first, &second, &third].iter().all(|secret| !kept.contains(&secret[6..])), "{kept}");
    s.admin().post("/api/v1/teams/999999:rotate-signing-secret", &json!({})).await.refused(404, "not_found", None);
    let path = format!("/api/v1/teams/{team}:rotate-signing-secret");
    s.admin().post(&path, &json!({"overlap_secs": -1})).await.refused(400, "invalid_field", Some("overlap_secs"));
    s.editor().post(&path, &json!({})).await.refused(403, "forbidden", None);
    s.end().await;
}

/// A receiver that knows its own secret cannot forge requests to another receiver of the team.
#[tokio::test]
async fn each_receiver_may_have_its_own_secret() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let (team, first, wf) = team_and_workflow(&s, &receiver).await;
    let path = format!("/api/v1/teams/{team}:receiver-secret");
    let of = async |origin: &str| s.admin().post(&path, &json!({ "origin": origin })).await;
    of(&receiver.url).await.refused(404, "not_found", None);
    let (second, view) = rotate(&s, team, json!({"by_receiver": true})).await;
    assert_eq!(view["by_receiver"], true);
    let own = of(&receiver.url).await.expect(200).json;
    assert_eq!(own["previous_signing_secret"], Value::Null, "the previous secret is the team's own");
    let own = own["signing_secret"].as_str().unwrap();
    let read =
        s.table("SELECT concat_ws(' ', subject, after) FROM audit_log WHERE verb = 'read-receiver-secret'").await;
    assert_eq!(read, format!(r#"team:{team} {{"origin": "{}"}}"#, receiver.url), "who reads a secret leaves an entry");
    let other = of("https://other.example").await.expect(200).json;
    run_of(&s, wf, "succeeded").await;
    let sent = receiver.received().remove(0);
    assert!(
        verifies(own, &sent, noon()).await && verifies(&first, &sent, noon()).await,
        "existing receivers go on working"
    );
    assert!(!verifies(&second, &sent, noon()).await, "the team's secret itself signs nothing");
    assert!(!verifies(other["signing_secret"].as_str().unwrap(), &sent, noon()).await);
    rotate(&s, team, json!({})).await;
    let after = of(&receiver.url).await.expect(200).json;
    assert_eq!(after["previous_signing_secret"], *own);
    of("https://a.example/path").await.refused(400, "invalid_field", Some("origin"));
    s.end().await;
}

/// A custom body does not have the scheduled time, so a header signs it: by the code of the docs.
#[tokio::test]
async fn the_context_is_signed_too() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let (_, secret, wf) = team_and_workflow(&s, &receiver).await;
    run_of(&s, wf, "succeeded").await;
    let sent = receiver.received().remove(0);
    let docs = include_str!("../../../docs/receivers.md");
    let code =
        docs.split("```python\n").nth(2).and_then(|rest| rest.split("```").next()).expect("a second piece of Python");
    let verify = async |headers: &serde_json::Map<String, Value>| {
        let program = format!(
            "{code}\nimport json, sys\nsecret, headers = json.loads(sys.argv[1])\nprint(verify_context(secret, headers))"
        );
        let arguments = json!([secret, headers]).to_string();
        let reply = Command::new("python3").args(["-c", &program, &arguments]).output().await.unwrap();
        assert!(reply.status.success(), "{}", String::from_utf8_lossy(&reply.stderr));
        String::from_utf8(reply.stdout).unwrap().trim() == "True"
    };
    let headers = sent.headers.iter().map(|(name, value)| (name.as_str().to_owned(), json!(value.to_str().unwrap())));
    let headers: serde_json::Map<String, Value> = headers.collect();
    assert!(verify(&headers).await);
    for changed in ["x-cronbox-workflow-id", "x-cronbox-trigger", "x-cronbox-attempt", "x-cronbox-scheduled-time"] {
        let mut headers = headers.clone();
        headers.insert(changed.to_owned(), json!("2026-03-02T09:00:00Z"));
        assert!(!verify(&headers).await, "{changed}");
    }
    s.end().await;
}
