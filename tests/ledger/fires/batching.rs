//! Fires that arrive at the same time are decided in one batch, each with the same result as without the batch.

use std::sync::OnceLock;

use futures::FutureExt as _;
use futures::future::join_all;
use schedule::WorkflowId;
use serde_json::json;
use tests::{PATIENCE, Story};

use crate::catch_up::watchdog_races::WAITING;
use crate::steps::{claimed, fire, hourly, session_without_limits, story_without_executor, wait_long_for_locks};

async fn workflows(s: &Story, count: usize) -> Vec<WorkflowId> {
    let mut made = Vec::new();
    for _ in 0..count {
        made.push(hourly(s, json!({})).await);
    }
    made
}

async fn fire_all(s: &Story, workflows: &[WorkflowId], time: &str) -> Vec<String> {
    join_all(workflows.iter().map(|wf| fire(s, *wf, time))).await
}

/// Sixty fires of one hour take few commits. Those of paused, archived and edited workflows get their own answers.
#[tokio::test]
async fn a_batch_decides_each_fire_by_itself() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let all = workflows(&s, 60).await;
    s.pause(all[1]).await;
    s.archive(all[2]).await;
    s.edit(all[3], json!({"cron_schedule": "30 * * * *"})).await;
    s.edit(all[4], json!({"spread_secs": 600})).await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let answers = fire_all(&s, &all, "2026-03-02T09:00:00Z").await;
    assert_eq!(answers[1..4], ["paused", "410 workflow_gone", "not_due"]);
    assert!(answers[4..].iter().chain([&answers[0]]).all(|answer| answer == "accepted"), "{answers:?}");
    // Each row has the id of its transaction.
    let commits = s.count("SELECT count(DISTINCT xmin::text) FROM occurrences").await;
    assert!(commits < 20, "57 runs took {commits} commits");
    assert_eq!(
        s.count("SELECT count(*) FROM runs r JOIN occurrences o ON o.run_id = r.id AND r.occurrence_id = o.id").await,
        57
    );
    let spread = "SELECT count(*) FROM runs WHERE run_after > '2026-03-02T09:00:05Z'";
    assert_eq!(s.count(spread).await, 1);
    // The runs of this hour still run, so the fires of the next hour must wait for them.
    s.now_is("2026-03-02T10:00:05Z").await;
    let answers = fire_all(&s, &all[5..], "2026-03-02T10:00:00Z").await;
    assert!(answers.iter().all(|answer| answer == "accepted"), "{answers:?}");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'queued'").await, 55, "each waits for the run before");
    s.end_early().await;
}

/// The previous runs of sixty workflows have not ended. Whether their fires are skipped, wait or replace a waiting fire,
/// they take few commits.
#[tokio::test]
async fn overlapping_fires_share_commits() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (started, waiting) = (workflows(&s, 20).await, workflows(&s, 20).await);
    let mut queued = Vec::new();
    for _ in 0..20 {
        queued.push(hourly(&s, json!({"overlap_policy": "queue"})).await);
    }
    let all = [started.clone(), waiting.clone(), queued.clone()].concat();
    s.now_is("2026-03-02T09:00:05Z").await;
    assert!(fire_all(&s, &all, "2026-03-02T09:00:00Z").await.iter().all(|answer| answer == "accepted"));
    for wf in &started {
        claimed(&s, *wf).await;
    }
    for hour in ["10", "11"] {
        let time = format!("2026-03-02T{hour}:00:00Z");
        s.now_is(&format!("2026-03-02T{hour}:00:05Z")).await;
        assert!(fire_all(&s, &started, &time).await.iter().all(|answer| answer == "overlap"), "{hour}");
        assert!(fire_all(&s, &waiting, &time).await.iter().all(|answer| answer == "accepted"), "{hour}");
        assert!(fire_all(&s, &queued, &time).await.iter().all(|answer| answer == "accepted"), "{hour}");
        let commits = "SELECT count(DISTINCT xmin::text) FROM occurrences WHERE scheduled_time = $1::timestamptz";
        let commits: i64 = sqlx::query_scalar(commits)
            .bind(s.clock.now() - chrono::TimeDelta::seconds(5))
            .fetch_one(&s.pool)
            .await
            .unwrap();
        assert!(commits < 30, "60 fires of {hour}:00 took {commits} commits");
    }
    // 11:00 has taken the place of 10:00.
    let (first, time) = (waiting[0], "2026-03-02T10:00:00Z");
    assert_eq!(fire(&s, first, time).await, "overlap", "the cache has forgotten the replaced run");
    assert_eq!(
        s.runs(first).await,
        "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule cancelled\n2026-03-02T11:00Z schedule queued"
    );
    let decisions = "SELECT string_agg(decision || ' ' || COALESCE(reason, '-'), ', ' ORDER BY scheduled_time)
                       FROM occurrences GROUP BY workflow_id";
    let by_workflow = s.table(decisions).await;
    let count = |line: &str| by_workflow.lines().filter(|found| *found == line).count();
    assert_eq!(count("fired -, skipped_overlap previous_run_not_ended, skipped_overlap previous_run_not_ended"), 20);
    assert_eq!(count("fired -, skipped_overlap predecessor_not_started, fired -"), 20);
    assert_eq!(count("fired -, fired -, fired -"), 20);
    s.end_early().await;
}

/// Three times of the workflow fire at the same moment.
#[tokio::test]
async fn fires_of_one_workflow_are_decided_sequentially() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *"})).await;
    s.now_is("2026-03-02T09:02:30Z").await;
    let times = ["2026-03-02T09:00:00Z", "2026-03-02T09:01:00Z", "2026-03-02T09:02:00Z"];
    let answers = join_all(times.map(|time| fire(&s, wf, time))).await;
    assert_eq!(answers[2], "accepted", "{answers:?}");
    // The first fire takes the slot, and the newest of the others waits for it.
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'accepted'").await, 1);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'queued'").await, 1);
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'fired'").await, 2);
    let skipped = "SELECT count(*) FROM occurrences WHERE reason = 'predecessor_not_started' AND run_id IS NULL";
    assert_eq!(s.count(skipped).await, 1);
    s.end_early().await;
}

#[tokio::test]
async fn locked_workflows_delay_only_their_own_fires() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let all = workflows(&s, 20).await;
    s.now_is("2026-03-02T09:00:05Z").await;
    wait_long_for_locks(&s).await;
    let mut holder = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN").execute(&mut holder).await.unwrap();
    // More workflows than concurrent batches, and fired first, so that they could block every batch.
    let (locked, free) = all.split_at(4);
    let lock = "SELECT 1 FROM workflows WHERE id <= $1 FOR NO KEY UPDATE";
    sqlx::query(lock).bind(locked[3].0).execute(&mut holder).await.unwrap();
    let first = OnceLock::new();
    let fire_some = async |some: &[WorkflowId], which: &'static str| {
        let answers = some.iter().map(|wf| fire(&s, *wf, "2026-03-02T09:00:00Z").inspect(|_| _ = first.set(which)));
        join_all(answers).await
    };
    let others = async {
        s.until(WAITING, 4).await;
        let answers = tokio::time::timeout(PATIENCE, fire_some(free, "free")).await.expect("a batch waits");
        assert!(answers.iter().all(|answer| answer == "accepted"), "{answers:?}");
        // If a batch had waited for the locked rows, the fires of these rows would have been answered first, with a
        // timeout.
        assert_eq!(first.get(), Some(&"free"));
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    };
    let (answers, ()) = tokio::join!(fire_some(locked, "locked"), others);
    for (wf, answer) in locked.iter().zip(answers) {
        // On a busy machine, this fire may have reached its timeout.
        let answer = if answer.starts_with("503 ") { fire(&s, *wf, "2026-03-02T09:00:00Z").await } else { answer };
        assert_eq!(answer, "accepted", "decided once the rows are free");
    }
    s.end_early().await;
}

/// Two batches wait for the database. All other fires must collect for the next batch.
#[tokio::test]
async fn two_batches_are_decided_at_once() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let all = workflows(&s, 8).await;
    s.now_is("2026-03-02T09:00:05Z").await;
    wait_long_for_locks(&s).await;
    let mut locker = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE occurrences IN EXCLUSIVE MODE").execute(&mut locker).await.unwrap();
    let nine = "2026-03-02T09:00:00Z";
    let more = async {
        s.until(WAITING, 2).await;
        let watch = async {
            for _ in 0..100 {
                assert!(s.count(WAITING).await <= 2, "a third batch");
            }
            sqlx::raw_sql("ROLLBACK").execute(&mut locker).await.unwrap();
        };
        tokio::join!(fire_all(&s, &all[2..], nine), watch).0
    };
    let second = async {
        s.until(WAITING, 1).await;
        tokio::join!(fire(&s, all[1], nine), more)
    };
    let (first, (second, more)) = tokio::join!(fire(&s, all[0], nine), second);
    assert!([first, second].iter().chain(&more).all(|answer| answer == "accepted"), "{more:?}");
    s.end_early().await;
}

/// Postgres aborts the batch with a serialization failure.
#[tokio::test]
async fn fires_of_aborted_batches_are_retried_singly() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let all = workflows(&s, 10).await;
    s.execute(
        "CREATE SEQUENCE taken_back;
         GRANT USAGE ON SEQUENCE taken_back TO PUBLIC;
         CREATE FUNCTION take_back() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF nextval('taken_back') <= 4 THEN RAISE EXCEPTION 'another came first' USING ERRCODE = '40001'; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER take_back BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION take_back()",
    )
    .await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let answers = fire_all(&s, &all, "2026-03-02T09:00:00Z").await;
    assert!(answers.iter().all(|answer| answer == "accepted"), "{answers:?}");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 10);
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 10);
    s.end_early().await;
}

/// A retry can succeed after a conflict with another transaction, but not after any other error.
#[tokio::test]
async fn conflicts_are_tried_five_times() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *"})).await;
    s.execute(
        "CREATE SEQUENCE tries;
         GRANT USAGE ON SEQUENCE tries TO PUBLIC;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM nextval('tries');
             RAISE EXCEPTION 'refused' USING ERRCODE = TG_ARGV[0];
         END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION refuse('40001')",
    )
    .await;
    // The batch takes every fire on time, also one that a later due time has overtaken.
    s.now_is("2026-03-02T09:05:00Z").await;
    let (runner, path) = (s.scheduler_key(), format!("/api/v1/cron/workflows/{wf}:invoke"));
    let nine = json!({"scheduled_time": "2026-03-02T09:00:00Z"});
    assert!(runner.post(&path, &nine).await.status >= 500);
    assert_eq!(s.count("SELECT last_value FROM tries").await, 6, "once with its batch, five times by itself");
    s.execute("CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION refuse('22000')")
        .await;
    assert!(runner.post(&path, &nine).await.status >= 500);
    assert_eq!(s.count("SELECT last_value FROM tries").await, 8, "once with its batch, once by itself");
    s.execute("DROP TRIGGER refuse ON runs").await;
    assert_eq!(runner.post(&path, &nine).await.status, 202);
    s.end_early().await;
}

/// A batch fails, but the database is available. So its callers get the error itself and not a 503.
#[tokio::test]
async fn batch_errors_reach_their_callers() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    s.now_is("2026-03-02T09:00:05Z").await;
    s.execute("DELETE FROM settable_clock").await;
    let answer = fire(&s, wf, "2026-03-02T09:00:00Z").await;
    assert!(answer.starts_with("500 "), "{answer}");
    s.execute("INSERT INTO settable_clock VALUES ('2026-03-02T09:00:05Z')").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    s.end_early().await;
}
