//! Every field of every body and query: a wrong value is refused with the name of its field, and changes nothing.

use serde_json::{Value, json};
use tests::Story;

fn http(action: Value) -> Value {
    let mut whole = json!({"type": "http", "method": "POST", "url": "https://a.example/hook"});
    whole.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
    json!({ "action": whole })
}

/// A document of so many arrays inside of each other.
fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, _| json!([inner]))
}

/// Bodies with one wrong field, each with the code and the field of the refusal.
fn wrong_workflows() -> Vec<(Value, &'static str, &'static str)> {
    let long = "x".repeat(300);
    vec![
        (json!({"name": ""}), "invalid_field", "name"),
        (json!({"name": "  "}), "invalid_field", "name"),
        (json!({"name": " a"}), "invalid_field", "name"),
        (json!({"name": "a\nb"}), "invalid_field", "name"),
        (json!({"name": "a\u{0}b"}), "invalid_field", "name"),
        (json!({"name": long}), "invalid_field", "name"),
        (json!({"name": 1}), "invalid_field", "name"),
        (json!({"name": null}), "invalid_field", "name"),
        (json!({"description": "x".repeat(2_001)}), "invalid_field", "description"),
        (json!({"description": "\u{7}"}), "invalid_field", "description"),
        (json!({"description": ["a"]}), "invalid_field", "description"),
        (json!({"cron_schedule": ""}), "wrong_field_count", "cron_schedule"),
        (json!({"cron_schedule": "75 * * * *"}), "invalid_field", "cron_schedule"),
        (json!({"cron_schedule": "* * * *"}), "wrong_field_count", "cron_schedule"),
        (json!({"cron_schedule": "30 * * * * *"}), "sub_minute_unsupported", "cron_schedule"),
        (json!({"cron_schedule": "0 0 30 2 *"}), "never_fires", "cron_schedule"),
        (json!({"cron_schedule": "0 0 0 1 1 * 2001"}), "never_fires", "cron_schedule"),
        (json!({"cron_schedule": "0 9 * * *", "ends_at": "2026-01-01T00:00:00Z"}), "never_fires", "ends_at"),
        (
            json!({"cron_schedule": "0 9 * * *", "starts_at": "2126-11-22T10:00:00Z", "ends_at": "2126-11-22T11:00:00Z"}),
            "never_fires",
            "ends_at",
        ),
        (
            json!({"cron_schedule": "0 30 9 31 12 ? 2130", "starts_at": "2131-01-01T00:00:00Z"}),
            "never_fires",
            "cron_schedule",
        ),
        (json!({"cron_schedule": "0 15 10 ? * 6L"}), "invalid_field", "cron_schedule"),
        (json!({"cron_schedule": "@reboot"}), "unsupported_macro", "cron_schedule"),
        (json!({"cron_schedule": "rate(5 minutes)"}), "unsupported_expression", "cron_schedule"),
        (json!({"cron_schedule": long}), "too_long", "cron_schedule"),
        (json!({"cron_schedule": "* * * * *\u{0}"}), "invalid_field", "cron_schedule"),
        (json!({"cron_schedule": 5}), "invalid_field", "cron_schedule"),
        (json!({"timezone": "Mars/Phobos"}), "invalid_timezone", "timezone"),
        (json!({"timezone": ""}), "invalid_timezone", "timezone"),
        (json!({"timezone": long}), "invalid_timezone", "timezone"),
        (json!({"timezone": 0}), "invalid_field", "timezone"),
        (json!({"is_api": "yes"}), "invalid_field", "is_api"),
        (json!({"action": "log"}), "invalid_field", "action"),
        (json!({"action": {}}), "missing_field", "action.type"),
        (json!({"action": {"type": "shell", "message": "rm"}}), "invalid_field", "action.type"),
        (json!({"action": {"type": "log"}}), "missing_field", "action.message"),
        (json!({"action": {"type": "log", "message": ""}}), "invalid_field", "action.message"),
        (json!({"action": {"type": "log", "message": "a", "level": "b"}}), "unknown_field", "action.level"),
        (json!({"action": {"type": "log", "message": "a\u{0}"}}), "invalid_field", "action.message"),
        (http(json!({"method": "TRACE"})), "invalid_field", "action.method"),
        (http(json!({"url": "a.example"})), "invalid_field", "action.url"),
        (http(json!({"url": "file:///etc/passwd"})), "invalid_field", "action.url"),
        (http(json!({"url": "https://user:secret@a.example"})), "invalid_field", "action.url"),
        (http(json!({"url": "https://"})), "invalid_field", "action.url"),
        (http(json!({"headers": {"Host": "b.example"}})), "invalid_field", "action.headers.Host"),
        (http(json!({"headers": {"a b": "c"}})), "invalid_field", "action.headers.a b"),
        (http(json!({"headers": {"a": "b\r\nc: d"}})), "invalid_field", "action.headers.a"),
        (http(json!({"headers": {"a": null}})), "invalid_field", "action.headers.a"),
        (http(json!({"headers": "a: b"})), "invalid_field", "action.headers"),
        (http(json!({"body": {"a": ["\u{0}"]}})), "invalid_field", "action.body.a.0"),
        (http(json!({"body": nested(33)})), "invalid_field", "action.body"),
        (http(json!({"timeout": 5})), "unknown_field", "action.timeout"),
        (json!({"starting_inputs": []}), "invalid_field", "starting_inputs"),
        (json!({"starting_inputs": {"a": vec![1; 10_000]}}), "invalid_field", "starting_inputs"),
        (json!({"starting_inputs": {"a": {"b": "\u{0}"}}}), "invalid_field", "starting_inputs.a.b"),
        (json!({"starting_inputs": {"a": nested(32)}}), "invalid_field", "starting_inputs"),
        (
            json!({"starting_inputs": {"a": {"$serde_json::private::RawValue": "1"}}}),
            "invalid_field",
            "starting_inputs.a",
        ),
        (http(json!({"body": [{"$serde_json::private::RawValue": "1"}]})), "invalid_field", "action.body[0]"),
        (json!({"starts_at": "tomorrow"}), "invalid_field", "starts_at"),
        (json!({"starts_at": "0001-01-01T00:00:00Z"}), "invalid_field", "starts_at"),
        (json!({"ends_at": 1_700_000_000}), "invalid_field", "ends_at"),
        (json!({"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"}), "invalid_field", "ends_at"),
        (json!({"team_id": 999_999}), "unknown_team", "team_id"),
        (json!({"team_id": "1"}), "invalid_field", "team_id"),
        (json!({"state": "paused"}), "unknown_field", "state"),
        (json!({"id": 7}), "unknown_field", "id"),
        (json!({"Name": "a"}), "unknown_field", "Name"),
    ]
}

/// A refused request creates nothing.
#[tokio::test]
async fn wrong_workflow_fields_are_named() {
    let s = Story::today().await;
    let editor = s.editor();
    for (wrong, code, field) in wrong_workflows() {
        let mut body = json!({"name": "good", "action": {"type": "log", "message": "hi"}});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        editor.post("/api/v1/workflows", &body).await.refused(400, code, Some(field));
    }
    assert_eq!(editor.get("/api/v1/workflows").await.expect(200).json["items"], json!([]));
    s.end().await;
}

/// A list and the audit log nest a document deeper, where a parser of a client would refuse it.
#[tokio::test]
async fn documents_have_a_largest_depth() {
    let s = Story::today().await;
    let deepest = json!({"starting_inputs": {"a": nested(31)},
        "action": {"type": "http", "method": "POST", "url": "https://a.example/hook", "body": nested(32)}});
    s.create_with(deepest).await;
    let fire = format!("/api/v1/schedules/{}:fire", s.create("0 9 * * *", "UTC").await);
    let refused = s.editor().post(&fire, &json!({"inputs": {"a": nested(32)}})).await;
    refused.refused(400, "invalid_field", Some("inputs"));
    s.editor().post(&fire, &json!({"inputs": {"a": nested(31)}})).await.expect(202);
    s.end_early().await;
}

#[tokio::test]
async fn missing_fields_are_named() {
    let s = Story::today().await;
    let path = "/api/v1/workflows";
    let action = json!({"type": "log", "message": "hi"});
    s.editor().post(path, &json!({ "action": action })).await.refused(400, "missing_field", Some("name"));
    s.editor().post(path, &json!({"name": "a"})).await.refused(400, "missing_field", Some("action"));
    let orphan = json!({"name": "a", "action": action});
    s.admin().post(path, &orphan).await.refused(400, "missing_field", Some("team_id"));
    s.end().await;
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let s = Story::today().await;
    let post = |body: &'static str, kind: &'static str| {
        let request = s.editor().request(reqwest::Method::POST, "/api/v1/workflows");
        tests::send_request(request.header("content-type", kind).body(body))
    };
    post("{\"name\":", "application/json").await.refused(400, "invalid_json", None);
    post("", "application/json").await.refused(400, "invalid_json", None);
    post("{} {}", "application/json").await.refused(400, "invalid_json", None);
    post("[]", "application/json").await.refused(400, "invalid_field", None);
    post("null", "application/json").await.refused(400, "invalid_field", None);
    post("name=a", "application/x-www-form-urlencoded").await.refused(415, "unsupported_media_type", None);
    let twice = "{\"name\":\"a\",\"name\":\"b\"}";
    post(twice, "application/json").await.refused(400, "duplicate_field", Some("name"));
    let twice = "{\"name\":\"a\",\"action\":{\"type\":\"log\",\"message\":\"a\",\"message\":\"b\"}}";
    post(twice, "application/json").await.refused(400, "duplicate_field", Some("action.message"));
    let deep: &'static str = Box::leak(format!("{{\"starting_inputs\":{}", "[".repeat(100_000)).into_boxed_str());
    assert_eq!(post(deep, "application/json").await.status, 400);
    s.end().await;
}

/// The positions of fields are no part of the API.
#[tokio::test]
async fn bodies_are_objects() {
    let s = Story::today().await;
    let pause = format!("/api/v1/workflows/{}:pause", s.create("0 9 * * *", "UTC").await);
    let bodies = [
        ("/api/v1/teams", json!(["x"])),
        ("/api/v1/teams", json!("x")),
        ("/api/v1/keys", json!(["admin", null, null, "k"])),
        (pause.as_str(), json!([])),
    ];
    for (path, body) in bodies {
        s.admin().post(path, &body).await.refused(400, "invalid_field", None);
    }
    // A generated client sends an absent body as null.
    s.admin().post(&pause, &Value::Null).await.expect(200);
    s.end_early().await;
}

#[tokio::test]
async fn wrong_query_fields_are_named() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let cases = [
        ("/api/v1/workflows?limit=0", "invalid_field", "limit"),
        ("/api/v1/workflows?limit=201", "invalid_field", "limit"),
        ("/api/v1/workflows?limit=many", "invalid_field", "limit"),
        ("/api/v1/workflows?cursor=zzz", "invalid_cursor", "cursor"),
        ("/api/v1/workflows?state=gone", "invalid_field", "state"),
        ("/api/v1/workflows?sync=maybe", "invalid_field", "sync"),
        ("/api/v1/workflows?team_id=x", "invalid_field", "team_id"),
        ("/api/v1/workflows?q=%00", "invalid_field", "q"),
        ("/api/v1/workflows?page=2", "unknown_field", "page"),
        ("/api/v1/runs?state=done", "invalid_field", "state"),
        ("/api/v1/runs?trigger=cron", "invalid_field", "trigger"),
        ("/api/v1/runs?from=yesterday", "invalid_field", "from"),
        ("/api/v1/runs?to=0000-01-01T00:00:00Z", "invalid_field", "to"),
        ("/api/v1/runs?workflow_id=-", "invalid_field", "workflow_id"),
        ("/api/v1/runs?cursor=%2F", "invalid_cursor", "cursor"),
    ];
    for (path, code, field) in cases {
        s.editor().get(path).await.refused(400, code, Some(field));
    }
    let occurrences = format!("/api/v1/schedules/{id}/occurrences");
    s.editor().get(&format!("{occurrences}?decision=no")).await.refused(400, "invalid_field", Some("decision"));
    s.editor().get(&format!("{occurrences}?state=no")).await.refused(400, "unknown_field", Some("state"));
    s.editor().patch(&format!("/api/v1/workflows/{id}?wait=26"), &json!({})).await.refused(
        400,
        "invalid_field",
        Some("wait"),
    );
    s.end().await;
}

#[tokio::test]
async fn wrong_team_and_key_fields_are_named() {
    let s = Story::today().await;
    let admin = s.admin();
    admin.post("/api/v1/teams", &json!({"name": ""})).await.refused(400, "invalid_field", Some("name"));
    admin.post("/api/v1/teams", &json!({"title": "a"})).await.refused(400, "unknown_field", Some("title"));
    admin.post("/api/v1/teams", &json!({"name": "a"})).await.expect(201);
    admin.post("/api/v1/teams", &json!({"name": "a"})).await.refused(409, "name_taken", None);
    let team = s.keys.team_id;
    let cases = [
        (json!({"name": "k"}), "missing_field", "kind"),
        (json!({"name": "k", "kind": "root"}), "invalid_field", "kind"),
        (json!({"name": "k", "kind": "team"}), "missing_field", "team_id"),
        (json!({"name": "k", "kind": "team", "team_id": team}), "missing_field", "role"),
        (json!({"name": "k", "kind": "team", "team_id": team, "role": "owner"}), "invalid_field", "role"),
        (json!({"name": "k", "kind": "team", "team_id": 999_999, "role": "editor"}), "unknown_team", "team_id"),
        (json!({"name": "k", "kind": "admin", "team_id": team}), "invalid_field", "team_id"),
        (json!({"name": "k", "kind": "scheduler", "role": "viewer"}), "invalid_field", "role"),
        (json!({"name": "", "kind": "admin"}), "invalid_field", "name"),
        (json!({"name": "k", "kind": "admin", "key": "mine"}), "unknown_field", "key"),
    ];
    for (body, code, field) in cases {
        admin.post("/api/v1/keys", &body).await.refused(400, code, Some(field));
    }
    s.end().await;
}

/// A form of a web page is no fire.
#[tokio::test]
async fn fires_are_json() {
    let s = Story::today().await;
    let scheduler = s.scheduler_key();
    let fire = async |kind: Option<&str>| {
        let request = scheduler.request(reqwest::Method::POST, "/api/v1/cron/workflows/1:invoke");
        let request = kind.map_or(request.try_clone().unwrap(), |kind| request.header("content-type", kind));
        tests::send_request(request.body(r#"{"scheduled_time": "2026-03-02T09:00:00Z"}"#)).await
    };
    for kind in
        [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("text/plain; application/json")]
    {
        fire(kind).await.refused(415, "unsupported_media_type", None);
    }
    fire(Some("Application/JSON; charset=utf-8")).await.refused(410, "workflow_gone", None);
    s.end().await;
}

#[tokio::test]
async fn wrong_fire_fields_are_named() {
    let s = Story::today().await;
    let scheduler = s.scheduler_key();
    let path = "/api/v1/cron/workflows/1:invoke";
    let time = "2026-03-02T09:00:00Z";
    let cases = [
        (json!({}), "scheduled_time"),
        (json!({"scheduled_time": "<aws.scheduler.scheduled-time>"}), "scheduled_time"),
        (json!({"scheduled_time": "now"}), "scheduled_time"),
        (json!({"scheduled_time": 5}), "scheduled_time"),
        (json!({"scheduled_time": "2026-03-02T23:59:60Z"}), "scheduled_time"),
        (json!({"scheduled_time": time, "revision": "x"}), "revision"),
        (json!({"scheduled_time": time, "attempt": "first"}), "attempt"),
        (json!({"scheduled_time": time, "execution_id": "\u{0}"}), "execution_id"),
        (json!({"scheduled_time": time, "workflow_id": 2}), "workflow_id"),
    ];
    for (body, field) in cases {
        scheduler.post(path, &body).await.refused(400, "invalid_field", Some(field));
    }
    let with_more = json!({"scheduled_time": time, "shoe_size": 44});
    scheduler.post(path, &with_more).await.refused(410, "workflow_gone", None);
    s.end().await;
}

/// A client corrects all fields at once: the first one is that of the problem, and `errors` has all of them in the order of the checks.
#[tokio::test]
async fn all_wrong_fields_are_named_at_once() {
    let s = Story::today().await;
    let body = json!({"name": " ", "cron_schedule": "61 9 * * *", "timezone": "Europe/Pari", "max_attempts": 0,
                      "spread_secs": 9_999, "action": {"type": "log", "message": "hi"}});
    let refused = s.editor().post("/api/v1/workflows", &body).await;
    refused.clone().refused(400, "invalid_field", Some("name"));
    let named: Vec<[&Value; 2]> =
        refused.json["errors"].as_array().unwrap().iter().map(|error| [&error["field"], &error["code"]]).collect();
    let expected = [
        [json!("name"), json!("invalid_field")],
        [json!("spread_secs"), json!("invalid_field")],
        [json!("max_attempts"), json!("invalid_field")],
        [json!("timezone"), json!("invalid_timezone")],
        [json!("cron_schedule"), json!("invalid_field")],
    ];
    assert_eq!(named, expected.each_ref().map(|[field, code]| [field, code]), "{}", refused.text);
    assert_eq!(refused.json["errors"][4]["cron_field"], "minute");

    let wf = s.create("0 9 * * *", "UTC").await;
    let wrong = json!({"timezone": "Mars/Phobos", "max_concurrent": 0});
    let refused = s.editor().patch(&format!("/api/v1/workflows/{wf}"), &wrong).await.expect(400);
    assert_eq!(refused.json["errors"].as_array().unwrap().len(), 2, "{}", refused.text);
    let one = s.editor().patch(&format!("/api/v1/workflows/{wf}"), &json!({"max_concurrent": 0})).await.expect(400);
    assert!(one.json.get("errors").is_none(), "one wrong field needs no list: {}", one.text);
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 1);
    s.end().await;
}
