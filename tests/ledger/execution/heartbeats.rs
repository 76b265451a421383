//! Heartbeats and claims, step by step: an attempt stops before another instance may take over its run, and a claim whose
//! reply was lost is handed over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use egress::Client;
use egress::allowed::Allowed;
use executor::claim::{Lease, Slots, claim_due_runs};
use executor::{Executor, Step};
use schedule::{Moment, WorkflowId};
use serde_json::json;
use tests::{LossyWay, PATIENCE, Story, Way};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, LocalSet};
use uuid::Uuid;

use crate::catch_up::watchdog_races::WAITING;
use crate::receiver::{Receiver, accept, run, until_state};
use crate::steps::story_without_executor;

const LEASE_SECS: u64 = 12;
const HEARTBEAT_MS: u64 = 1_000;
/// The latest stop: two thirds of the lease, one heartbeat interval, and a renewal that takes an eighth of the lease.
const LATEST: Duration = Duration::from_millis(LEASE_SECS * 1000 * 2 / 3 + HEARTBEAT_MS + LEASE_SECS * 1000 / 8);

/// An executor that renews its leases when the story says so.
struct Heart {
    executor: Executor,
    now: Arc<Mutex<Moment>>,
    beat: UnboundedSender<()>,
    beaten: UnboundedReceiver<()>,
}

impl Heart {
    /// An executor that reaches the database by `dsn`.
    async fn of(s: &Story, dsn: String) -> Heart {
        let executor = executor(s, dsn, LEASE_SECS).await;
        let now = Arc::new(Mutex::new(Moment::now()));
        let ((beat, mut is_renewed), (sender, beaten)) = (unbounded_channel(), unbounded_channel());
        let (keeper, shown) = (executor.clone(), Arc::clone(&now));
        tokio::task::spawn_local(async move {
            let next = async || {
                sender.send(()).ok();
                is_renewed.recv().await.unwrap_or_default();
            };
            keeper.keep_leases(next, &|| *shown.lock().unwrap()).await;
        });
        let mut heart = Heart { executor, now, beat, beaten };
        heart.beaten.recv().await.unwrap();
        heart
    }

    /// One renewal at this time.
    async fn beats_at(&mut self, now: Moment) {
        *self.now.lock().unwrap() = now;
        self.beat.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.beaten.recv()).await.expect("it does not come to an end").unwrap();
    }
}

/// An executor that claims when the story says so.
struct Claimer {
    step: UnboundedSender<Step>,
    done: UnboundedReceiver<()>,
    /// Ends with the last attempt.
    working: JoinHandle<()>,
}

impl Claimer {
    /// It has claimed once.
    async fn of(executor: Executor) -> Claimer {
        let ((step, mut steps), (sender, done)) = (unbounded_channel(), unbounded_channel());
        let working = tokio::task::spawn_local(async move {
            let next = async || {
                sender.send(()).ok();
                steps.recv().await.unwrap()
            };
            executor.execute_stepwise(next).await;
        });
        let mut claimer = Claimer { step, done, working };
        claimer.done.recv().await.unwrap();
        claimer
    }

    /// One claim, to its end.
    async fn claim(&mut self) {
        self.step.send(Step::Claim).unwrap();
        tokio::time::timeout(PATIENCE, self.done.recv()).await.expect("no end of a step").unwrap();
    }
}

/// An executor whose first run waits for its answer, and which has lost the reply to the claim of a second one.
struct LostClaim {
    s: Story,
    way: LossyWay,
    receiver: Receiver,
    wf: WorkflowId,
    claimer: Claimer,
    unknown: Uuid,
}

impl LostClaim {
    async fn new() -> LostClaim {
        let s = story_without_executor("2026-03-02T12:00:00Z").await;
        let (way, receiver) = (LossyWay::to(&s.dsn()).await, Receiver::slow().await);
        let wf = s.create_with(json!({"action": receiver.action(), "overlap_policy": "concurrent"})).await;
        accept(&s, wf).await;
        let mut claimer = Claimer::of(executor(&s, way.dsn(&s.dsn()), 3600).await).await;
        receiver.until(1).await;

        way.lose_rows_of("claim runs");
        let unknown = accept(&s, wf).await;
        claimer.claim().await;
        tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("the run is not claimed");
        LostClaim { s, way, receiver, wf, claimer, unknown }
    }
}

async fn executor(s: &Story, dsn: String, lease_secs: u64) -> Executor {
    app(s, dsn, lease_secs).await.new_executor(client())
}

fn client() -> Client {
    Client::new(Allowed::new(vec!["127.0.0.0/8".parse().unwrap()])).unwrap()
}

/// An app that reaches the database by `dsn`; its jobs do not run.
async fn app(s: &Story, dsn: String, lease_secs: u64) -> app::App {
    let mut config = s.app().config.clone();
    config.database_url = dsn;
    (config.executor_slots, config.lost_after_secs, config.heartbeat_ms) = (4, lease_secs, HEARTBEAT_MS);
    let pool = db::connect_pool(&config.database_options(&config.database_url)).await.unwrap();
    app::App::new(config, pool, s.clock.clone())
}

/// The worst case: the last failing renewal begins just before two thirds of the lease, and takes as long as it may.
#[tokio::test]
async fn attempts_stop_before_their_lease_ends() {
    LocalSet::new().run_until(stop_at_the_latest()).await;
}

async fn stop_at_the_latest() {
    let s = story_without_executor("2026-03-02T12:00:00Z").await;
    let mut way = Way::to(&s.dsn()).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let id = accept(&s, s.create_with(json!({"action": {"type": "http", "method": "POST", "url": url}})).await).await;
    let mut heart = Heart::of(&s, way.dsn(&s.dsn())).await;
    let began = *heart.now.lock().unwrap();
    let working = tokio::spawn({
        let executor = heart.executor.clone();
        async move { executor.execute_all().await }
    });
    let (mut connection, _) = silent.accept().await.unwrap();
    until_state(&s, id, "running").await;
    let is_claimed = Moment::now();
    way.cut().await;

    heart.beats_at(began + Duration::from_secs(LEASE_SECS) * 2 / 3).await;
    assert_eq!(heart.executor.under_way().len(), 1, "the next renewal may succeed");
    heart.beats_at(is_claimed + LATEST).await;
    let hung_up = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut Vec::new())).await;
    hung_up.expect("the attempt has not stopped").ok();
    s.set_clock(s.clock.now() + TimeDelta::from_std(LATEST).unwrap()).await;
    let is_over = "SELECT count(*) FROM runs WHERE lease_until <= cronbox_now()";
    assert_eq!(s.count(is_over).await, 0, "another instance could be at it");

    way.mend().await;
    working.await.unwrap();
    let released = async {
        // A renewal can get a connection that the cut has broken, so it is repeated.
        while s.count(is_over).await == 0 {
            heart.beats_at(is_claimed + LATEST).await;
        }
    };
    tokio::time::timeout(PATIENCE, released).await.expect("its lease does not end before its time");
    s.end_early().await;
}

/// An operator's transaction has locked the row of a run. Only the attempt of this run may stop.
#[tokio::test]
async fn a_locked_run_stops_no_other() {
    LocalSet::new().run_until(lock_one_of_two()).await;
}

async fn lock_one_of_two() {
    let s = story_without_executor("2026-03-02T12:00:00Z").await;
    let way = Way::to(&s.dsn()).await;
    let receiver = Receiver::slow().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(accept(&s, s.create_with(json!({"action": receiver.action()})).await).await);
    }
    let mut heart = Heart::of(&s, way.dsn(&s.dsn())).await;
    let working = tokio::task::spawn_local({
        let executor = heart.executor.clone();
        async move { executor.execute_all().await }
    });
    receiver.until(2).await;
    let renewed = Moment::now();
    heart.beats_at(renewed).await;

    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT FROM runs WHERE id = $1 FOR UPDATE").bind(ids[0]).execute(&mut *tx).await.unwrap();
    heart.beats_at(renewed + Duration::from_secs(LEASE_SECS) * 2 / 3).await;
    assert_eq!(heart.executor.under_way().len(), 2, "the next renewal may succeed");
    heart.beats_at(renewed + LATEST).await;
    let one = async {
        while heart.executor.under_way().len() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, one).await.expect("the attempt of the locked run goes on");
    let under_way: Vec<_> = heart.executor.under_way().iter().map(|fence| fence.id).collect();
    assert_eq!(under_way, [ids[1]], "the other one was renewed");

    tokio::select! {
        () = heart.beats_at(renewed + LATEST * 2) => {}
        () = s.until(WAITING, 1) => panic!("the heartbeat waits for the lock"),
    }
    let under_way: Vec<_> = heart.executor.under_way().iter().map(|fence| fence.id).collect();
    assert_eq!(under_way, [ids[1]], "it was renewed again, though the lease of the other one cannot be ended yet");
    tx.rollback().await.unwrap();
    heart.beats_at(renewed + LATEST * 2).await;
    assert_eq!(heart.executor.known_attempts().len(), 1, "the locked run was released as soon as that was possible");
    receiver.let_answer(2);
    working.await.unwrap();
    s.end_early().await;
}

/// The reply to a claim is lost, and an operator's transaction has locked the claimed run. Other runs start.
#[tokio::test]
async fn a_locked_unknown_claim_delays_nothing() {
    LocalSet::new().run_until(lock_an_unknown_claim()).await;
}

async fn lock_an_unknown_claim() {
    let LostClaim { s, receiver, wf, mut claimer, unknown, .. } = LostClaim::new().await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT FROM runs WHERE id = $1 FOR UPDATE").bind(unknown).execute(&mut *tx).await.unwrap();
    let other = accept(&s, wf).await;
    claimer.claim().await;
    assert_eq!(run(&s, other).await["state"], "running", "it waits for the locked one");
    tx.rollback().await.unwrap();
    claimer.claim().await;
    receiver.until(3).await;
    receiver.let_answer(3);
    claimer.working.await.unwrap();
    let unknown = run(&s, unknown).await;
    assert_eq!((&unknown["state"], &unknown["attempt"]), (&json!("succeeded"), &json!(2)));
    s.end_early().await;
}

/// The connection of a claim breaks while Postgres still executes it, so it commits after the next hand-over.
#[tokio::test]
async fn a_claim_that_commits_late_is_handed_over() {
    LocalSet::new().run_until(commit_a_claim_late()).await;
}

async fn commit_a_claim_late() {
    let s = story_without_executor("2026-03-02T12:00:00Z").await;
    let (way, receiver) = (LossyWay::to(&s.dsn()).await, Receiver::slow().await);
    let body = json!({"action": receiver.action(), "overlap_policy": "concurrent", "on_lost": "abandon"});
    let wf = s.create_with(body).await;
    accept(&s, wf).await;
    let app = app(&s, way.dsn(&s.dsn()), 3600).await;
    let mut claimer = Claimer::of(app.new_executor(client())).await;
    receiver.until(1).await;

    let late = accept(&s, wf).await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let lease = Lease { instance: app.instance, secs: 3600.0 };
    let claimed = claim_due_runs(&mut tx, lease, &Slots::all_free(10), &[], s.clock.now()).await.unwrap();
    assert_eq!(claimed.iter().map(|run| run.id).collect::<Vec<_>>(), [late]);
    way.lose_reply_to("claim runs");
    claimer.claim().await;
    tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("no claim");
    claimer.claim().await;
    tx.commit().await.unwrap();
    claimer.claim().await;
    assert_eq!(run(&s, late).await["attempt"], 2, "the late claim keeps the run until its lease ends");
    receiver.until(2).await;
    receiver.let_answer(2);
    claimer.working.await.unwrap();
    assert_eq!(run(&s, late).await["state"], "succeeded");
    s.end_early().await;
}

/// The connection of a hand-over breaks, and Postgres receives the statement after later claims.
#[tokio::test]
async fn a_late_hand_over_leaves_later_claims() {
    LocalSet::new().run_until(hand_over_late()).await;
}

async fn hand_over_late() {
    let LostClaim { s, way, receiver, mut claimer, unknown, .. } = LostClaim::new().await;
    way.delay("hand over unknown claims");
    claimer.claim().await;
    assert_eq!(run(&s, unknown).await["attempt"], 1, "Postgres has received the statement");
    claimer.claim().await;
    receiver.until(2).await;

    tokio::time::timeout(PATIENCE, way.deliver_late()).await.expect("the statement is not late");
    let again = run(&s, unknown).await;
    assert_eq!((&again["state"], &again["attempt"]), (&json!("running"), &json!(2)), "another instance could start it");
    receiver.let_answer(2);
    claimer.working.await.unwrap();
    assert_eq!(run(&s, unknown).await["state"], "succeeded");
    s.end_early().await;
}
