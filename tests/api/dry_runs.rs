//! `?dry_run=true`: every write says what it would change, is refused as the write would be, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use reqwest::Method;
use schedule::{Clock, WorkflowId};
use serde_json::{Value, json};
use tests::{Answer, Api, Story, send_request};

/// Where a channel of AWS leads.
const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:alerts";

/// All that a write may change, as one digest.
const EVERYTHING: &str = "SELECT md5(string_agg(md5(t::text), ',' ORDER BY md5(t::text)))::text AS digest FROM (
    SELECT w::text AS t FROM workflows w UNION ALL SELECT r::text FROM runs r UNION ALL SELECT o::text FROM outbox_events o
     UNION ALL SELECT t::text FROM teams t UNION ALL SELECT (k.prefix || COALESCE(k.revoked_on::text, ''))::text FROM api_keys k
     UNION ALL SELECT l::text FROM team_limits l UNION ALL SELECT s::text FROM team_secrets s
     UNION ALL SELECT v::text FROM schedule_versions v UNION ALL SELECT b::text FROM backfills b
     UNION ALL SELECT a::text FROM audit_log a UNION ALL SELECT p::text FROM publications p
     UNION ALL SELECT b::text FROM bulk_operations b UNION ALL SELECT i::text FROM idempotency_keys i
     UNION ALL SELECT c::text FROM notification_channels c UNION ALL SELECT r::text FROM notification_rules r
     UNION ALL SELECT c::text FROM notification_rule_channels c UNION ALL SELECT n::text FROM notifications n
     UNION ALL SELECT m::text FROM notification_messages m UNION ALL SELECT l::text FROM dead_letters l
     UNION ALL SELECT c::text FROM console_sessions c UNION ALL SELECT l::text FROM sign_in_links l
     UNION ALL SELECT f::text FROM freezes f UNION ALL SELECT s::text FROM sweeps s) AS t";

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

/// Objects on which every write would change something, by the path of the write.
struct Ground {
    s: Story,
    workflow: WorkflowId,
    ids: BTreeMap<&'static str, String>,
}

/// A notification, and a message that was not delivered.
const NOTIFIED: &str = "
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on) SELECT id, team_id, event, 'x', now() FROM notification_rules;
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, created_on)
    SELECT '0195573e-0000-7000-8000-000000000000', min(id), min(team_id), 'run_failed', 1, 'failed', now() FROM notification_channels;
    INSERT INTO dead_letters (queue, message_id, kind, team_id, workflow_id, scheduled_time, error, attributes, body, body_bytes, first_seen, last_seen)
    SELECT 'runner', 'm', 'fire', min(team_id), min(id), now(), '', '{}', '', 0, now(), now() FROM workflows;
    INSERT INTO console_sessions (id, digest, key_id, created_on, expires_on)
    SELECT '0195573e-0000-7000-8000-000000000001', '', min(id::text)::uuid, cronbox_now(), cronbox_now() + interval '1 hour' FROM api_keys;";

async fn ground() -> Ground {
    let s = Story::with_app(|config| {
        config.executor_slots = 0;
        config.secrets.secrets_key = Some("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned());
    })
    .await;
    let fields = json!({"cron_schedule": "0 9 * * *", "timezone": "UTC", "overlap_policy": "concurrent"});
    let workflow = s.create_with(fields).await;
    let (editor, admin) = (s.editor(), s.admin());
    let create = |api: Api, path: String, body: Value| async move {
        let answer = api.post(&path, &body).await;
        assert!(matches!(answer.status, 200..=202), "{path}: {}", answer.text);
        let id = answer.json.get("run_id").or_else(|| answer.json.get("id")).unwrap().clone();
        id.as_str().map_or_else(|| id.to_string(), str::to_owned)
    };
    let schedule = format!("/api/v1/schedules/{workflow}");
    let (live, ended) = (
        create(editor.clone(), format!("{schedule}:fire"), json!({})).await,
        create(editor.clone(), format!("{schedule}:fire"), json!({})).await,
    );
    editor.post_empty(&format!("/api/v1/runs/{ended}:cancel")).await.expect(200);
    let span = past_days(8, 6);
    let third = s.create_with(json!({"name": "third", "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    let running = create(editor.clone(), format!("/api/v1/schedules/{third}:backfill"), span).await;
    let span = past_days(6, 4);
    let other = s.create_with(json!({"name": "other", "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    let paused = create(editor.clone(), format!("/api/v1/schedules/{other}:backfill"), span).await;
    editor.post_empty(&format!("/api/v1/backfills/{paused}:pause")).await.expect(200);
    s.pause(other).await;
    let empty = create(admin.clone(), "/api/v1/teams".to_owned(), json!({"name": "empty"})).await;
    let secret = format!("/api/v1/teams/{}/secrets/token", s.keys.team_id);
    send_request(admin.request(Method::PUT, &secret).json(&json!({"value": "hunter2"}))).await.expect(201);
    let rotate = format!("/api/v1/teams/{}:rotate-signing-secret", s.keys.team_id);
    admin.post(&rotate, &json!({"by_receiver": true})).await.expect(200);
    let bulk = create(editor.clone(), "/api/v1/bulk".to_owned(), json!({"verb": "archive"})).await;
    let freeze = json!({"reason": "r", "from": "2030-01-01T00:00:00Z"});
    let freeze = create(editor.clone(), "/api/v1/freezes".to_owned(), freeze).await;
    let channels = "/api/v1/notification-channels";
    let channel =
        create(editor.clone(), channels.to_owned(), json!({"name": "used", "kind": "aws", "target_arn": TOPIC})).await;
    let free =
        create(editor.clone(), channels.to_owned(), json!({"name": "free", "kind": "aws", "target_arn": TOPIC})).await;
    let rule = json!({"event": "run_failed", "channel_ids": [channel.parse::<i64>().unwrap()]});
    let rule = create(editor.clone(), "/api/v1/notification-rules".to_owned(), rule).await;
    s.execute(NOTIFIED).await;
    let notification = editor.get("/api/v1/notifications").await.expect(200).json["items"][0]["id"].to_string();
    s.execute("UPDATE outbox_events SET failed_on = cronbox_now(), error_message = 'no'").await;
    s.execute("UPDATE publications SET error_class = 'permanent', last_error = 'no', due_at = NULL").await;
    s.execute("UPDATE api_keys SET created_on = created_on - interval '1 day'").await;
    let row = admin.get("/api/v1/outbox").await.expect(200).json["items"][0]["id"].to_string();
    let letter = admin.get("/api/v1/dead-letters").await.expect(200).json["items"][0]["id"].to_string();
    let key = admin.get("/api/v1/keys").await.expect(200).json["items"][0]["id"].as_str().unwrap().to_owned();
    let ids = BTreeMap::from([
        ("workflow", workflow.to_string()),
        ("paused workflow", other.to_string()),
        ("team", s.keys.team_id.to_string()),
        ("empty team", empty),
        ("live run", live),
        ("ended run", ended),
        ("running backfill", running),
        ("paused backfill", paused),
        ("bulk", bulk),
        ("freeze", freeze),
        ("channel", channel),
        ("free channel", free),
        ("rule", rule),
        ("notification", notification),
        ("message", "0195573e-0000-7000-8000-000000000000".to_owned()),
        ("row", row),
        ("dead letter", letter),
        ("session", "0195573e-0000-7000-8000-000000000001".to_owned()),
        ("key", key),
    ]);
    Ground { s, workflow, ids }
}

/// The request for a backfill of some days.
fn past_days(from: i64, until: i64) -> Value {
    let midnight = |days| (Clock::System.now() - TimeDelta::days(days)).format("%Y-%m-%dT00:00:00Z").to_string();
    json!({"start": midnight(from), "end": midnight(until), "timing": "now"})
}

/// Every write: its method, its path with the name of the object in the place of the id, and a body.
fn writes() -> Vec<(&'static str, &'static str, Value)> {
    let (none, spec) = (Value::Null, json!({"cron_schedule": "1 1 * * *", "timezone": "UTC"}));
    let span = past_days(4, 3);
    vec![
        ("POST", "/api/v1/teams", json!({"name": "new"})),
        ("PATCH", "/api/v1/teams/{team}", json!({"name": "renamed"})),
        ("DELETE", "/api/v1/teams/{empty team}", none.clone()),
        ("PUT", "/api/v1/teams/{team}/limits", json!({"workflows": 5})),
        ("PUT", "/api/v1/teams/{team}/hosts", json!({"allowed_hosts": ["a.example"]})),
        ("PUT", "/api/v1/teams/{team}/secrets/{name}", json!({"value": "hunter2"})),
        ("DELETE", "/api/v1/teams/{team}/secrets/{name}", none.clone()),
        ("POST", "/api/v1/teams/{team}:rotate-signing-secret", none.clone()),
        ("POST", "/api/v1/teams/{team}:receiver-secret", json!({"origin": "https://a.example"})),
        ("POST", "/api/v1/keys", json!({"name": "k", "kind": "admin"})),
        ("POST", "/api/v1/keys/self:rotate", json!({"overlap_secs": 60})),
        ("POST", "/api/v1/sign-in-links", json!({})),
        ("POST", "/api/v1/sessions/{session}:end", json!({})),
        ("POST", "/api/v1/keys/{key}:revoke", none.clone()),
        ("POST", "/api/v1/workflows", json!({"name": "new", "action": {"type": "log", "message": "m"}})),
        ("PATCH", "/api/v1/workflows/{workflow}", json!({"description": "new"})),
        ("DELETE", "/api/v1/workflows/{workflow}", none.clone()),
        ("POST", "/api/v1/workflows/{workflow}/versions/{revision}:restore", none.clone()),
        ("POST", "/api/v1/workflows/{workflow}:archive", none.clone()),
        ("POST", "/api/v1/workflows/{workflow}:pause", json!({"reason": "r"})),
        ("POST", "/api/v1/workflows/{paused workflow}:resume", none.clone()),
        ("PUT", "/api/v1/schedules/{workflow}", spec.clone()),
        ("PATCH", "/api/v1/schedules/{workflow}", spec),
        ("DELETE", "/api/v1/schedules/{workflow}", none.clone()),
        ("POST", "/api/v1/schedules/{workflow}:fire", none.clone()),
        ("POST", "/api/v1/schedules/{workflow}:backfill", span),
        ("POST", "/api/v1/runs/{live run}:cancel", none.clone()),
        ("POST", "/api/v1/runs/{ended run}:retry", none.clone()),
        ("POST", "/api/v1/backfills/{running backfill}:pause", none.clone()),
        ("POST", "/api/v1/backfills/{paused backfill}:resume", none.clone()),
        ("POST", "/api/v1/backfills/{running backfill}:cancel", none.clone()),
        ("POST", "/api/v1/bulk", json!({"verb": "archive"})),
        ("POST", "/api/v1/bulk/{bulk}:cancel", none.clone()),
        ("POST", "/api/v1/freezes", json!({"reason": "r"})),
        ("POST", "/api/v1/freezes/{freeze}:lift", none.clone()),
        (
            "POST",
            "/api/v1/notification-channels",
            json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "default_rules": true}),
        ),
        (
            "PUT",
            "/api/v1/notification-channels/{channel}",
            json!({"name": "renamed", "kind": "aws", "target_arn": TOPIC}),
        ),
        ("DELETE", "/api/v1/notification-channels/{free channel}", none.clone()),
        ("POST", "/api/v1/notification-channels/{channel}:test", none.clone()),
        ("POST", "/api/v1/notification-rules", json!({"event": "missed", "channel_ids": ["{channel}"]})),
        ("PUT", "/api/v1/notification-rules/{rule}", json!({"event": "missed", "channel_ids": ["{channel}"]})),
        ("DELETE", "/api/v1/notification-rules/{rule}", none.clone()),
        ("POST", "/api/v1/notification-rules/{rule}:snooze", json!({"until": "2099-01-01T00:00:00Z"})),
        ("POST", "/api/v1/notifications/{notification}:acknowledge", none.clone()),
        ("POST", "/api/v1/notification-messages/{message}:retry", none.clone()),
        ("POST", "/api/v1/drift:check", none.clone()),
        ("POST", "/api/v1/outbox/{row}:retry", none.clone()),
        ("POST", "/api/v1/outbox/{row}:discard", none.clone()),
        ("POST", "/api/v1/dead-letters/{dead letter}:redrive", none.clone()),
        ("POST", "/api/v1/dead-letters/{dead letter}:discard", none),
    ]
}

/// Every write of the table of routes, with an `Idempotency-Key` that a dry run does not use up.
#[tokio::test]
async fn no_dry_run_changes_anything() {
    let Ground { s, workflow, ids } = ground().await;
    s.editor()
        .patch(&format!("/api/v1/schedules/{workflow}"), &json!({"cron_schedule": "5 9 * * *"}))
        .await
        .expect(200);
    let mut tried = BTreeSet::new();
    let before = s.table(EVERYTHING).await;
    for (method, template, body) in writes() {
        let (mut path, mut route) = (template.to_owned(), template.to_owned());
        for (name, id) in &ids {
            path = path.replace(&format!("{{{name}}}"), id);
            route = route.replace(&format!("{{{name}}}"), "{id}");
        }
        let path = path.replace("{name}", "token").replace("{revision}", "1");
        tried.insert((method.to_lowercase(), route));
        let request = s.admin().request(method.parse().unwrap(), &format!("{path}?dry_run=true"));
        let mut body = with_team(template, body, s.keys.team_id);
        if body["channel_ids"].is_array() {
            body["channel_ids"] = json!([ids["channel"].parse::<i64>().unwrap()]);
        }
        let request = request.header("Idempotency-Key", "once");
        let answer = send_request(if body.is_null() { request } else { request.json(&body) }).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text);
        assert!(answer.json["changes"] != json!([]), "{method} {path}: {}", answer.text);
        assert!(!answer.text.contains("hunter2") && !answer.text.contains("cbt_"), "{path}: {}", answer.text);
        assert_eq!(s.table(EVERYTHING).await, before, "{method} {path}");
    }
    let edits = app::api::routes::ROUTES.iter().filter(|route| route.load == app::api::request::limits::Load::Edit);
    let all: BTreeSet<_> = edits.map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(tried, all, "a write is not tried");

    let new = json!({"name": "new", "team_id": s.keys.team_id, "action": {"type": "log", "message": "m"}});
    let request = s.admin().request(Method::POST, "/api/v1/workflows").header("Idempotency-Key", "once").json(&new);
    let created = send_request(request).await.expect(201);
    assert_eq!(created.json["name"], "new", "no dry run has used the key");
    s.end_early().await;
}

/// An admin names the team of what it creates.
fn with_team(template: &str, mut body: Value, team: i64) -> Value {
    let created = ["workflows", "bulk", "freezes", "notification-channels", "notification-rules"];
    if template.strip_prefix("/api/v1/").is_some_and(|path| created.contains(&path)) {
        body["team_id"] = json!(team);
    }
    body
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
