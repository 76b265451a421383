//! Named secrets of a team: who sets them, where they are sent, and what a new value changes.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;

use super::encryption::{KEY, encrypting, run_of};
use crate::receiver::{Receiver, accept, until_state};
use crate::steps::session_without_limits;

const CANARY: &str = "canary-8a1";

async fn put(s: &Story, name: &str, body: Value) -> tests::Answer {
    let request = s.admin().request(reqwest::Method::PUT, &path(s, name));
    tests::send_request(request.json(&body)).await
}

fn path(s: &Story, name: &str) -> String {
    format!("/api/v1/teams/{}/secrets/{name}", s.keys.team_id)
}

fn referring(receiver: &Receiver) -> Value {
    let mut action = receiver.action();
    action["headers"] = json!({"authorization": "Bearer ${secret:token}"});
    action["body"] = json!({"nested": ["<${secret:pin}>"], "number": 1});
    action
}

#[tokio::test]
async fn actions_send_the_newest_value() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let made = put(&s, "token", json!({ "value": CANARY })).await.expect(201).json;
    assert_eq!((&made["name"], &made["version"]), (&json!("token"), &json!(1)));
    put(&s, "pin", json!({"value": "\"1\"\n"})).await.expect(201);
    let workflow = json!({"name": "w", "action": referring(&receiver)});
    let id = WorkflowId(s.editor().post("/api/v1/workflows", &workflow).await.expect(201).id());
    run_of(&s, id, "succeeded").await;
    assert_eq!(put(&s, "token", json!({"value": "second"})).await.expect(200).json["version"], 2);
    run_of(&s, id, "succeeded").await;
    let headers: Vec<_> = receiver.received().iter().map(|request| request.headers["authorization"].clone()).collect();
    assert_eq!(headers, [format!("Bearer {CANARY}"), "Bearer second".to_owned()]);
    assert_eq!(receiver.calls()[0], json!({"nested": ["<\"1\"\n>"], "number": 1}), "the JSON stays valid");
    let listed = s.editor().get(&format!("/api/v1/teams/{}/secrets", s.keys.team_id)).await.expect(200);
    assert_eq!(listed.json["items"].as_array().unwrap().len(), 2);
    let stored = s.table("SELECT team_secrets::text FROM team_secrets").await;
    let audit = s.table("SELECT audit_log::text FROM audit_log").await;
    assert!(audit.contains("secret:token of team:"), "{audit}");
    for seen in [&listed.text, &stored, &audit, &s.editor().get(&format!("/api/v1/workflows/{id}")).await.text] {
        assert!(!seen.contains(CANARY) && !seen.contains("second"), "{seen}");
    }
    s.end().await;
}

/// The database does not answer for longer than the timeout of the workflow. Its action has not begun, so it is not late.
#[tokio::test]
async fn waiting_for_secrets_is_no_timeout() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    put(&s, "token", json!({ "value": CANARY })).await.expect(201);
    put(&s, "pin", json!({"value": "1"})).await.expect(201);
    let workflow = json!({"name": "w", "action": referring(&receiver), "timeout_secs": 1, "max_attempts": 1});
    let id = WorkflowId(s.editor().post("/api/v1/workflows", &workflow).await.expect(201).id());
    let mut holder = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE team_secrets").execute(&mut holder).await.unwrap();
    let run = accept(&s, id).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%find secrets of a team%'
                      AND clock_timestamp() - query_start > INTERVAL '2 seconds'";
    s.until(waiting, 1).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    until_state(&s, run, "succeeded").await;
    s.end().await;
}

#[tokio::test]
async fn missing_secrets_are_refused_and_fail() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let workflow = json!({"name": "w", "action": referring(&receiver)});
    s.editor().post("/api/v1/workflows", &workflow).await.refused(400, "invalid_field", Some("action.body"));
    put(&s, "pin", json!({"value": "1"})).await.expect(201);
    s.editor().post("/api/v1/workflows", &workflow).await.refused(
        400,
        "invalid_field",
        Some("action.headers.authorization"),
    );
    put(&s, "token", json!({"value": "2"})).await.expect(201);
    let id = s.editor().post("/api/v1/workflows", &workflow).await.expect(201).id();
    s.admin().delete(&path(&s, "token")).await.expect(204);
    s.admin().delete(&path(&s, "token")).await.refused(404, "not_found", None);
    let failed = run_of(&s, WorkflowId(id), "failed").await;
    assert!(failed["error"].as_str().unwrap().starts_with("the secret `token` does not exist"), "{failed}");
    assert!(receiver.received().is_empty());
    let mut action = receiver.action();
    action["url"] = json!(format!("{}/${{secret:token}}", receiver.url));
    let in_url = json!({"name": "u", "action": action});
    s.editor().post("/api/v1/workflows", &in_url).await.refused(400, "invalid_field", Some("action.url"));
    s.end().await;
}

/// Otherwise an editor, who cannot read a secret, could send it to a server of their own.
#[tokio::test]
async fn bound_secrets_go_only_to_their_origins() {
    let s = encrypting().await;
    let (receiver, other) = (Receiver::kind().await, Receiver::kind().await);
    let bound = json!({"value": CANARY, "allowed_origins": [receiver.url]});
    put(&s, "token", bound).await.expect(201);
    put(&s, "pin", json!({"value": "1"})).await.expect(201);
    let elsewhere = json!({"name": "e", "action": referring(&other)});
    s.editor().post("/api/v1/workflows", &elsewhere).await.refused(
        400,
        "invalid_field",
        Some("action.headers.authorization"),
    );
    let id = s
        .editor()
        .post("/api/v1/workflows", &json!({"name": "w", "action": referring(&receiver)}))
        .await
        .expect(201)
        .id();
    // A rotation keeps the origins.
    put(&s, "token", json!({"value": "second"})).await.expect(200);
    run_of(&s, WorkflowId(id), "succeeded").await;
    put(&s, "token", json!({"value": "third", "allowed_origins": ["https://a.example"]})).await.expect(200);
    let failed = run_of(&s, WorkflowId(id), "failed").await;
    assert!(failed["error"].as_str().unwrap().contains("may not be sent to"), "{failed}");
    for wrong in ["https://a.example/path", "ftp://a.example", "a.example"] {
        let body = json!({"value": "v", "allowed_origins": [wrong]});
        put(&s, "token", body).await.refused(400, "invalid_field", Some("allowed_origins.0"));
    }
    assert_eq!((receiver.received().len(), other.received().len()), (1, 0));
    s.end().await;
}

#[tokio::test]
async fn only_an_admin_sets_secrets() {
    let s = encrypting().await;
    let request = s.editor().request(reqwest::Method::PUT, &path(&s, "token"));
    tests::send_request(request.json(&json!({"value": "v"}))).await.refused(403, "forbidden", None);
    s.editor().get("/api/v1/teams/999999/secrets").await.refused(404, "not_found", None);
    put(&s, "no%20name", json!({"value": "v"})).await.refused(400, "invalid_field", Some("name"));
    s.end().await;
    let without = Story::today().await;
    put(&without, "token", json!({"value": "v"})).await.refused(409, "no_secrets_key", None);
    without.end().await;
}

/// The app's login of the database may change the column, but it must not read the value by that.
#[tokio::test]
async fn changed_origins_in_the_database_send_nothing() {
    let s = encrypting().await;
    let (receiver, other) = (Receiver::kind().await, Receiver::kind().await);
    put(&s, "pin", json!({"value": "1"})).await.expect(201);
    let bound = json!({"value": CANARY, "allowed_origins": ["https://b.example", receiver.url, "https://a.example"]});
    put(&s, "token", bound).await.expect(201);
    let create = async |name: &str, action: Value| {
        let workflow = json!({"name": name, "action": action});
        WorkflowId(s.editor().post("/api/v1/workflows", &workflow).await.expect(201).id())
    };
    run_of(&s, create("w", referring(&receiver)).await, "succeeded").await;
    s.execute("UPDATE team_secrets SET allowed_origins = NULL WHERE name = 'token'").await;
    let failed = run_of(&s, create("e", referring(&other)).await, "failed").await;
    assert!(failed["error"].as_str().unwrap().contains("cannot be decrypted"), "{failed}");
    assert_eq!((receiver.received().len(), other.received().len()), (1, 0));
    s.end().await;
}

/// A PUT without origins keeps those that a PUT at the same moment sets.
#[tokio::test]
async fn concurrent_puts_keep_the_origins() {
    let s = encrypting().await;
    put(&s, "token", json!({"value": "1"})).await.expect(201);
    // Another PUT: it has locked the team, and it sets the origins.
    let mut holder = db::begin_transaction(&s.pool).await.unwrap();
    for statement in [
        "SELECT 1 FROM teams FOR NO KEY UPDATE",
        "UPDATE team_secrets SET allowed_origins = ARRAY['https://a.example'] WHERE name = 'token'",
    ] {
        sqlx::query(statement).execute(&mut *holder).await.unwrap();
    }
    let release = async {
        s.until(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
            1,
        )
        .await;
        holder.commit().await.unwrap();
    };
    let (kept, ()) = tokio::join!(put(&s, "token", json!({"value": "2"})), release);
    assert_eq!(kept.expect(200).json["allowed_origins"], json!(["https://a.example"]));
    s.end().await;
}

/// Each instance of a stack has the key of its own configuration.
#[tokio::test]
async fn further_instances_write_secrets() {
    let mut s = encrypting().await;
    let url = s.another_app_with(|config| config.secrets.secrets_key = Some(KEY.to_owned())).await.unwrap();
    let request = tests::Api::new(&url, &s.keys.admin).request(reqwest::Method::PUT, &path(&s, "token"));
    tests::send_request(request.json(&json!({"value": "1"}))).await.expect(201);
    s.end().await;
}
