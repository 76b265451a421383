//! Steps of the ledger's stories.

use std::time::{Duration, Instant};

use app::jobs::Did;
use chrono::{DateTime, Utc};
use executor::claim::{self, Fence, Finished, Lease, Ownership, Slots};
use ledger::runs::RunState;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tests::{PATIENCE, Story};
use uuid::Uuid;
use workflows::lock_workflow;

/// A stack without an executor: accepted runs stay accepted until the story ends them.
pub(crate) async fn story_without_executor(now: &str) -> Story {
    let app = |config: &mut app::Config| config.executor_slots = 0;
    Story::with(StackOptions { now: Some(now.parse().unwrap()), app, ..StackOptions::default() }).await
}

/// A session of the owner without the limits of a pool, which ends a statement after 15 s and an idle transaction after 10 s. On a
/// loaded machine many rows are not inserted in that time, and a job does not end in it while the test has a lock.
pub(crate) async fn session_without_limits(s: &Story) -> PgConnection {
    PgConnection::connect(&s.owner_dsn()).await.unwrap()
}

/// Removes the lock and statement timeouts of all the app's connections.
pub(crate) async fn wait_long_for_locks(s: &Story) {
    let mut connections = Vec::new();
    for (_, pool) in s.app().pools.by_name() {
        for _ in 0..pool.raw_pool().options().get_max_connections() {
            let mut connection = pool.raw_pool().acquire().await.unwrap();
            sqlx::raw_sql("SET lock_timeout = 0; SET statement_timeout = 0").execute(&mut *connection).await.unwrap();
            connections.push(connection);
        }
    }
}

/// Runs turns of the job `prune` until one has found no table locked. A turn waits 100 ms for a table, which the app itself may be reading:
/// every five seconds it reads the deletions in the audit log.
pub(crate) async fn pruned(s: &Story) {
    let began = Instant::now();
    loop {
        let did = s.job("prune").await;
        let locked = s.count("SELECT count(*) FROM partition_bounds WHERE locked_on IS NOT NULL").await;
        if !matches!(did, Did::Waits(_)) && locked == 0 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "a table stays locked: {did:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A workflow that fires every hour, with these policies.
pub(crate) async fn hourly(s: &Story, policies: Value) -> WorkflowId {
    let mut fields = json!({"cron_schedule": "0 * * * *", "timezone": "UTC"});
    fields.as_object_mut().unwrap().extend(policies.as_object().unwrap().clone());
    s.create_with(fields).await
}

/// Delivers a fire; returns `accepted`, or the reason why there is no run.
pub(crate) async fn fire(s: &Story, wf: WorkflowId, time: &str) -> String {
    let answer = s.invoke(wf, time).await;
    match answer.status {
        202 => "accepted".to_owned(),
        200 => answer.body["reason"].as_str().unwrap_or("?").to_owned(),
        status => format!("{status} {}", answer.code()),
    }
}

/// Delivers a fire five seconds after its scheduled time.
pub(crate) async fn fire_on_time(s: &Story, wf: WorkflowId, time: &str) -> String {
    s.set_clock(time.parse::<DateTime<Utc>>().unwrap() + chrono::TimeDelta::seconds(5)).await;
    fire(s, wf, time).await
}

/// The timeline of a run: each attempt with its outcome, when it ended, and its error.
pub(crate) async fn timeline(s: &Story, run: Uuid) -> Vec<String> {
    let run = s.editor().get(&format!("/api/v1/runs/{run}")).await.expect(200).json;
    let line = |attempt: &Value| {
        let text = |field: &str| attempt[field].as_str().unwrap_or("-").to_owned();
        let ended_on = text("ended_on");
        let ended_on = ended_on.get(11..19).unwrap_or("-");
        assert!(attempt["started_on"].is_string(), "{attempt}");
        format!("{} {} {ended_on} {}", attempt["attempt"], text("outcome"), text("error"))
    };
    run["attempts"].as_array().unwrap().iter().map(line).collect()
}

/// Claims a workflow's accepted runs, as an executor does.
pub(crate) async fn claimed(s: &Story, wf: WorkflowId) {
    let others = "SELECT id FROM runs WHERE workflow_id <> $1 AND state = 'accepted'";
    let others: Vec<Uuid> = sqlx::query_scalar(others).bind(wf.0).fetch_all(&s.pool).await.unwrap();
    let lease = Lease { instance: Uuid::new_v4(), secs: 120.0 };
    let slots = Slots::all_free(1_000);
    let mut db = s.pool.acquire().await.unwrap();
    claim::claim_due_runs(&mut db, lease, &slots, &others, s.clock.now()).await.unwrap();
}

/// Ends a workflow's accepted and running runs, so that the next may start.
pub(crate) async fn ended(s: &Story, wf: WorkflowId) {
    claimed(s, wf).await;
    let running = "SELECT id, attempt, locked_by FROM runs WHERE workflow_id = $1 AND state = 'running'";
    let running: Vec<(Uuid, i32, Uuid)> = sqlx::query_as(running).bind(wf.0).fetch_all(&s.pool).await.unwrap();
    let succeeded = Finished { state: RunState::Succeeded, result: None, error: None, failed_tries: 0 };
    for (id, attempt, instance) in running {
        let mut db = s.pool.acquire().await.unwrap();
        let finish = claim::finish_run(&mut db, instance, Fence { id, attempt }, &succeeded, s.clock.now());
        assert_eq!(finish.await.unwrap(), Ownership::Ours);
    }
    ledger::admission::queue::advance_workflow(&s.pool, wf, s.clock.now()).await.unwrap();
}

/// Starts a run that is not a fire of the schedule; returns its state.
pub(crate) async fn start_run(s: &Story, wf: WorkflowId, trigger: ledger::runs::Trigger, time: &str) -> String {
    let now = s.clock.now();
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let workflow = lock_workflow(&mut tx, wf, None, now).await.unwrap().unwrap();
    let run = ledger::runs::New {
        scheduled_time: Some(time.parse().unwrap()),
        ..ledger::runs::New::unscheduled(workflows::id::make_id(now), trigger, now)
    };
    match ledger::admission::verdict::admit_run(&mut tx, &workflow, &run).await.unwrap() {
        Ok(state) => {
            tx.commit().await.unwrap();
            format!("{state:?}").to_lowercase()
        }
        Err(reason) => reason.as_str().to_owned(),
    }
}
