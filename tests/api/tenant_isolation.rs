//! Tenant isolation: the API answers for another team's object as for one that does not exist.

use reqwest::Method;
use serde_json::{Value, json};
use tests::{Api, Story};

/// The answer is the same as that for an object that does not exist.
#[tokio::test]
async fn objects_of_other_teams_answer_404() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let run = s.runs_of(id).await[0]["id"].as_str().unwrap().to_owned();
    let span = json!({"start": "2026-03-02T08:00:00Z", "end": "2026-03-02T09:00:15Z", "only": "all"});
    let requested = s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), &span).await.expect(202);
    let backfill = requested.json["id"].as_str().unwrap().to_owned();
    let stranger = stranger(&s).await;
    let missing_run = "00000000-0000-7000-8000-000000000000";
    let cases: [(Method, String, String, Value); 20] = [
        (Method::GET, format!("/api/v1/workflows/{id}"), "/api/v1/workflows/999999".into(), Value::Null),
        (Method::PATCH, format!("/api/v1/workflows/{id}"), "/api/v1/workflows/999999".into(), json!({"name": "x"})),
        (Method::PATCH, format!("/api/v1/workflows/{id}"), "/api/v1/workflows/999999".into(), json!({"name": ""})),
        (Method::POST, format!("/api/v1/workflows/{id}:archive"), "/api/v1/workflows/999999:archive".into(), json!({})),
        (Method::POST, format!("/api/v1/workflows/{id}:pause"), "/api/v1/workflows/999999:pause".into(), json!({})),
        (Method::POST, format!("/api/v1/workflows/{id}:resume"), "/api/v1/workflows/999999:resume".into(), json!({})),
        (Method::GET, format!("/api/v1/schedules/{id}"), "/api/v1/schedules/999999".into(), Value::Null),
        (
            Method::PUT,
            format!("/api/v1/schedules/{id}"),
            "/api/v1/schedules/999999".into(),
            json!({"cron_schedule": "x"}),
        ),
        (Method::PATCH, format!("/api/v1/schedules/{id}"), "/api/v1/schedules/999999".into(), json!({"timezone": "x"})),
        (Method::DELETE, format!("/api/v1/schedules/{id}"), "/api/v1/schedules/999999".into(), Value::Null),
        (Method::GET, format!("/api/v1/schedules/{id}/next"), "/api/v1/schedules/999999/next".into(), Value::Null),
        (Method::GET, format!("/api/v1/schedules/{id}/runs"), "/api/v1/schedules/999999/runs".into(), Value::Null),
        (
            Method::GET,
            format!("/api/v1/schedules/{id}/occurrences"),
            "/api/v1/schedules/999999/occurrences".into(),
            Value::Null,
        ),
        (Method::POST, format!("/api/v1/schedules/{id}:fire"), "/api/v1/schedules/999999:fire".into(), json!({})),
        (Method::POST, format!("/api/v1/schedules/{id}:backfill"), "/api/v1/schedules/999999:backfill".into(), span),
        (Method::GET, format!("/api/v1/backfills/{backfill}"), format!("/api/v1/backfills/{missing_run}"), Value::Null),
        (
            Method::POST,
            format!("/api/v1/backfills/{backfill}:cancel"),
            format!("/api/v1/backfills/{missing_run}:cancel"),
            json!({}),
        ),
        (Method::POST, format!("/api/v1/runs/{run}:cancel"), format!("/api/v1/runs/{missing_run}:cancel"), json!({})),
        (Method::POST, format!("/api/v1/runs/{run}:retry"), format!("/api/v1/runs/{missing_run}:retry"), json!({})),
        (Method::GET, format!("/api/v1/runs/{run}"), format!("/api/v1/runs/{missing_run}"), Value::Null),
    ];
    for (method, theirs, missing, body) in cases {
        let [theirs, missing] = [theirs, missing].map(|path| {
            let request = stranger.request(method.clone(), &path);
            tests::send_request(if body.is_null() { request } else { request.json(&body) })
        });
        let (theirs, missing) = (theirs.await, missing.await);
        theirs.refused(404, "not_found", None);
        assert_eq!((theirs.status, theirs.text), (missing.status, missing.text));
    }
    s.end().await;
}

#[tokio::test]
async fn lists_show_only_the_own_team() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let span = json!({"start": "2026-03-02T08:00:00Z", "end": "2026-03-02T09:00:15Z", "only": "all"});
    s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), &span).await.expect(202);
    let stranger = stranger(&s).await;
    let team = s.keys.team_id;
    for path in [
        "/api/v1/workflows".to_owned(),
        format!("/api/v1/workflows?team_id={team}"),
        "/api/v1/workflows?q=workflow".to_owned(),
        "/api/v1/schedules".to_owned(),
        "/api/v1/runs".to_owned(),
        format!("/api/v1/runs?workflow_id={id}"),
        "/api/v1/backfills".to_owned(),
        format!("/api/v1/backfills?workflow_id={id}"),
    ] {
        assert_eq!(stranger.get(&path).await.expect(200).json["items"], json!([]), "{path}");
        assert_ne!(s.editor().get(&path).await.expect(200).json["items"], json!([]), "{path}");
    }
    let theirs = json!({"name": "x", "team_id": team, "action": {"type": "log", "message": "hi"}});
    stranger.post("/api/v1/workflows", &theirs).await.refused(400, "unknown_team", Some("team_id"));
    s.end().await;
}

async fn stranger(s: &Story) -> Api {
    let team = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": team, "role": "editor"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    Api::new(s.url(), key["key"].as_str().unwrap())
}
