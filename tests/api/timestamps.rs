//! Times have microseconds: an answer says none that Postgres does not keep, and a later answer repeats it.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use schedule::Clock;
use serde_json::{Value, json};
use tests::Story;

/// As a caller may write a time of this second.
fn nanoseconds(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%M:%S.123456789Z").to_string()
}

/// The same, as it is kept.
fn microseconds(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%M:%S.123456Z").to_string()
}

/// The times of an answer by their path; none has more than microseconds.
fn times(answer: &Value) -> BTreeMap<String, DateTime<Utc>> {
    let mut times = BTreeMap::new();
    collect_times("", answer, &mut times);
    assert!(!times.is_empty(), "no time in {answer}");
    times
}

fn collect_times(at: &str, value: &Value, times: &mut BTreeMap<String, DateTime<Utc>>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| collect_times(&format!("{at}/{n}"), item, times));
        }
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| collect_times(&format!("{at}/{name}"), member, times));
        }
        Value::String(text) => {
            let Ok(time) = DateTime::parse_from_rfc3339(text) else { return };
            let fraction = text.trim_end_matches('Z').split_once('.').map_or("", |(_, fraction)| fraction);
            assert!(text.ends_with('Z') && fraction.len() <= 6, "{at}: {text}");
            times.insert(at.to_owned(), time.to_utc());
        }
        _ => {}
    }
}

fn instant(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

/// Asserts that a later answer has the times of an earlier one; that of one object may have more than that of a list.
async fn assert_repeated(s: &Story, path: &str, answer: &Value) {
    let read = times(&s.editor().get(path).await.expect(200).json);
    let before = times(answer);
    assert!(
        !before.is_empty() && before.iter().all(|(at, time)| read.get(at) == Some(time)),
        "{path}: {before:?} {read:?}"
    );
}

async fn column(s: &Story, query: &'static str) -> Vec<DateTime<Utc>> {
    sqlx::query_scalar(query).fetch_all(&s.pool).await.unwrap()
}

/// The workflow, its version, its outbox row and its audit row are of one instant.
#[tokio::test]
async fn an_edit_is_one_instant_everywhere() {
    let s = Story::today().await;
    let tomorrow = Clock::System.now() + TimeDelta::days(1);
    let body = json!({"name": "w", "cron_schedule": "0 9 1 1 *", "starts_at": nanoseconds(tomorrow),
        "action": {"type": "log", "message": "hello"}});
    let made = s.editor().post("/api/v1/workflows", &body).await.expect(201).json;
    assert_eq!(made["starts_at"], microseconds(tomorrow));
    let id = made["id"].as_i64().unwrap();
    let (workflow, schedule) = (format!("/api/v1/workflows/{id}"), format!("/api/v1/schedules/{id}"));
    assert_repeated(&s, &workflow, &made).await;
    let edited = s.editor().merge_patch(&schedule, &json!({"timezone": "Europe/Paris"})).await.expect(200).json;
    assert_repeated(&s, &schedule, &edited).await;

    let edits = [instant(&made["updated_on"]), instant(&edited["updated_on"])];
    assert_eq!(instant(&made["created_on"]), edits[0]);
    let rows = s.admin().get(&format!("/api/v1/outbox?workflow_id={id}")).await.expect(200).json;
    let rows = rows["items"].as_array().unwrap().iter().rev();
    assert_eq!(rows.map(|row| times(row)["/created_on"]).collect::<Vec<_>>(), edits);
    assert_eq!(column(&s, "SELECT valid_from FROM schedule_versions ORDER BY revision").await, edits);
    assert_eq!(column(&s, "SELECT at FROM audit_log WHERE subject LIKE 'workflow:%' ORDER BY id").await, edits);

    let until = json!({"until": nanoseconds(tomorrow)});
    let paused = s.editor().post(&format!("{workflow}:pause"), &until).await.expect(200).json;
    assert_eq!(paused["pause_until"], microseconds(tomorrow));
    assert_repeated(&s, &workflow, &paused).await;
    s.end_early().await;
}

/// The decision and its run are of one instant, and a list says the times of the run itself.
#[tokio::test]
async fn a_decision_is_one_instant_everywhere() {
    let s = Story::today().await;
    let id = s.create("* * * * *", "UTC").await;
    let next_minute = Clock::System.now() + TimeDelta::minutes(1);
    let fire = json!({"scheduled_time": nanoseconds(next_minute)});
    s.scheduler_key().post(&format!("/api/v1/cron/workflows/{id}:invoke"), &fire).await.expect(202);
    s.runs_end().await;
    let decisions = s.editor().get(&format!("/api/v1/schedules/{id}/occurrences")).await.expect(200).json;
    let run = s.runs_of(id).await.remove(0);
    assert_eq!(times(&decisions)["/items/0/decided_on"], times(&run)["/created_on"]);
    assert!(times(&run).contains_key("/finished_on"), "{run}");
    assert_repeated(&s, &format!("/api/v1/runs/{}", run["id"].as_str().unwrap()), &run).await;
    s.end_early().await;
}

#[tokio::test]
async fn a_backfill_repeats_its_times() {
    let s = Story::today().await;
    let id = s.create("0 * * * *", "UTC").await;
    let now = Clock::System.now();
    let (start, end) = (now - TimeDelta::hours(3), now - TimeDelta::hours(1));
    let body = json!({"start": nanoseconds(start), "end": nanoseconds(end), "timing": "now"});
    let requested = s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), &body).await.expect(202).json;
    let span = (&json!(microseconds(start)), &json!(microseconds(end)));
    assert_eq!((&requested["start"], &requested["end"]), span);
    assert_repeated(&s, &format!("/api/v1/backfills/{}", requested["id"].as_str().unwrap()), &requested).await;
    s.end_early().await;
}

#[tokio::test]
async fn operators_read_microseconds() {
    let s = Story::today().await;
    let read = async |path: &str| s.admin().get(path).await.expect(200).json;
    let key = s.admin().post("/api/v1/keys", &json!({"kind": "admin", "name": "k"})).await.expect(201).json;
    let listed = async || {
        let keys = read("/api/v1/keys?limit=200").await;
        keys["items"].as_array().unwrap().iter().find(|item| item["id"] == key["id"]).unwrap().clone()
    };
    assert_eq!(times(&listed().await), times(&key));
    let revoke = format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap());
    let revoked = s.admin().post_empty(&revoke).await.expect(200).json;
    assert_eq!(times(&listed().await), times(&revoked));
    assert!(times(&revoked).contains_key("/revoked_on"), "{revoked}");

    let requested = s.admin().post_empty("/api/v1/drift:check").await.expect(202).json;
    assert_eq!(times(&read("/api/v1/drift").await["open"]), times(&requested));
    times(&s.admin().post("/api/v1/teams", &json!({"name": "another"})).await.expect(201).json);
    times(&read("/api/v1/stats").await);

    let now = Clock::System.now();
    let (from, to) = (now - TimeDelta::hours(2), now - TimeDelta::hours(1));
    let proof = read(&format!("/api/v1/verify?from={}&to={}", nanoseconds(from), nanoseconds(to))).await;
    times(&proof);
    assert_eq!((&proof["from"], &proof["to"]), (&json!(microseconds(from)), &json!(microseconds(to))));
    assert_eq!(proof["compared_from"], proof["from"]);
    s.end_early().await;
}
