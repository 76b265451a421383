//! A client that lost an answer repeats its POST with the same `Idempotency-Key`: nothing is created twice.

use std::time::Instant;

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Answer, Api, PATIENCE, Story, send_request};
use uuid::Uuid;

use crate::tenant_isolation::{WAITING, begin_holder};

/// What lists show of a key; the rest is its secret.
const PREFIX_LENGTH: usize = 16;

async fn post(api: &Api, path: &str, key: &str, body: &Value) -> Answer {
    send_request(api.request(Method::POST, path).header("Idempotency-Key", key).json(body)).await
}

fn is_replayed(answer: &Answer) -> bool {
    answer.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
}

#[tokio::test]
async fn a_repeated_fire_is_one_run() {
    let s = Story::today().await;
    let wf = s.create_with(json!({"overlap_policy": "concurrent"})).await;
    let path = format!("/api/v1/schedules/{wf}:fire");
    let first = post(&s.editor(), &path, "k-1", &json!({})).await.expect(202);
    let again = post(&s.editor(), &path, "k-1", &json!({})).await.expect(202);
    assert_eq!(first.json, again.json);
    assert_eq!(first.headers["location"], again.headers["location"]);
    assert!(!is_replayed(&first) && is_replayed(&again));
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 1);

    let other = json!({"inputs": {"a": 1}});
    post(&s.editor(), &path, "k-1", &other).await.refused(422, "idempotency_key_reused", None);
    assert_ne!(post(&s.editor(), &path, "k-2", &json!({})).await.expect(202).json, first.json);
    let admin = post(&s.admin(), &path, "k-1", &json!({})).await.expect(202);
    assert_ne!(admin.json, first.json, "the key of one caller means nothing to another");
    post(&s.editor(), &path, "a b", &json!({})).await.refused(400, "invalid_field", Some("Idempotency-Key"));
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 3);
    s.end().await;
}

/// The second of two requests at once waits for the first one.
#[tokio::test]
async fn repeats_at_once_are_one_run() {
    let s = Story::today().await;
    let wf = s.create_with(json!({"overlap_policy": "concurrent"})).await;
    let (api, path) = (s.editor(), format!("/api/v1/schedules/{wf}:fire"));
    let answers = join_all((0..8).map(|_| post(&api, &path, "at-once", &Value::Null))).await;
    let runs: Vec<&Value> = answers.iter().map(|answer| &answer.json["run_id"]).collect();
    assert!(runs.iter().all(|run| *run == runs[0] && run.is_string()), "{runs:?}");
    assert_eq!(answers.iter().filter(|answer| is_replayed(answer)).count(), 7);
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 1);
    s.end().await;
}

/// A request that had to wait creates the workflow when it has its turn: a time that passed meanwhile is not due, so the
/// watchdog does not run it late.
#[tokio::test]
async fn a_workflow_begins_when_its_request_has_its_turn() {
    let s = Story::at("2026-03-02T08:59:58Z").await;
    let mut holder = begin_holder(&s).await;
    sqlx::raw_sql("LOCK TABLE idempotency_keys IN SHARE MODE").execute(&mut *holder).await.unwrap();
    let body = json!({"name": "payroll", "cron_schedule": "0 * * * *", "timezone": "UTC",
                      "action": {"type": "log", "message": "m"}});
    let caller = s.editor();
    let release = async {
        s.until(WAITING, 1).await;
        s.now_is("2026-03-02T09:00:03Z").await;
        holder.rollback().await.unwrap();
    };
    let (made, ()) = tokio::join!(post(&caller, "/api/v1/workflows", "w", &body), release);
    made.expect(201);
    let begun = "SELECT count(*) FROM schedule_versions WHERE valid_from = '2026-03-02T09:00:03Z'";
    assert_eq!(s.count(begun).await, 1);
    s.now_is("2026-03-02T09:10:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    s.end().await;
}

/// A refusal has created nothing, so the repeat is decided anew.
#[tokio::test]
async fn refused_requests_are_decided_anew() {
    let s = Story::today().await;
    let body = json!({"name": "payroll", "action": {"type": "log", "message": "hi"}});
    let taken = s.editor().post("/api/v1/workflows", &body).await.expect(201).id();
    post(&s.editor(), "/api/v1/workflows", "w", &body).await.refused(409, "name_taken", None);
    s.editor().post_empty(&format!("/api/v1/workflows/{taken}:archive")).await.expect(200);
    let made = post(&s.editor(), "/api/v1/workflows", "w", &body).await.expect(201);
    assert!(!is_replayed(&made));

    // The repeat shows what was edited since.
    let path = format!("/api/v1/workflows/{}", made.id());
    s.editor().patch(&path, &json!({"description": "new"})).await.expect(200);
    let again = post(&s.editor(), "/api/v1/workflows", "w", &body).await.expect(201);
    assert!(is_replayed(&again));
    assert_eq!((again.id(), &again.json["description"]), (made.id(), &json!("new")));
    assert_eq!(again.headers["location"].to_str().unwrap(), path);
    s.end().await;
}

/// The client that lost a secret gets the id, with which it revokes the key or deletes the team.
#[tokio::test]
async fn repeats_never_show_a_secret() {
    let s = Story::today().await;
    let key = json!({"name": "k", "kind": "team", "team_id": s.keys.team_id, "role": "editor"});
    let first = post(&s.admin(), "/api/v1/keys", "key", &key).await.expect(201).json;
    let again = post(&s.admin(), "/api/v1/keys", "key", &key).await.expect(201);
    let key = first["key"].as_str().unwrap();
    assert_eq!((&again.json["key"], &again.json["id"]), (&Value::Null, &first["id"]));

    let first = post(&s.admin(), "/api/v1/teams", "team", &json!({"name": "t"})).await.expect(201).json;
    let again = post(&s.admin(), "/api/v1/teams", "team", &json!({"name": "t"})).await.expect(201).json;
    assert!(first["signing_secret"].is_string());
    assert_eq!((&again["signing_secret"], &again["id"]), (&Value::Null, &first["id"]));
    let stored = s.table("SELECT answer::text FROM idempotency_keys").await;
    let (prefix, secret) = key.split_at(PREFIX_LENGTH);
    assert!(stored.contains(prefix) && !stored.contains(secret) && !stored.contains("whsec_"), "{stored}");
    s.end().await;
}

/// The secret that the receivers have must sign until its overlap ends: a second rotation would end it.
#[tokio::test]
async fn a_repeated_rotation_keeps_the_previous_secret() {
    let s = Story::today().await;
    let path = format!("/api/v1/teams/{}:rotate-signing-secret", s.keys.team_id);
    let signing = "SELECT concat_ws(' ', signing_secret, previous_signing_secret, previous_signing_until) FROM teams";
    let body = json!({"overlap_secs": 3_600});
    let first = post(&s.admin(), &path, "rotation", &body).await.expect(200);
    assert!(first.json["signing_secret"].is_string() && !is_replayed(&first));
    let rotated = s.table(signing).await;
    let again = post(&s.admin(), &path, "rotation", &body).await.expect(200);
    assert!(is_replayed(&again));
    assert_eq!(again.json["signing_secret"], Value::Null);
    assert_eq!(again.json["previous_until"], first.json["previous_until"]);
    assert_eq!(s.table(signing).await, rotated);
    post(&s.admin(), &path, "rotation", &json!({})).await.refused(422, "idempotency_key_reused", None);
    post(&s.admin(), &path, "another", &body).await.expect(200);
    assert_ne!(s.table(signing).await, rotated);
    assert!(!s.table("SELECT answer::text FROM idempotency_keys").await.contains("whsec_"));
    s.end().await;
}

#[tokio::test]
async fn retries_and_backfills_are_repeated() {
    let s = Story::at("2026-03-02T12:00:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let fired = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    s.runs_end().await;
    let retry = format!("/api/v1/runs/{}:retry", fired.json["run_id"].as_str().unwrap());
    let first = post(&s.editor(), &retry, "r", &json!({})).await.expect(202).json;
    assert_eq!(post(&s.editor(), &retry, "r", &json!({})).await.expect(202).json, first);
    s.runs_end().await;

    let span = json!({"start": "2026-02-20T00:00:00Z", "end": "2026-02-22T00:00:00Z", "timing": "now"});
    let path = format!("/api/v1/schedules/{wf}:backfill");
    let first = post(&s.editor(), &path, "b", &span).await.expect(202).json;
    let again = post(&s.editor(), &path, "b", &span).await.expect(202);
    assert!(is_replayed(&again));
    assert_eq!(again.json["id"], first["id"]);
    assert_eq!(s.count("SELECT count(*) FROM backfills").await, 1);
    s.end_early().await;
}

/// The time or the hosts of the team would refuse each of these requests now. The client must not believe that nothing was created.
#[tokio::test]
async fn accepted_requests_are_repeated_at_any_time() {
    const END: &str = "2026-03-02T10:00:00Z";
    let s = Story::at("2026-03-02T09:58:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let fired = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    s.runs_end().await;
    let fired: Uuid = fired.json["run_id"].as_str().unwrap().parse().unwrap();
    let action = json!({"type": "http", "method": "POST", "url": "https://1.1.1.1/hook"});
    // As early as occurrences are kept.
    let span = json!({"start": "2025-12-02T09:58:00Z", "end": "2025-12-04T00:00:00Z", "timing": "now"});
    let requests = [
        (s.editor(), format!("/api/v1/runs/{fired}:retry"), json!({})),
        (s.editor(), format!("/api/v1/schedules/{wf}:backfill"), span),
        (
            s.editor(),
            "/api/v1/workflows".to_owned(),
            json!({"name": "once", "cron_schedule": "59 9 * * *", "ends_at": END, "action": action}),
        ),
        (s.editor(), "/api/v1/bulk".to_owned(), json!({"verb": "pause", "until": END})),
        (s.editor(), "/api/v1/freezes".to_owned(), json!({"reason": "release", "until": END})),
        (s.admin(), "/api/v1/keys".to_owned(), json!({"name": "k", "kind": "admin", "expires_on": END})),
        (
            s.editor(),
            "/api/v1/notification-channels".to_owned(),
            json!({"name": "c", "kind": "webhook", "url": "https://1.1.1.1/hook"}),
        ),
    ];
    let mut created = Vec::new();
    for (api, path, body) in &requests {
        let answer = post(api, path, path, body).await;
        assert!(matches!(answer.status, 201 | 202) && !is_replayed(&answer), "{path}: {}", answer.text);
        created.push(answer);
    }
    s.runs_end().await;
    let hosts = s.admin().request(Method::PUT, &format!("/api/v1/teams/{}/hosts", s.keys.team_id));
    send_request(hosts.json(&json!({"allowed_hosts": ["elsewhere.example"]}))).await.expect(200);
    sqlx::query("DELETE FROM runs WHERE id = $1").bind(fired).execute(&s.pool).await.unwrap();
    s.now_is("2026-03-02T10:01:00Z").await;
    for ((api, path, body), first) in requests.iter().zip(&created) {
        let again = post(api, path, path, body).await;
        assert!(again.status == first.status && is_replayed(&again), "{path}: {}", again.text);
        assert_eq!((&again.json["id"], &again.json["run_id"]), (&first.json["id"], &first.json["run_id"]), "{path}");
        let anew = post(api, path, &format!("{path}-2"), body).await;
        assert!(matches!(anew.status, 400 | 404), "{path}: {}", anew.text);
    }
    s.end_early().await;
}

/// After a day the key is free again, and its row can be removed.
#[tokio::test]
async fn keys_are_kept_for_a_day() {
    let s = Story::at("2026-03-02T12:00:00Z").await;
    let wf = s.create_with(json!({"overlap_policy": "concurrent"})).await;
    let path = format!("/api/v1/schedules/{wf}:fire");
    let first = post(&s.editor(), &path, "day", &json!({})).await.expect(202).json;
    s.now_is("2026-03-03T11:59:59Z").await;
    assert_eq!(post(&s.editor(), &path, "day", &json!({})).await.expect(202).json, first);
    s.now_is("2026-03-03T12:00:00Z").await;
    let other = json!({"inputs": {"a": 1}});
    let second = post(&s.editor(), &path, "day", &other).await.expect(202).json;
    assert_ne!(second, first);
    assert_eq!(post(&s.editor(), &path, "day", &other).await.expect(202).json, second);
    s.now_is("2026-03-04T12:00:00Z").await;
    // A row that is locked stays: the job removes it at this moment, or the transaction of the last answer still rolls back.
    let began = Instant::now();
    while s.count("SELECT count(*) FROM idempotency_keys").await > 0 {
        assert!(began.elapsed() < PATIENCE, "the row of the key stays");
        let mut connection = s.app().pools.work.acquire().await.unwrap();
        access::repeats::remove_old(&mut connection, s.clock.now()).await.unwrap();
    }
    s.end_early().await;
}

/// A repeat shows only what its caller may see now: here the objects have another team than when the caller created them.
#[tokio::test]
async fn repeats_show_nothing_of_another_team() {
    let s = Story::at("2026-03-02T12:00:00Z").await;
    let other = s.admin().post("/api/v1/teams", &json!({"name": "other"})).await.expect(201).id();
    let body = json!({"name": "payroll", "cron_schedule": "0 9 * * *", "action": {"type": "log", "message": "hi"}});
    let wf = post(&s.editor(), "/api/v1/workflows", "w", &body).await.expect(201).id();
    let fire = format!("/api/v1/schedules/{wf}:fire");
    post(&s.editor(), &fire, "f", &json!({})).await.expect(202);
    let (span, backfill) = (
        json!({"start": "2026-02-20T00:00:00Z", "end": "2026-02-22T00:00:00Z", "timing": "now"}),
        format!("/api/v1/schedules/{wf}:backfill"),
    );
    post(&s.editor(), &backfill, "b", &span).await.expect(202);
    sqlx::query("UPDATE workflows SET team_id = $1 WHERE id = $2").bind(other).bind(wf).execute(&s.pool).await.unwrap();
    post(&s.editor(), "/api/v1/workflows", "w", &body).await.refused(404, "not_found", None);
    post(&s.editor(), &fire, "f", &json!({})).await.refused(404, "not_found", None);
    post(&s.editor(), &backfill, "b", &span).await.refused(404, "not_found", None);
    s.end_early().await;
}
