//! The watchdog at the same time as another watchdog or a fire: each time gets one decision and one run.

use db::Transaction;
use schedule::WorkflowId;
use serde_json::json;
use tests::{PATIENCE, Story};

use crate::steps::{fire, hourly, story_without_executor};

/// Locks a workflow's row, so that other transactions wait for it.
pub(crate) async fn lock_workflow(s: &Story, wf: WorkflowId) -> Transaction {
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let lock = "SELECT 1 FROM workflows WHERE id = $1 FOR NO KEY UPDATE";
    sqlx::query(lock).bind(wf.0).execute(&mut *tx).await.unwrap();
    tx
}

/// The number of backends that wait for a lock.
pub(crate) const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

#[tokio::test]
async fn a_locked_workflow_delays_no_other() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (first, second) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    s.now_is("2026-03-02T09:10:00Z").await;
    let holder = lock_workflow(&s, first).await;
    let pass = ledger::watchdog::decide_overdue_times(&s.pool, s.app().config.ledger_kept(), s.clock.now());
    let done = tokio::time::timeout(PATIENCE, pass).await.unwrap().unwrap();
    assert_eq!(done.caught_up, 1, "the watchdog waits for no lock");
    assert_eq!((s.occurrences(first).await, s.occurrences(second).await.is_empty()), (String::new(), false));
    holder.rollback().await.unwrap();
    s.job("watchdog").await;
    assert_eq!(s.occurrences(first).await, "2026-03-02T09:00Z caught_up", "the next turn decides it");
    s.end_early().await;
}

/// Three watchdogs and the late fires of twelve workflows decide at the same time.
#[tokio::test]
async fn watchdogs_and_fires_decide_each_time_once() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let mut workflows = Vec::new();
    for policy in ["skip", "run_all", "none"] {
        for _ in 0..4 {
            workflows.push(hourly(&s, json!({"catch_up_policy": policy, "overlap_policy": "concurrent"})).await);
        }
    }
    s.now_is("2026-03-02T12:10:00Z").await;
    let now = s.clock.now();
    let watchdogs = futures::future::join_all(
        (0..3).map(|_| ledger::watchdog::decide_overdue_times(&s.pool, s.app().config.ledger_kept(), now)),
    );
    let fires = futures::future::join_all(workflows.iter().flat_map(|wf| {
        let s = &s;
        (9..=12).map(move |hour| async move { fire(s, *wf, &format!("2026-03-02T{hour:02}:00:00Z")).await })
    }));
    let (passes, _) = tokio::join!(watchdogs, fires);
    assert!(passes.iter().all(Result::is_ok), "{passes:?}");
    s.job("watchdog").await;
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 48);
    let unlike = "SELECT count(*) FROM runs r FULL JOIN occurrences o ON o.run_id = r.id
                   WHERE r.id IS NULL AND o.decision IN ('fired', 'caught_up') OR o.id IS NULL";
    assert_eq!(s.count(unlike).await, 0, "who ran has a run, and no run is without its time");
    // The same times ran in either order.
    let ran = "SELECT count(*) FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
                WHERE o.run_id IS NOT NULL AND w.catch_up_policy = $1";
    for (policy, runs) in [("skip", 4), ("run_all", 16), ("none", 0)] {
        let counted: i64 = sqlx::query_scalar(ran).bind(policy).fetch_one(&s.pool).await.unwrap();
        assert_eq!(counted, runs, "{policy}");
    }
    s.end_early().await;
}

#[tokio::test]
async fn a_waiting_fire_sees_the_watchdogs_decision() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    // The fire waits for the lock; in the meantime the time is decided as the watchdog does it.
    let mut holder = lock_workflow(&s, wf).await;
    let firing = fire(&s, wf, "2026-03-02T09:00:00Z");
    let deciding = async {
        s.until(WAITING, 1).await;
        let insert = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s,
                                               decided_on, created_on, updated_on)
                      VALUES (gen_random_uuid(), $1, '2026-03-02T09:00:00Z', 'caught_up', gen_random_uuid(), 600, $2, $2, $2)";
        sqlx::query(insert).bind(wf.0).bind(s.clock.now()).execute(&mut *holder).await.unwrap();
        holder.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(firing, deciding);
    assert_eq!(answer, "duplicate");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    s.end_early().await;
}

/// An edit that waits for its lock while the pause ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Patch,
    Resume,
    BulkResume,
}

/// The pause ends while the edit waits for the lock: the edit evaluates it at the instant that it has itself, so the time
/// at the end of the pause is due.
#[tokio::test]
async fn a_pause_that_ends_while_an_edit_waits_loses_no_time() {
    for edit in [Edit::Patch, Edit::Resume, Edit::BulkResume] {
        let s = story_without_executor("2026-03-02T08:30:00Z").await;
        let wf = hourly(&s, json!({"catch_up_policy": "run_all", "overlap_policy": "concurrent"})).await;
        let until = json!({"until": "2026-03-02T11:00:00Z"});
        s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
        s.now_is("2026-03-02T10:59:59Z").await;
        let body = json!({"verb": "resume", "filter": {"workflow_ids": [wf.0]}});
        if edit == Edit::BulkResume {
            s.editor().post("/api/v1/bulk", &body).await.expect(202);
        }
        let holder = lock_workflow(&s, wf).await;
        let editing = async {
            match edit {
                Edit::Patch => drop(s.edit(wf, json!({"cron_schedule": "0,30 * * * *"})).await),
                Edit::Resume => s.resume(wf).await,
                Edit::BulkResume => drop(s.job("bulk").await),
            }
        };
        let ending = async {
            s.until(WAITING, 1).await;
            s.now_is("2026-03-02T11:00:01Z").await;
            holder.rollback().await.unwrap();
        };
        tokio::join!(editing, ending);
        let since =
            "SELECT count(*) FROM schedule_versions WHERE state = 'active' AND valid_from = '2026-03-02T11:00:00Z'";
        assert_eq!(s.count(since).await, 1, "{edit:?}: in force since the end of the pause");
        s.now_is("2026-03-02T11:10:00Z").await;
        s.job("watchdog").await;
        // A time of a version that an edit has ended is not caught up, but it is decided.
        let decision = if edit == Edit::Patch { "missed" } else { "caught_up" };
        assert_eq!(s.occurrences(wf).await, format!("2026-03-02T11:00Z {decision}"), "{edit:?}");
        s.end_early().await;
    }
}
