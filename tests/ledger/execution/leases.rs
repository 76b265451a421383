//! Leases: each belongs to the attempt that its process executes.

use app::jobs::Did;
use executor::claim::{self, Fence, Lease, Unknown};
use serde_json::{Value, json};
use tests::{LossyWay, PATIENCE, Story, Way};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::catch_up::watchdog_races::WAITING;
use crate::process::{App, LONG_LEASE, idle};
use crate::receiver::{Receiver, accept, run, until_state};

/// A run can be free again while its old attempt still stops. Its process must not execute both at the same time.
#[tokio::test]
async fn claims_leave_out_what_their_process_executes() {
    let s = idle().await;
    let id = accept(&s, s.create_with(json!({})).await).await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let slots = claim::Slots::all_free(10);
    let beside = claim::claim_due_runs(&mut tx, lease, &slots, &[id], s.clock.now()).await.unwrap();
    assert!(beside.is_empty(), "{beside:?}");
    assert_eq!(claim::claim_due_runs(&mut tx, lease, &slots, &[], s.clock.now()).await.unwrap().len(), 1);
    tx.rollback().await.unwrap();
    s.end_early().await;
}

/// The instance executes another run while the reply to a claim is lost after the commit.
#[tokio::test]
async fn run_of_lost_claim_reply_is_executed() {
    let s = idle().await;
    let way = LossyWay::to(&s.dsn()).await;
    let (slow, receiver) = (Receiver::slow().await, Receiver::kind().await);
    let busy = accept(&s, s.create_with(json!({"action": slow.action()})).await).await;
    let app = App::with(&way.dsn(&s.dsn()), &LONG_LEASE).await;
    slow.until(1).await;
    way.lose_rows_of("claim runs");
    tokio::time::timeout(PATIENCE, way.wait_until_seen()).await.expect("no claim");
    let lost = accept(&s, s.create_with(json!({"action": receiver.action(), "on_lost": "abandon"})).await).await;
    tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("the run is not claimed");
    until_state(&s, lost, "succeeded").await;
    assert_eq!(receiver.received().len(), 1, "nothing was sent before the reply got lost");
    assert_eq!(receiver.calls()[0]["context"]["is_recovery"], false);
    let busy_run = run(&s, busy).await;
    assert_eq!((&busy_run["state"], &busy_run["attempt"]), (&json!("running"), &json!(1)), "busy all the time");
    slow.let_answer(1);
    until_state(&s, busy, "succeeded").await;
    app.stop().await;
    s.end().await;
}

/// A row of this instance that no attempt of its process executes, and an older attempt of one that does.
#[tokio::test]
async fn renewals_leave_unknown_attempts_alone() {
    let s = idle().await;
    let wf = s.create_with(json!({"overlap_policy": "concurrent"})).await;
    let [executed, unknown, retaken] = [accept(&s, wf).await, accept(&s, wf).await, accept(&s, wf).await];
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 3600.0 };
    let claimed = "UPDATE runs SET state = 'running', attempt = 2, started_on = run_after, locked_by = $1,
                                   locked_at = cronbox_now(), lease_until = cronbox_now()";
    sqlx::query(claimed).bind(lease.instance).execute(&s.pool).await.unwrap();
    let executing = [Fence { id: executed, attempt: 2 }, Fence { id: retaken, attempt: 1 }];
    let beats = claim::renew_leases(&mut s.pool.acquire().await.unwrap(), lease, &executing).await.unwrap();
    assert_eq!(beats.iter().map(|beat| beat.id).collect::<Vec<_>>(), [executed], "the other has lost its run");
    let over = "SELECT id::text FROM runs WHERE lease_until <= cronbox_now() ORDER BY id";
    let mut free = [unknown.to_string(), retaken.to_string()];
    free.sort();
    assert_eq!(s.table(over).await, free.join("\n"), "recovery takes these over");
    s.execute("UPDATE runs SET state = 'cancelled', finished_on = run_after WHERE finished_on IS NULL").await;
    s.end().await;
}

/// The database is away for longer than two thirds of a lease, and back before the lease has expired.
#[tokio::test]
async fn run_stopped_for_its_lease_is_recovered() {
    let s = idle().await;
    let mut way = Way::to(&s.dsn()).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let wf = s.create_with(json!({"action": {"type": "http", "method": "POST", "url": url}})).await;
    let id = accept(&s, wf).await;
    let app = App::with(&way.dsn(&s.dsn()), &[("CRONBOX_LOST_AFTER_SECS", "6"), ("CRONBOX_HEARTBEAT_MS", "250")]).await;
    let (mut connection, _) = silent.accept().await.unwrap();
    until_state(&s, id, "running").await;
    way.cut().await;
    let hung_up = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut Vec::new())).await;
    hung_up.expect("the attempt has not stopped").ok();
    way.mend().await;
    // Constant load: each heartbeat has a lease to renew.
    let slow = Receiver::slow().await;
    let busy = accept(&s, s.create_with(json!({"action": slow.action()})).await).await;
    slow.until(1).await;
    let again = tokio::time::timeout(PATIENCE, silent.accept()).await;
    let (_connection, _) = again.expect("the run is never executed again").unwrap();
    assert!(until_state(&s, id, "running").await["attempt"].as_i64() >= Some(2));
    assert_eq!(run(&s, busy).await["state"], "running");
    slow.let_answer(1);
    until_state(&s, busy, "succeeded").await;
    app.stop().await;
    s.publish().await;
    s.end_early().await;
}

/// The instance executes another run while an attempt panics after its action.
#[tokio::test]
async fn run_of_panicked_attempt_is_recovered() {
    let s = idle().await;
    let (slow, receiver) = (Receiver::slow().await, Receiver::kind().await);
    let busy = accept(&s, s.create_with(json!({"action": slow.action()})).await).await;
    let app = App::with(&s.dsn(), &[("CRONBOX_FAULT", "I5:1:panic"), LONG_LEASE[0]]).await;
    slow.until(1).await;
    let id = accept(&s, s.create_with(json!({"action": receiver.action()})).await).await;
    // The lease of an hour does not expire; the instance releases it.
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 2);
    let said: Vec<Value> = receiver.calls().iter().map(|call| call["context"]["is_recovery"].clone()).collect();
    assert_eq!(said, [false, true]);
    assert_eq!(run(&s, busy).await["state"], "running", "the instance goes on");
    slow.let_answer(1);
    until_state(&s, busy, "succeeded").await;
    app.stop().await;
    s.end().await;
}

/// The instance with the recovery job has a shorter lease than the instance that executes.
#[tokio::test]
async fn a_lease_follows_its_owners_settings() {
    let s = idle().await;
    let receiver = Receiver::slow().await;
    let id = accept(&s, s.create_with(json!({"action": receiver.action()})).await).await;
    let long =
        [("CRONBOX_LOST_AFTER_SECS", "120"), ("CRONBOX_HEARTBEAT_MS", "10000"), ("CRONBOX_JOBS_ENABLED", "false")];
    let owner = App::with(&s.dsn(), &long).await;
    receiver.until(1).await;
    let short = [
        ("CRONBOX_LOST_AFTER_SECS", "1"),
        ("CRONBOX_HEARTBEAT_MS", "100"),
        ("CRONBOX_EXECUTOR_SLOTS", "0"),
        ("CRONBOX_JOB_TIMEOUTS", "1s"),
    ];
    let other = App::with(&s.dsn(), &short).await;
    let turns =
        "SELECT (coalesce(min(run_count), 0) >= 4)::int::bigint FROM jobs WHERE name IN ('recovery', 'timeouts')";
    s.until(turns, 1).await;
    assert_eq!(receiver.received().len(), 1, "never two requests of one run at once");
    receiver.let_answer(2);
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 1);
    owner.stop().await;
    other.stop().await;
    s.end().await;
}

/// The receiver fails, the run is accepted again, and the reply to this commit is lost.
#[tokio::test]
async fn a_lost_reply_leaves_no_late_result() {
    let s = idle().await;
    let way = LossyWay::to(&s.dsn()).await;
    let receiver = Receiver::answering(&[(500, "")]).await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 2})).await;
    let app = App::with(&way.dsn(&s.dsn()), &LONG_LEASE).await;
    way.lose_reply_to("try a run again");
    let id = accept(&s, wf).await;
    tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("no retry");
    // Ends the pause before the next try.
    s.execute("UPDATE runs SET run_after = created_on WHERE state = 'accepted'").await;
    let done = until_state(&s, id, "succeeded").await;
    assert_eq!((&done["attempt"], receiver.received().len()), (&json!(2), 2), "{done}");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE late_result IS NOT NULL").await, 0);
    app.stop().await;
    s.end().await;
}

/// Of two lost runs, one is retried and one is abandoned. The workflow of the first is locked.
#[tokio::test]
async fn recovery_advances_only_queues_of_ended_runs() {
    let s = idle().await;
    let goes_on = s.create_with(json!({"on_lost": "retry"})).await;
    let abandoned = s.create_with(json!({"on_lost": "abandon"})).await;
    for workflow in [goes_on, abandoned] {
        accept(&s, workflow).await;
    }
    s.execute(
        "UPDATE runs SET state = 'running', attempt = 1, started_on = run_after, locked_by = gen_random_uuid(),
                         locked_at = cronbox_now() - INTERVAL '1 hour'",
    )
    .await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT FROM workflows WHERE id = $1 FOR UPDATE").bind(goes_on.0).execute(&mut *tx).await.unwrap();
    let all = "lost runs: 1 continue, 1 abandoned, 0 cancelled";
    assert_eq!(s.job("recovery").await, Did::All(all.to_owned()));
    tx.rollback().await.unwrap();
    s.execute("UPDATE runs SET state = 'cancelled', finished_on = run_after WHERE finished_on IS NULL").await;
    s.end().await;
}

/// A run that ignores its timeout is ended by the job. It has a try left, so it waits for the next one.
#[tokio::test]
async fn hard_timeout_leaves_the_remaining_tries() {
    let app = |config: &mut app::Config| config.heartbeat_ms = 20;
    let now = Some(crate::receiver::NOON.parse().unwrap());
    let s = Story::with(local::stack::StackOptions { now, app, ..Default::default() }).await;
    let receiver = Receiver::slow().await;
    let body = json!({"action": receiver.action(), "timeout_secs": 3600, "max_attempts": 2});
    let id = accept(&s, s.create_with(body).await).await;
    receiver.until(1).await;
    s.now_is("2026-03-02T13:01:00Z").await;
    s.until("SELECT count(*) FROM runs WHERE locked_at = cronbox_now()", 1).await;
    assert_eq!(s.job("timeouts").await, Did::All("1 runs have timed out".to_owned()));
    let waits = run(&s, id).await;
    assert_eq!((&waits["state"], &waits["finished_on"]), (&json!("accepted"), &Value::Null), "{waits}");
    let pause =
        "SELECT count(*) FROM runs WHERE tries = 1 AND run_after - '2026-03-02T13:01:00Z' BETWEEN '5 s' AND '10 s'";
    assert_eq!(s.count(pause).await, 1);
    s.now_is("2026-03-02T13:01:10Z").await;
    receiver.until(2).await;
    s.now_is("2026-03-02T14:02:10Z").await;
    s.until("SELECT count(*) FROM runs WHERE locked_at = cronbox_now()", 1).await;
    assert_eq!(s.job("timeouts").await, Did::All("1 runs have timed out".to_owned()));
    assert_eq!(run(&s, id).await["state"], "timed_out", "that was its last try");
    s.end().await;
}

/// A statement that changes several attempts of one instance.
#[derive(Clone, Copy, Debug)]
enum About {
    Release,
    LostClaim,
}

impl About {
    async fn execute(self, s: &Story, lease: Lease, attempts: &[Fence]) -> sqlx::Result<()> {
        let mut connection = s.pool.acquire().await?;
        match self {
            Self::Release => {
                let locked = claim::release_attempts(&mut connection, lease.instance, attempts).await?;
                assert_eq!(locked, attempts[1..], "the locked one is still ours");
            }
            Self::LostClaim => {
                let unknown = claim::hand_over_unknown(&mut connection, lease.instance, attempts, 3600.0).await?;
                assert_eq!(unknown, Unknown { handed_over: 1, locked: 1 });
            }
        }
        Ok(())
    }
}

/// Archiving locks the runs of its workflow in the order of their ids, and waits for the first. At this moment, the
/// instance that executes them changes them, too: it waits for no lock.
#[tokio::test]
async fn archiving_and_heartbeats_never_deadlock() {
    let (s, mut failed) = (idle().await, Vec::new());
    for about in [About::Release, About::LostClaim] {
        let wf = s.create_with(json!({"overlap_policy": "concurrent"})).await;
        let mut ids = [accept(&s, wf).await, accept(&s, wf).await];
        ids.sort();
        let [first, last] = ids;
        let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 3600.0 };
        // The last run comes before the first in the table and in the statement.
        for id in [last, first] {
            let claimed = "UPDATE runs SET state = 'running', attempt = 1, started_on = run_after, locked_by = $2,
                                           locked_at = cronbox_now() WHERE id = $1";
            sqlx::query(claimed).bind(id).bind(lease.instance).execute(&s.pool).await.unwrap();
        }
        let attempts = [last, first].map(|id| Fence { id, attempt: 1 });
        let mut tx = db::begin_transaction(&s.pool).await.unwrap();
        sqlx::query("SELECT FROM runs WHERE id = $1 FOR UPDATE").bind(first).execute(&mut *tx).await.unwrap();
        let instance = async {
            s.until(WAITING, 1).await;
            let done = about.execute(&s, lease, &attempts).await;
            failed.extend(done.err().map(|error| format!("{about:?}: {error}")));
            tx.rollback().await.unwrap();
        };
        tokio::join!(s.archive(wf), instance);
    }
    assert!(failed.is_empty(), "{failed:?}");
    s.execute("UPDATE runs SET state = 'cancelled', finished_on = run_after WHERE finished_on IS NULL").await;
    s.publish().await;
    s.end_early().await;
}
