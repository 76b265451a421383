//! The schedule as a resource: at most one for each workflow, and each write is an edit of the workflow.

use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Answer, Story};

async fn put(s: &Story, id: WorkflowId, body: &Value) -> Answer {
    tests::send_request(s.editor().request(Method::PUT, &path(id)).json(body)).await
}

fn path(id: WorkflowId) -> String {
    format!("/api/v1/schedules/{id}")
}

/// A workflow without a cron.
async fn unscheduled(s: &Story) -> WorkflowId {
    s.create_with(json!({"starting_inputs": {"a": 1}, "timeout_secs": 60})).await
}

/// What a GET gives, a PUT accepts; a misspelt field it does not.
#[tokio::test]
async fn put_accepts_what_get_gives() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let id = s.create("0 9 * * *", "Europe/Paris").await;
    s.publish().await;
    let mut read = s.editor().get(&path(id)).await.expect(200).json;
    let same = put(&s, id, &read).await.expect(200).json;
    assert_eq!((&same["cron_schedule"], &same["timezone"]), (&read["cron_schedule"], &read["timezone"]));
    read["cron_schedule"] = json!("0 10 * * *");
    (read["name"], read["version"], read["state"]) = (json!("other"), json!(99), json!("paused"));
    let changed = put(&s, id, &read).await.expect(200).json;
    assert_eq!((&changed["cron_schedule"], &changed["state"]), (&json!("0 10 * * *"), &json!("active")));
    assert_ne!(changed["name"], "other");
    read["cronschedule"] = json!("0 11 * * *");
    put(&s, id, &read).await.refused(400, "unknown_field", Some("cronschedule"));
    for method in [Method::PUT, Method::PATCH] {
        let twice = s.editor().request(method, &path(id)).header("content-type", "application/json");
        let twice =
            tests::send_request(twice.body(r#"{"cron_schedule": "0 1 * * *", "cron_schedule": "0 2 * * *"}"#)).await;
        twice.refused(400, "duplicate_field", Some("cron_schedule"));
    }
    s.end().await;
}

#[tokio::test]
async fn put_creates_the_missing_schedule() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let id = unscheduled(&s).await;
    s.editor().get(&path(id)).await.refused(404, "no_schedule", None);
    s.editor().patch(&path(id), &json!({"timezone": "UTC"})).await.refused(404, "no_schedule", None);
    s.editor().delete(&path(id)).await.refused(404, "no_schedule", None);
    s.editor().get(&format!("{}/next", path(id))).await.refused(404, "no_schedule", None);
    put(&s, id, &json!({"timezone": "UTC"})).await.refused(400, "missing_field", Some("cron_schedule"));
    let made = put(&s, id, &json!({"cron_schedule": "0 9 * * MON-FRI", "timezone": "Europe/Paris"})).await.expect(201);
    assert_eq!(made.headers["etag"], "\"2\"");
    assert_eq!(made.json["cron_schedule"], "0 9 * * 1-5");
    assert_eq!(made.json["next_fire_at"], "2026-03-03T08:00:00Z");
    assert_eq!((&made.json["revision"], &made.json["sync"]["status"]), (&json!(1), &json!("pending")));
    assert_eq!(s.editor().get(&path(id)).await.expect(200).json, made.json);
    s.publish().await;
    assert_eq!(s.schedule(id), "cron(0 9 ? * MON-FRI *) Europe/Paris ENABLED");
    s.end().await;
}

#[tokio::test]
async fn put_replaces_only_the_schedule() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let id = unscheduled(&s).await;
    let full = json!({"cron_schedule": "0 9 * * *", "timezone": "Asia/Tokyo", "starts_at": "2026-04-01T00:00:00Z",
        "ends_at": "2027-04-01T00:00:00Z", "overlap_policy": "queue", "max_concurrent": 3, "catch_up_policy": "run_all",
        "catch_up_window_secs": 600, "spread_secs": 30, "pause_after_failures": 2});
    let made = put(&s, id, &full).await.expect(201).json;
    for (field, value) in full.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    let plain = put(&s, id, &json!({"cron_schedule": "0 9 * * *"})).await.expect(200).json;
    let defaults = json!({"timezone": null, "starts_at": null, "ends_at": null, "overlap_policy": "skip",
        "max_concurrent": 10, "catch_up_policy": "skip", "catch_up_window_secs": 86400, "spread_secs": 0,
        "pause_after_failures": null});
    for (field, value) in defaults.as_object().unwrap() {
        assert_eq!(&plain[field], value, "{field}");
    }
    let workflow = s.workflow(id).await;
    assert_eq!((&workflow["starting_inputs"], &workflow["timeout_secs"]), (&json!({"a": 1}), &json!(60)));
    assert_eq!(put(&s, id, &json!({"cron_schedule": "0 9 * * *"})).await.expect(200).json["version"], plain["version"]);
    s.end().await;
}

#[tokio::test]
async fn patch_accepts_only_schedule_fields() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "Europe/Paris").await;
    let read = s.editor().patch(&path(id), &json!({"cron_schedule": null, "spread_secs": 60})).await.expect(200).json;
    assert_eq!((&read["cron_schedule"], &read["spread_secs"]), (&json!("0 9 * * *"), &json!(60)));
    let read =
        s.editor().merge_patch(&path(id), &json!({"timezone": null, "spread_secs": null})).await.expect(200).json;
    assert_eq!((&read["timezone"], &read["spread_secs"]), (&Value::Null, &json!(0)));
    s.editor().merge_patch(&path(id), &json!({"cron_schedule": null})).await.refused(
        400,
        "missing_field",
        Some("cron_schedule"),
    );
    s.editor().patch(&path(id), &json!({"name": "x"})).await.refused(400, "unknown_field", Some("name"));
    s.editor().patch(&path(id), &json!({"state": "paused"})).await.refused(400, "unknown_field", Some("state"));
    s.editor().patch(&path(id), &json!({"cron_schedule": "75 9 * * *"})).await.refused(
        400,
        "invalid_field",
        Some("cron_schedule"),
    );
    s.end().await;
}

#[tokio::test]
async fn schedule_and_workflow_share_an_etag() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let conditional = |method, tag: &'static str| s.editor().request(method, &path(id)).header("if-match", tag);
    let cron = json!({"cron_schedule": "0 10 * * *"});
    tests::send_request(conditional(Method::PUT, "\"7\"").json(&cron)).await.refused(412, "version_mismatch", None);
    tests::send_request(conditional(Method::DELETE, "\"7\"")).await.refused(412, "version_mismatch", None);
    let put = tests::send_request(conditional(Method::PUT, "\"1\"").json(&cron)).await.expect(200);
    assert_eq!(put.headers["etag"], "\"2\"");
    assert_eq!(s.workflow(id).await["version"], 2);
    tests::send_request(conditional(Method::DELETE, "\"2\"")).await.expect(204);
    s.end().await;
}

#[tokio::test]
async fn deleting_schedules_keeps_workflows_and_runs() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    s.editor().delete(&path(id)).await.expect(204);
    s.publish().await;
    assert_eq!(s.schedule(id), "none");
    let workflow = s.workflow(id).await;
    assert_eq!((&workflow["cron_schedule"], &workflow["state"]), (&Value::Null, &json!("active")));
    assert_eq!(s.runs(id).await, "2026-03-02T09:00Z schedule succeeded");
    s.end().await;
}

#[tokio::test]
async fn a_write_waits_until_eventbridge_follows() {
    let s = Story::with_daemon().await;
    let id = unscheduled(&s).await;
    let request = s.editor().request(Method::PUT, &format!("{}?wait=20", path(id)));
    let made = tests::send_request(request.json(&json!({"cron_schedule": "0 9 * * *"}))).await.expect(201).json;
    assert_eq!(made["sync"]["status"], "synced");
    s.editor().delete(&format!("{}?wait=20", path(id))).await.expect(204);
    assert_eq!(s.schedule(id), "none");
    s.end().await;
}

#[tokio::test]
async fn schedules_of_archived_workflows_are_read_only() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.archive(id).await;
    assert_eq!(s.editor().get(&path(id)).await.expect(200).json["state"], "archived");
    put(&s, id, &json!({"cron_schedule": "0 9 * * *"})).await.refused(409, "archived", None);
    s.editor().patch(&path(id), &json!({})).await.refused(409, "archived", None);
    s.editor().delete(&path(id)).await.refused(409, "archived", None);
    s.end().await;
}

#[tokio::test]
async fn lists_contain_only_schedules() {
    let s = Story::today().await;
    let first = s.create("0 9 * * *", "UTC").await;
    unscheduled(&s).await;
    let second = s.create("0 10 * * *", "UTC").await;
    s.pause(second).await;
    let ids = |answer: Answer| -> Vec<i64> {
        let items = answer.json["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["workflow_id"].as_i64().unwrap()).collect()
    };
    let all = s.editor().get("/api/v1/schedules").await.expect(200);
    assert_eq!(ids(all), [first.0, second.0]);
    let page = s.editor().get("/api/v1/schedules?limit=1").await.expect(200);
    let next = format!("/api/v1/schedules?limit=1&cursor={}", page.json["next_cursor"].as_str().unwrap());
    assert_eq!((ids(page), ids(s.editor().get(&next).await.expect(200))), (vec![first.0], vec![second.0]));
    assert_eq!(ids(s.editor().get("/api/v1/schedules?state=paused").await.expect(200)), [second.0]);
    assert_eq!(ids(s.admin().get("/api/v1/schedules?team_id=999").await.expect(200)), Vec::<i64>::new());
    s.editor().get("/api/v1/schedules?color=red").await.refused(400, "unknown_field", Some("color"));
    s.end().await;
}

#[tokio::test]
async fn a_pause_may_say_when_it_ends() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    let pause = format!("/api/v1/workflows/{id}:pause");
    s.editor().post(&pause, &json!({"until": "2026-03-02T08:00:00Z"})).await.refused(
        400,
        "invalid_field",
        Some("until"),
    );
    let body = json!({"reason": "stocktaking", "until": "2026-03-04T09:00:00Z"});
    let paused = s.editor().post(&pause, &body).await.expect(200).json;
    assert_eq!((&paused["pause_until"], &paused["revision"]), (&body["until"], &json!(2)));
    assert_eq!(paused["next_fire_at"], "2026-03-04T09:00:00Z");
    let next = s.editor().get(&format!("{}/next?n=3", path(id))).await.expect(200).json;
    let notes: Vec<&Value> = next["items"].as_array().unwrap().iter().map(|time| &time["note"]).collect();
    assert_eq!(notes, [&json!("paused"), &json!("paused"), &Value::Null]);
    let paused = s.editor().post_empty(&pause).await.expect(200).json;
    assert_eq!((&paused["pause_until"], &paused["next_fire_at"]), (&Value::Null, &Value::Null));
    s.end().await;
}
