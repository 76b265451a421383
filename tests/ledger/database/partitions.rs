//! Runs and occurrences by day: a day has its partitions before it begins, and loses them after the retention.

use chrono::{DateTime, Utc};
use executor::claim::{self, Fence, Finished, Lease, Ownership};
use ledger::runs::{Cancelled, RunState, cancel_run};
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use uuid::Uuid;

use super::query_plans::one_connection;
use crate::catch_up::watchdog_races::WAITING;
use crate::steps::{claimed, ended, fire_on_time, hourly, story_without_executor};

/// Later than the days for which the migration made partitions.
const MORNING: &str = "2035-03-02T08:30:00Z";
const NINE: &str = "2035-03-02T09:00:00Z";
/// More than the retention later.
const SUMMER: &str = "2035-07-02T08:30:00Z";

/// The partition of the decision of a time.
async fn partition_of(s: &Story, time: &str) -> String {
    let partition = "SELECT tableoid::regclass::text FROM occurrences WHERE scheduled_time = $1";
    let time = time.parse::<DateTime<Utc>>().unwrap();
    sqlx::query_scalar(partition).bind(time).fetch_one(&s.pool).await.unwrap()
}

/// A workflow with a run that a test executes: the run, its attempt and its instance.
async fn running(s: &Story, wf: WorkflowId) -> (Fence, Uuid) {
    assert_eq!(fire_on_time(s, wf, NINE).await, "accepted");
    claimed(s, wf).await;
    let running = "SELECT id, attempt, locked_by FROM runs WHERE state = 'running'";
    let (id, attempt, instance): (Uuid, i32, Uuid) = sqlx::query_as(running).fetch_one(&s.pool).await.unwrap();
    (Fence { id, attempt }, instance)
}

fn succeeded(result: Option<&Value>) -> Finished<'_> {
    Finished { state: RunState::Succeeded, result, error: None, failed_tries: 0 }
}

#[tokio::test]
async fn days_have_partitions_before_they_begin() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.job("prune").await;
    let of_next_week = "SELECT count(*) FROM pg_class
                         WHERE relname IN ('occurrences_20350309', 'runs_ended_20350309', 'run_results_20350309',
                                           'outbox_processed_20350309')";
    assert_eq!(s.count(of_next_week).await, 4);
    assert_eq!(fire_on_time(&s, wf, "2035-03-09T09:00:00Z").await, "accepted");
    assert_eq!(partition_of(&s, "2035-03-09T09:00:00Z").await, "occurrences_20350309");
    s.publish().await;
    s.end_early().await;
}

/// The job did not run for longer than it makes partitions ahead.
#[tokio::test]
async fn a_fire_without_a_partition_is_kept() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, NINE).await, "accepted");
    assert_eq!(partition_of(&s, NINE).await, "occurrences_later");
    s.job("prune").await;
    assert_eq!(partition_of(&s, NINE).await, "occurrences_20350302");
    assert_eq!(s.invoke(wf, NINE).await.status, 200, "a duplicate");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 1);
    s.publish().await;
    s.end_early().await;
}

const FIRST_DAY: &str = "SELECT count(*) FROM pg_class WHERE relname = 'occurrences_20350302'";

#[tokio::test]
async fn retention_waits_for_readers_not_fires() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.job("prune").await;
    assert_eq!(fire_on_time(&s, wf, NINE).await, "accepted");
    ended(&s, wf).await;
    s.execute("UPDATE ledger SET cursor = '2035-07-02T00:00:00Z'").await;
    s.now_is(SUMMER).await;
    let mut reader = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT count(*) FROM occurrences").execute(&mut *reader).await.unwrap();
    s.job("prune").await;
    assert_eq!(s.count(FIRST_DAY).await, 1, "a reader uses it");
    assert_eq!(fire_on_time(&s, wf, "2035-07-02T09:00:00Z").await, "accepted", "the reader delays no fire");
    sqlx::query("SELECT 1").execute(&mut *reader).await.unwrap();
    reader.rollback().await.unwrap();
    s.job("prune").await;
    assert_eq!(s.count(FIRST_DAY).await, 0, "the next turn drops it");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE finished_on IS NOT NULL").await, 0);
    s.publish().await;
    s.end_early().await;
}

/// The watchdog has not passed the time, and would record it as missed.
#[tokio::test]
async fn needed_decisions_outlive_their_day() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.job("prune").await;
    assert_eq!(fire_on_time(&s, wf, NINE).await, "accepted");
    s.now_is(SUMMER).await;
    s.job("prune").await;
    assert_eq!(s.count(FIRST_DAY).await, 0);
    assert_eq!(partition_of(&s, NINE).await, "occurrences_before");
    s.publish().await;
    s.end_early().await;
}

/// A cancellation waits for the row of a run that ends at the same moment.
#[tokio::test]
async fn waiters_of_an_ended_run_change_nothing() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    let (run, instance) = running(&s, wf).await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let finished = claim::finish_run(&mut tx, instance, run, &succeeded(None), s.clock.now()).await.unwrap();
    assert_eq!(finished, Ownership::Ours);
    let (pool, now) = (s.pool.clone(), s.clock.now());
    let cancelled = tokio::spawn(async move { cancel_run(&mut *pool.acquire().await?, run.id, now).await });
    s.until(WAITING, 1).await;
    tx.commit().await.unwrap();
    assert_eq!(cancelled.await.unwrap().unwrap(), Cancelled::TooLate);
    assert_eq!(s.table("SELECT state FROM runs").await, "succeeded");
    s.publish().await;
    s.end_early().await;
}

/// Lists and statistics read the history, so long results are in another table.
#[tokio::test]
async fn long_results_are_stored_apart() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    let (run, instance) = running(&s, wf).await;
    let long = json!({"status": 200, "body": "x".repeat(2_000)});
    let mut db = s.pool.acquire().await.unwrap();
    claim::finish_run(&mut db, instance, run, &succeeded(Some(&long)), s.clock.now()).await.unwrap();
    drop(db);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE result IS NULL").await, 1);
    assert_eq!(s.editor().get(&format!("/api/v1/runs/{}", run.id)).await.expect(200).json["result"], long);
    s.publish().await;
    s.end_early().await;
}

/// A renewal changes no column of an index, and its page has room.
#[tokio::test]
async fn renewals_of_leases_are_hot() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    let (run, instance) = running(&s, wf).await;
    let pool = one_connection(&s).await;
    let lease = Lease { instance, secs: 120.0 };
    for _ in 0..100 {
        let beats = claim::renew_leases(&mut pool.acquire().await.unwrap(), lease, &[run]).await.unwrap();
        assert!(beats.iter().all(|beat| beat.is_renewed), "{beats:?}");
    }
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.unwrap();
    let updates = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs_live'";
    let (all, hot): (i64, i64) = sqlx::query_as(updates).fetch_one(&pool).await.unwrap();
    assert!(all >= 100 && hot * 10 >= all * 8, "{hot} of {all}");
    s.publish().await;
    s.end_early().await;
}
