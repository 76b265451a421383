//! The background jobs: each runs on one instance at a time, on its schedule, and operators see its result.

use std::time::{Duration, Instant};

use app::jobs::Did;
use chrono::{DateTime, TimeDelta, Utc};
use ledger::admission::queue::{QueueCursor, advance_from};
use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::{LossyWay, PATIENCE, Story};
use tokio::process::Command;

use crate::process::{App, idle};
use crate::steps::{hourly, story_without_executor};

/// A stack whose apps run their jobs when they are due.
async fn with_jobs() -> Story {
    let options = StackOptions {
        now: Some("2026-03-02T08:30:00Z".parse().unwrap()),
        app: |config| config.jobs_enabled = true,
        ..StackOptions::default()
    };
    Story::with(options).await
}

async fn job(s: &Story, name: &str) -> Value {
    let listed = s.admin().get("/api/v1/jobs").await.expect(200);
    let items = listed.json["items"].as_array().cloned().unwrap();
    items.into_iter().find(|job| job["name"] == name).unwrap_or_else(|| panic!("no {name} in {}", listed.text))
}

async fn until_run(s: &Story, name: &str, turns: i64) -> Value {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let job = job(s, name).await;
        if job["run_count"] == turns && job["locked_by"].is_null() {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} does not come to {turns} turns: {}", job(s, name).await);
}

/// Waits until the apps have registered all jobs.
async fn until_registered(s: &Story) {
    let jobs = i64::try_from(app::jobs::all_jobs(&s.app().config).len()).unwrap();
    s.until("SELECT count(*) FROM jobs", jobs).await;
}

fn time(of: &Value) -> DateTime<Utc> {
    of.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn due_jobs_run_and_record_their_result() {
    let s = with_jobs().await;
    until_registered(&s).await;
    assert_eq!(job(&s, "recovery").await["run_count"], 0, "its first turn is due a moment after the start");
    s.now_is("2026-03-02T08:30:05Z").await;
    let recovery = until_run(&s, "recovery", 1).await;
    assert_eq!((&recovery["schedule"], &recovery["last_result"]), (&json!("60s"), &json!("skipped")));
    assert_eq!(recovery["last_run"], "2026-03-02T08:30:05Z");
    let pause = time(&recovery["next_run"]) - time(&json!("2026-03-02T08:30:05Z"));
    assert!((60..=66).contains(&pause.num_seconds()), "jittered: {pause}");
    s.now_is("2026-03-02T08:31:12Z").await;
    until_run(&s, "recovery", 2).await;
    s.end().await;
}

#[tokio::test]
async fn a_cron_job_runs_in_its_timezone() {
    let options = StackOptions {
        now: Some("2026-03-28T22:00:00Z".parse().unwrap()),
        app: |config| {
            config.jobs_enabled = true;
            config.jobs_timezone = "Europe/Paris".parse().unwrap();
        },
        ..StackOptions::default()
    };
    let s = Story::with(options).await;
    until_registered(&s).await;
    let prune = job(&s, "prune").await;
    assert_eq!((&prune["schedule"], &prune["timezone"]), (&json!("0 3 * * *"), &json!("Europe/Paris")));
    // The night of the change to summer time: 03:00 in Paris is 01:00 UTC.
    let late = time(&prune["next_run"]) - time(&json!("2026-03-29T01:00:00Z"));
    assert!((0..=10).contains(&late.num_seconds()), "{prune}");
    s.now_is("2026-03-29T01:00:11Z").await;
    let prune = until_run(&s, "prune", 1).await;
    let late = time(&prune["next_run"]) - time(&json!("2026-03-30T01:00:00Z"));
    assert!((0..=10).contains(&late.num_seconds()), "{prune}");
    s.end().await;
}

#[tokio::test]
async fn of_five_instances_one_takes_a_turn() {
    let mut s = with_jobs().await;
    for _ in 0..4 {
        s.another_url().await;
    }
    until_registered(&s).await;
    s.now_is("2026-03-02T08:30:05Z").await;
    until_run(&s, "recovery", 1).await;
    for minute in 31..36 {
        let now: DateTime<Utc> = format!("2026-03-02T08:{minute}:30Z").parse().unwrap();
        s.set_clock(now + TimeDelta::seconds(i64::from(minute - 30) * 7)).await;
        until_run(&s, "recovery", i64::from(minute - 29)).await;
    }
    // By then every instance has checked again, and found no due job.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(job(&s, "recovery").await["run_count"], 6);
    s.end().await;
}

/// Another instance takes the job's turn when the lease has expired, and not before.
#[tokio::test]
async fn an_expired_job_lease_is_taken_over() {
    let s = with_jobs().await;
    until_registered(&s).await;
    s.execute(
        "UPDATE jobs SET locked_by = gen_random_uuid(), locked_until = '2026-03-02T08:31:00Z',
                         next_run = '2026-03-02T08:30:00Z' WHERE name = 'recovery'",
    )
    .await;
    s.now_is("2026-03-02T08:30:59Z").await;
    until_run(&s, "timeouts", 1).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(job(&s, "recovery").await["run_count"], 0, "another instance may run it");
    s.now_is("2026-03-02T08:31:00Z").await;
    until_run(&s, "recovery", 1).await;
    s.end().await;
}

#[tokio::test]
async fn failed_jobs_record_the_error_and_repeat() {
    let s = with_jobs().await;
    until_registered(&s).await;
    s.execute("ALTER TABLE runs RENAME COLUMN recoveries TO gone").await;
    s.now_is("2026-03-02T08:30:05Z").await;
    let recovery = until_run(&s, "recovery", 1).await;
    assert_eq!((&recovery["last_result"], &recovery["error_count"]), (&json!("failed"), &json!(1)));
    assert!(recovery["last_error"].as_str().unwrap().contains("recoveries"), "{recovery}");
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox"));
    command.arg("jobs").env("CRONBOX_URL", s.url()).env("CRONBOX_KEY", &s.keys.admin);
    let reply = command.output().await.unwrap();
    let table = String::from_utf8(reply.stdout).unwrap();
    assert_eq!(reply.status.code(), Some(1), "{table}");
    assert!(table.lines().any(|line| line.starts_with("recovery") && line.contains("failed: ")), "{table}");
    s.execute("ALTER TABLE runs RENAME COLUMN gone TO recoveries").await;
    s.now_is("2026-03-02T08:31:30Z").await;
    let recovery = until_run(&s, "recovery", 2).await;
    assert_eq!((&recovery["last_result"], &recovery["last_error"]), (&json!("skipped"), &Value::Null));
    s.end().await;
}

#[tokio::test]
async fn an_operator_can_run_a_job() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    // They chain the entries of the team and its keys, and verify the day before.
    s.job("audit").await;
    s.job("verify").await;
    for job in app::jobs::all_jobs(&s.app().config) {
        assert_eq!(s.job(job.name).await, Did::Nothing, "{}", job.name);
    }
    s.end().await;
}

/// A queued run of each workflow.
const QUEUED: &str = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
    SELECT gen_random_uuid(), id, 'manual', 'queued', $1, $1 FROM workflows";

/// The time of a pass is over after each workflow, and meanwhile the ones before have something to do again. The next pass
/// continues behind it, and begins with the first one after the last.
#[tokio::test]
async fn a_cut_pass_is_continued() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    for _ in 0..3 {
        hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    }
    let cursor = QueueCursor::default();
    let pass = async || advance_from(&s.pool, &cursor, Duration::ZERO, s.clock.now()).await.unwrap();
    for processed in 1..=3 {
        sqlx::query(QUEUED).bind(s.clock.now()).execute(&s.pool).await.unwrap();
        assert!(pass().await.may_be_more);
        let workflows = "SELECT count(DISTINCT workflow_id) FROM runs WHERE state = 'accepted'";
        assert_eq!(s.count(workflows).await, processed);
    }
    let end = pass().await;
    assert_eq!((end.promoted, end.may_be_more), (0, false));
    assert_eq!(pass().await.promoted, 2, "what the first one has got since");
    s.end_early().await;
}

/// A job is due and an instance asks for it, but the ledger of the database is held.
#[tokio::test]
async fn held_databases_give_no_jobs() {
    let s = idle().await;
    let way = LossyWay::to(&s.dsn()).await;
    s.until("SELECT count(*) FROM database_identity", 1).await;
    s.execute(
        "UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked';
         INSERT INTO jobs (name, next_run) VALUES ('recovery', cronbox_now())",
    )
    .await;
    way.lose_rows_of("take jobs");
    let app = App::start(&way.dsn(&s.dsn()), None).await;
    // When the second query is sent, the first has been answered.
    for _ in 0..2 {
        tokio::time::timeout(PATIENCE, way.wait_until_seen()).await.expect("it asks for no job");
    }
    let taken = "SELECT count(*) FROM jobs WHERE run_count > 0 AND name = 'recovery'";
    assert_eq!(s.count(taken).await, 0);
    s.execute("UPDATE database_identity SET held_on = NULL, held_reason = NULL").await;
    s.until(taken, 1).await;
    app.stop().await;
    s.end().await;
}
