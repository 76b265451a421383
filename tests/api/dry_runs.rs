//! `?dry_run=true`: every write says what it would change, is refused as the write would be, and changes nothing.

use reqwest::Method;
use serde_json::{Value, json};
use tests::{Answer, Api, Story, send_request};

/// All that a write may change, as one digest.
const EVERYTHING: &str = "SELECT md5(string_agg(md5(t::text), ',' ORDER BY md5(t::text)))::text AS digest FROM (
    SELECT w::text AS t FROM workflows w UNION ALL SELECT r::text FROM runs r UNION ALL SELECT o::text FROM outbox_events o
     UNION ALL SELECT t::text FROM teams t UNION ALL SELECT (k.prefix || COALESCE(k.revoked_on::text, ''))::text FROM api_keys k
     UNION ALL SELECT l::text FROM team_limits l UNION ALL SELECT s::text FROM team_secrets s
     UNION ALL SELECT v::text FROM schedule_versions v UNION ALL SELECT b::text FROM backfills b
     UNION ALL SELECT a::text FROM audit_log a UNION ALL SELECT p::text FROM publications p
     UNION ALL SELECT b::text FROM bulk_operations b UNION ALL SELECT i::text FROM idempotency_keys i) AS t";

async fn dry(api: &Api, method: Method, path: &str, body: &Value) -> Answer {
    let joint = if path.contains('?') { '&' } else { '?' };
    let request = api.request(method, &format!("{path}{joint}dry_run=true"));
    send_request(if body.is_null() { request } else { request.json(body) }).await
}

#[tokio::test]
async fn a_dry_run_says_what_would_change() {
    let s = Story::today().await;
    let id = s.create_with(json!({"cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    let path = format!("/api/v1/workflows/{id}");
    let before = s.editor().get(&path).await.expect(200).json;
    let edit = json!({"cron_schedule": "30 17 * * *"});
    let answer = dry(&s.editor(), Method::PATCH, &path, &edit).await.expect(200);
    assert_eq!(answer.headers["content-type"], "application/vnd.cronbox.dry-run+json");
    let change = &answer.json["changes"][0];
    assert_eq!((&change["verb"], &change["subject"]), (&json!("update"), &json!(format!("workflow:{id}"))));
    assert_eq!(change["before"]["cron_schedule"], "0 9 * * *");
    assert_eq!(change["after"]["cron_schedule"], "30 17 * * *");
    assert_eq!(change["after"]["name"], Value::Null, "only what differs");
    // What it says does not depend on a wait for EventBridge, and a write that changes nothing says so.
    let same =
        dry(&s.editor(), Method::PATCH, &format!("{path}?wait=25"), &json!({"cron_schedule": "0 9 * * *"})).await;
    assert_eq!(same.expect(200).json, json!({"changes": []}));
    assert_eq!(s.editor().get(&path).await.expect(200).json, before);
    let refused = dry(&s.editor(), Method::PATCH, &path, &json!({"cron_schedule": "61 * * * *"})).await;
    refused.refused(400, "invalid_field", Some("cron_schedule"));
    s.editor().patch(&format!("{path}?dry_run=yes"), &edit).await.refused(400, "invalid_field", Some("dry_run"));
    assert_eq!(s.editor().patch(&format!("{path}?dry_run=false"), &edit).await.expect(200).json["version"], 2);
    s.end().await;
}

/// A write of each kind, with an `Idempotency-Key` that a dry run does not use up.
#[tokio::test]
async fn no_dry_run_changes_anything() {
    let s = Story::with_app(|config| {
        config.executor_slots = 0;
        config.secrets.secrets_key = Some("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned());
    })
    .await;
    let id =
        s.create_with(json!({"cron_schedule": "0 9 * * *", "timezone": "UTC", "overlap_policy": "concurrent"})).await;
    let fired = s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({})).await.expect(202);
    let run = fired.json["run_id"].as_str().unwrap();
    let team = s.keys.team_id;
    let keys = s.admin().get("/api/v1/keys").await.expect(200).json;
    let key = keys["items"][0]["id"].as_str().unwrap();
    let new = json!({"name": "new", "action": {"type": "log", "message": "m"}});
    let (none, post) = (Value::Null, Method::POST);
    let writes = [
        (s.editor(), post.clone(), "/api/v1/workflows".to_owned(), new.clone()),
        (
            s.editor(),
            Method::PUT,
            format!("/api/v1/schedules/{id}"),
            json!({"cron_schedule": "1 1 * * *", "timezone": "UTC"}),
        ),
        (s.editor(), Method::PATCH, format!("/api/v1/schedules/{id}"), json!({"cron_schedule": "1 1 * * *"})),
        (s.editor(), Method::DELETE, format!("/api/v1/schedules/{id}"), none.clone()),
        (s.editor(), post.clone(), format!("/api/v1/workflows/{id}:pause"), json!({"reason": "r"})),
        (s.editor(), post.clone(), format!("/api/v1/workflows/{id}:archive"), none.clone()),
        (s.editor(), post.clone(), format!("/api/v1/runs/{run}:cancel"), none.clone()),
        (s.editor(), post.clone(), format!("/api/v1/schedules/{id}:fire"), none.clone()),
        (s.editor(), post.clone(), "/api/v1/bulk".to_owned(), json!({"verb": "archive"})),
        (s.admin(), Method::DELETE, format!("/api/v1/workflows/{id}"), none.clone()),
        (s.admin(), post.clone(), "/api/v1/teams".to_owned(), json!({"name": "new"})),
        (s.admin(), post.clone(), "/api/v1/keys".to_owned(), json!({"name": "k", "kind": "admin"})),
        (s.admin(), post.clone(), format!("/api/v1/keys/{key}:revoke"), none.clone()),
        (s.admin(), Method::PUT, format!("/api/v1/teams/{team}/limits"), json!({"workflows": 5})),
        (s.admin(), Method::PUT, format!("/api/v1/teams/{team}/secrets/token"), json!({"value": "hunter2"})),
        (s.admin(), Method::PUT, format!("/api/v1/teams/{team}/hosts"), json!({"allowed_hosts": ["a.example"]})),
        (s.admin(), post.clone(), format!("/api/v1/teams/{team}:rotate-signing-secret"), none.clone()),
    ];
    let before = s.table(EVERYTHING).await;
    for (api, method, path, body) in writes {
        let request = api.request(method, &format!("{path}?dry_run=true")).header("Idempotency-Key", "once");
        let answer = send_request(if body.is_null() { request } else { request.json(&body) }).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(!answer.json["changes"].as_array().unwrap().is_empty(), "{path}: {}", answer.text);
        assert!(!answer.text.contains("hunter2") && !answer.text.contains("cbt_"), "{path}: {}", answer.text);
        assert_eq!(s.table(EVERYTHING).await, before, "{path}");
    }
    let request = s.editor().request(post, "/api/v1/workflows").header("Idempotency-Key", "once").json(&new);
    let created = send_request(request).await.expect(201);
    assert_eq!(created.json["name"], "new", "no dry run has used the key");
    s.end_early().await;
}

/// A client that misspells the parameter must not write: every write refuses what it does not know.
#[tokio::test]
async fn every_write_refuses_unknown_parameters() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let before = s.table(EVERYTHING).await;
    let mut writes = 0;
    for route in app::api::routes::ROUTES.iter().filter(|route| route.load == app::api::request::limits::Load::Edit) {
        let path = route.path.replace("{id}", "1").replace("{name}", "token").replace("{revision}", "1");
        let method: Method = route.method.to_uppercase().parse().unwrap();
        let answer = send_request(s.admin().request(method, &format!("{path}?dryrun=true"))).await;
        assert_eq!((answer.status, &answer.json["field"]), (400, &json!("dryrun")), "{path}: {}", answer.text);
        writes += 1;
    }
    assert!(writes > 30, "{writes}");
    assert_eq!(s.table(EVERYTHING).await, before);
    s.end_early().await;
}
