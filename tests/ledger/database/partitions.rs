//! Runs and occurrences by day: a day has its partitions before it begins, and loses them after the retention.

use std::sync::atomic::{AtomicBool, Ordering};

use app::jobs::Did;
use chrono::{DateTime, Utc};
use executor::claim::{self, Fence, Finished, Lease, Ownership, Slots};
use ledger::runs::{Cancelled, RunState, cancel_run};
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use uuid::Uuid;

use super::query_plans::one_connection;
use crate::catch_up::watchdog_races::WAITING;
use crate::steps::{
    claimed, ended, fire, fire_on_time, hourly, pruned, session_without_limits, story_without_executor,
};

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

/// Statements wait behind a function that changes partitions as long as it waits for its lock.
const WAIT_BRIEFLY: &str = "SELECT count(*) FROM pg_proc
                             WHERE proname IN ('make_day_partitions', 'drop_oldest_partition')
                               AND 'lock_timeout=100ms' = ANY(proconfig)";

/// A reader uses the partition that retention wants to drop. Each turn locks the table, waits, and gives up, while fires
/// are decided. A turn after the reader's end drops the partition.
#[tokio::test]
async fn retention_waits_for_readers_not_fires() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    let mut later = Vec::new();
    for _ in 0..10 {
        later.push(hourly(&s, json!({})).await);
    }
    s.job("prune").await;
    assert_eq!(fire_on_time(&s, wf, NINE).await, "accepted");
    ended(&s, wf).await;
    s.execute("UPDATE ledger SET cursor = '2035-07-02T00:00:00Z'").await;
    s.now_is("2035-07-02T09:00:05Z").await;
    let mut reader = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM occurrences_20350302").execute(&mut reader).await.unwrap();
    let (is_over, mut turns) = (AtomicBool::default(), 0);
    let prune = async {
        while turns == 0 || !is_over.load(Ordering::SeqCst) {
            assert!(matches!(s.job("prune").await, Did::Waits(_)), "the next turn is a minute later");
            turns += 1;
        }
    };
    let fires = async {
        for wf in &later {
            assert_eq!(fire(&s, *wf, "2035-07-02T09:00:00Z").await, "accepted", "the turns delay no fire");
        }
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(prune, fires);
    assert_eq!(s.count(FIRST_DAY).await, 1, "a reader uses it, in {turns} turns");
    assert_eq!(s.count(WAIT_BRIEFLY).await, 2);
    sqlx::raw_sql("ROLLBACK").execute(&mut reader).await.unwrap();
    pruned(&s).await;
    assert_eq!(s.count(FIRST_DAY).await, 0, "the next turn drops it");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE finished_on IS NOT NULL").await, 0);
    s.publish().await;
    s.end_early().await;
}

/// A backup reads at the time of the job, each night.
#[tokio::test]
async fn locked_tables_get_their_days_soon() {
    let s = story_without_executor(MORNING).await;
    let mut reader = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM occurrences").execute(&mut reader).await.unwrap();
    let of_next_week = "SELECT count(*) FROM pg_class WHERE relname IN ('occurrences_20350309', 'runs_ended_20350309')";
    assert!(matches!(s.job("prune").await, Did::Waits(_)), "the next turn is a minute later");
    assert_eq!(s.count(of_next_week).await, 1);
    sqlx::raw_sql("ROLLBACK").execute(&mut reader).await.unwrap();
    pruned(&s).await;
    assert_eq!(s.count(of_next_week).await, 2);
    s.end_early().await;
}

/// Decides a time that is older than all days, as a backfill does.
const DECIDE_OLD: &str = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
                          VALUES (gen_random_uuid(), $1, '2020-01-01T00:00:00Z', 'missed', 0, $2, $2, $2)";
const DROP_OLDEST: &str = "SELECT drop_oldest_partition('occurrences', '2036-01-01T00:00:00Z', '2036-01-01T00:00:00Z')";

/// Another transaction commits a decision while the oldest day is dropped: it is not lost with the empty partition.
#[tokio::test]
async fn writes_during_a_drop_stay() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.execute("ALTER FUNCTION drop_oldest_partition SET lock_timeout = '10s'").await;
    let mut writer = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query(DECIDE_OLD).bind(wf.0).bind(s.clock.now()).execute(&mut *writer).await.unwrap();
    let pool = s.pool.clone();
    let dropped = tokio::spawn(async move { sqlx::query_scalar::<_, String>(DROP_OLDEST).fetch_one(&pool).await });
    s.until(WAITING, 1).await;
    writer.commit().await.unwrap();
    assert_eq!(dropped.await.unwrap().unwrap(), "dropped");
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 1);
    s.publish().await;
    s.end_early().await;
}

/// The table of before the partitions is a large file, from which nearly all rows have been deleted: it does not keep
/// the days. A newest decision stays, here one from before migration 26.
#[tokio::test]
async fn few_old_rows_keep_no_day() {
    let s = story_without_executor(MORNING).await;
    // Each row has a page of its own: 278 MB.
    s.execute_long(
        "ALTER TABLE occurrences_before SET (fillfactor = 10);
         ALTER TABLE occurrences_before DROP CONSTRAINT occurrences_run;
         INSERT INTO occurrences_before (id, workflow_id, scheduled_time, decision, reason, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), n, '2020-01-01T00:00:00Z', 'fired', repeat('x', 800), 0, now(), now(), now() FROM generate_series(1, 34000) n;
         ALTER TABLE occurrences_before ADD CONSTRAINT occurrences_run CHECK (run_id IS NOT NULL OR decision = 'missed') NOT VALID;",
    )
    .await;
    let mut session = session_without_limits(&s).await;
    let full = sqlx::query_scalar::<_, String>(DROP_OLDEST).fetch_one(&mut session).await.unwrap();
    assert_eq!(full, "needed", "most rows are still to be deleted");
    s.execute_long("DELETE FROM occurrences_before WHERE workflow_id % 1000 <> 0").await;
    let few = sqlx::query_scalar::<_, String>(DROP_OLDEST).fetch_one(&mut session).await.unwrap();
    assert_eq!(few, "dropped");
    assert_eq!(s.count("SELECT count(*) FROM occurrences_before").await, 34);
    assert!(s.count("SELECT pg_relation_size('occurrences_before')").await < 1 << 20);
    s.end_early().await;
}

/// The job did not run for so long that to move the rows would take longer than a statement may.
#[tokio::test]
async fn many_rows_become_a_partition() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.execute(
        "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), n, '2035-03-01T00:00:00Z', 'missed', 0, now(), now(), now() FROM generate_series(1, 10001) n",
    )
    .await;
    let file = s.count("SELECT pg_relation_filenode('occurrences_later')::bigint").await;
    s.job("prune").await;
    assert_eq!(partition_of(&s, "2035-03-01T00:00:00Z").await, "occurrences_20350303");
    assert_eq!(s.count("SELECT pg_relation_filenode('occurrences_20350303')::bigint").await, file, "no row has moved");
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 10_001);
    assert_eq!(fire_on_time(&s, wf, "2035-03-04T09:00:00Z").await, "accepted");
    assert_eq!(partition_of(&s, "2035-03-04T09:00:00Z").await, "occurrences_20350304");
    s.publish().await;
    s.end_early().await;
}

/// A needed decision moves to another partition, and the statistics have counted it before.
#[tokio::test]
async fn moved_decisions_are_counted_once() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.job("prune").await;
    assert_eq!(fire_on_time(&s, wf, NINE).await, "accepted");
    s.now_is(SUMMER).await;
    s.job("prune").await;
    assert_eq!(partition_of(&s, NINE).await, "occurrences_before");
    assert_eq!(s.count("SELECT sum(times)::bigint FROM decision_minutes").await, 1);
    s.publish().await;
    s.end_early().await;
}

/// A schedule runs less often than the retention is long. Its receiver learns the time of the run before.
#[tokio::test]
async fn last_times_outlive_their_day() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.job("prune").await;
    assert_eq!(fire_on_time(&s, wf, NINE).await, "accepted");
    ended(&s, wf).await;
    s.execute("UPDATE ledger SET cursor = '2035-07-02T00:00:00Z'").await;
    s.now_is(SUMMER).await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 0);
    assert_eq!(fire_on_time(&s, wf, "2035-07-02T09:00:00Z").await, "accepted");
    let lease = Lease { instance: Uuid::new_v4(), secs: 120.0 };
    let mut db = s.pool.acquire().await.unwrap();
    let claimed = claim::claim_due_runs(&mut db, lease, &Slots::all_free(1), &[], s.clock.now()).await.unwrap();
    assert_eq!(claimed[0].last_scheduled_time, Some(NINE.parse().unwrap()));
    drop(db);
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

/// The statistics count what is inserted, and a row that must stay was inserted again when its day went.
#[tokio::test]
async fn moved_rows_are_counted_once() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.job("prune").await;
    let (run, instance) = running(&s, wf).await;
    s.now_is(SUMMER).await;
    let mut db = s.pool.acquire().await.unwrap();
    claim::finish_run(&mut db, instance, run, &succeeded(None), s.clock.now()).await.unwrap();
    drop(db);
    s.job("prune").await;
    assert_eq!(partition_of(&s, NINE).await, "occurrences_before", "the watchdog has not passed the time");
    let run_of = s.table("SELECT tableoid::regclass::text FROM runs WHERE finished_on IS NOT NULL").await;
    assert_eq!(run_of, "runs_ended_before", "it ended after its day");
    assert_eq!(s.count("SELECT sum(times)::bigint FROM decision_minutes").await, 1);
    assert_eq!(s.count("SELECT sum(runs)::bigint FROM run_end_minutes").await, 1);
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
