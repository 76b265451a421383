//! Which runs wait for an executor: three statements have the rule, and one run in each situation compares them.

use std::time::Instant;

use chrono::{DateTime, Utc};
use executor::claim::{Lease, Slots, claim_due_runs};
use serde_json::json;
use tests::PATIENCE;
use uuid::Uuid;

use super::alarms::Ticker;
use crate::world::World;

/// Whether a run waits for an executor, by the claim and by the two gauges, which count the same runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// A claim takes it, and the gauges count it.
    Yes,
    /// A claim leaves it, and the gauges do not count it.
    No,
    /// A claim takes it, and the gauges do not count it: its owner has paused the workflow, or it starts beside another run of its
    /// workflow. Neither says that slots are missing.
    OnlyForTheClaim,
    /// A claim leaves it, and the gauges count it: an operator must act, or only the app knows why it is left.
    OnlyForTheGauges,
}

/// Makes a run that an instance executes, with a lease of this length; the lease of a lost instance is negative.
const BEGIN_RUN: &str = "
    CREATE FUNCTION begin_run(workflow bigint, lease interval) RETURNS void LANGUAGE sql AS $$
        INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, started_on, attempt, locked_by, locked_at, lease_until)
        VALUES (gen_random_uuid(), workflow, 'manual', 'running', cronbox_now(), cronbox_now(), cronbox_now(), 1, gen_random_uuid(),
                cronbox_now(), cronbox_now() + lease)
    $$";
/// An accepted run of the first workflow, which could start ten minutes ago.
const RUN_OF_THE_FIRST: &str =
    "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
     SELECT gen_random_uuid(), (SELECT min(id) FROM workflows), $1::text, 'accepted',
            CASE WHEN $1::text IN ('schedule', 'catch_up') THEN at END, at, at
       FROM (SELECT cronbox_now() - INTERVAL '10 minutes') AS t (at)";
/// Both workflows are active, and nothing stops them.
const NOTHING_STOPS: &str = "
    DELETE FROM runs;
    DELETE FROM freezes;
    DELETE FROM team_limits;
    UPDATE database_identity SET held_on = NULL, held_reason = NULL;
    UPDATE workflows SET state = 'active', pause_until = NULL, revision = revision + 1";

const FREEZE_ALL: &str = "INSERT INTO freezes (id, reason, starts_on, actor, created_on)
    VALUES (gen_random_uuid(), 'night', cronbox_now(), 'key:test', cronbox_now())";
const FREEZE_TEAM: &str = "INSERT INTO freezes (id, team_id, reason, starts_on, actor, created_on)
    SELECT gen_random_uuid(), min(team_id), 'night', cronbox_now(), 'key:test', cronbox_now() FROM workflows";
const FREEZE_LATER: &str = "INSERT INTO freezes (id, reason, starts_on, actor, created_on)
    VALUES (gen_random_uuid(), 'night', cronbox_now() + INTERVAL '1 hour', 'key:test', cronbox_now())";
const FREEZE_BEFORE: &str = "INSERT INTO freezes (id, reason, starts_on, ends_on, actor, created_on)
    VALUES (gen_random_uuid(), 'night', cronbox_now() - INTERVAL '1 hour', cronbox_now() - INTERVAL '1 minute', 'key:test',
            cronbox_now())";
const PAUSED: &str = "UPDATE workflows SET state = 'paused', revision = revision + 1";
const PAUSED_BEFORE: &str =
    "UPDATE workflows SET state = 'paused', pause_until = cronbox_now() - INTERVAL '1 minute', revision = revision + 1";
const ARCHIVED: &str = "UPDATE workflows SET state = 'archived', revision = revision + 1";
/// The second workflow executes a run, and the team may execute one.
const TEAM_IS_FULL: &str = "SELECT begin_run(max(id), INTERVAL '1 hour') FROM workflows;
    INSERT INTO team_limits (team_id, running_runs) SELECT DISTINCT team_id, 1 FROM workflows";
const TEAM_MAY_EXECUTE_TWO: &str = "SELECT begin_run(max(id), INTERVAL '1 hour') FROM workflows;
    INSERT INTO team_limits (team_id, running_runs) SELECT DISTINCT team_id, 2 FROM workflows";
const TEAM_HAS_LOST_A_RUN: &str = "SELECT begin_run(max(id), INTERVAL '-1 second') FROM workflows;
    INSERT INTO team_limits (team_id, running_runs) SELECT DISTINCT team_id, 1 FROM workflows";
const TEAM_IS_FULL_OF_CANCELLED: &str = "SELECT begin_run(max(id), INTERVAL '1 hour') FROM workflows;
    UPDATE runs SET cancel_requested_on = cronbox_now() WHERE state = 'running';
    INSERT INTO team_limits (team_id, running_runs) SELECT DISTINCT team_id, 1 FROM workflows";
const TEAM_HAS_NO_LIMIT: &str =
    "INSERT INTO team_limits (team_id, running_runs) SELECT DISTINCT team_id, 0 FROM workflows";
const BESIDE_ANOTHER: &str = "SELECT begin_run(min(id), INTERVAL '1 hour') FROM workflows";
/// It waits behind a run of its workflow, by the overlap policy.
const QUEUED: &str = "SELECT begin_run(min(id), INTERVAL '1 hour') FROM workflows;
    UPDATE runs SET state = 'queued' WHERE state = 'accepted'";
/// As [`QUEUED`], after that run has ended and before the job `queue` has given its slot away.
const FIRST_IN_THE_QUEUE: &str = "UPDATE runs SET state = 'queued'";
const CANCELLED: &str = "DELETE FROM runs; SELECT begin_run(min(id), INTERVAL '1 hour') FROM workflows;
    UPDATE runs SET cancel_requested_on = cronbox_now()";
const IN_AN_HOUR: &str = "UPDATE runs SET run_after = cronbox_now() + INTERVAL '1 hour'";
const HANDED_OVER: &str = "UPDATE runs SET attempt = 1, handed_over_until = cronbox_now() + INTERVAL '1 hour'";
const HANDED_OVER_TOO_LONG: &str =
    "UPDATE runs SET attempt = 1, handed_over_until = cronbox_now() - INTERVAL '1 second'";
/// Longer than the catch-up window, which is a day.
const OLD: &str =
    "UPDATE runs SET created_on = created_on - INTERVAL '2 days', run_after = run_after - INTERVAL '2 days'";
/// As old, and between two tries.
const OLD_AND_TRIED: &str = "UPDATE runs
    SET created_on = created_on - INTERVAL '2 days', run_after = run_after - INTERVAL '2 days', attempt = 1";
const HELD: &str = "UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked'";

/// What stops a run or does not, of which trigger it is, and whether it waits for an executor.
const SITUATIONS: [(&str, &str, Waits); 37] = [
    ("SELECT 1", "schedule", Waits::Yes),
    ("SELECT 1", "catch_up", Waits::Yes),
    ("SELECT 1", "manual", Waits::Yes),
    ("SELECT 1", "retry", Waits::Yes),
    ("SELECT 1", "backfill", Waits::Yes),
    (IN_AN_HOUR, "schedule", Waits::No),
    (IN_AN_HOUR, "manual", Waits::No),
    (QUEUED, "schedule", Waits::No),
    (FIRST_IN_THE_QUEUE, "manual", Waits::No),
    (CANCELLED, "manual", Waits::No),
    (HANDED_OVER, "manual", Waits::Yes),
    (HANDED_OVER_TOO_LONG, "schedule", Waits::No),
    (HANDED_OVER_TOO_LONG, "manual", Waits::No),
    (FREEZE_ALL, "schedule", Waits::No),
    (FREEZE_ALL, "catch_up", Waits::No),
    (FREEZE_ALL, "manual", Waits::Yes),
    (FREEZE_ALL, "backfill", Waits::Yes),
    (FREEZE_TEAM, "schedule", Waits::No),
    (FREEZE_TEAM, "catch_up", Waits::No),
    (FREEZE_TEAM, "retry", Waits::Yes),
    (FREEZE_LATER, "schedule", Waits::Yes),
    (FREEZE_BEFORE, "schedule", Waits::Yes),
    (ARCHIVED, "schedule", Waits::No),
    (ARCHIVED, "manual", Waits::No),
    (TEAM_IS_FULL, "schedule", Waits::No),
    (TEAM_IS_FULL, "manual", Waits::No),
    (TEAM_IS_FULL_OF_CANCELLED, "manual", Waits::No),
    (TEAM_MAY_EXECUTE_TWO, "schedule", Waits::Yes),
    (TEAM_HAS_LOST_A_RUN, "manual", Waits::Yes),
    (TEAM_HAS_NO_LIMIT, "schedule", Waits::Yes),
    (OLD_AND_TRIED, "schedule", Waits::Yes),
    // The differences.
    (PAUSED, "schedule", Waits::No),
    (PAUSED, "manual", Waits::OnlyForTheClaim),
    (PAUSED_BEFORE, "schedule", Waits::OnlyForTheClaim),
    (BESIDE_ANOTHER, "manual", Waits::OnlyForTheClaim),
    // No job abandons it while no app runs or the ledger is held: then the alarm must not end.
    (OLD, "schedule", Waits::OnlyForTheGauges),
    (HELD, "schedule", Waits::OnlyForTheGauges),
];

async fn make_run(world: &World, situation: &'static str, trigger: &str) {
    sqlx::raw_sql(NOTHING_STOPS).execute(&world.pool).await.unwrap();
    sqlx::query(RUN_OF_THE_FIRST).bind(trigger).execute(&world.pool).await.unwrap();
    sqlx::raw_sql(situation).execute(&world.pool).await.unwrap();
}

/// The gauge of the publisher; a tick on a loaded machine may not read it.
async fn publisher_counts(ticker: &mut Ticker) -> bool {
    let began = Instant::now();
    loop {
        // Without a sweep, which would compare the schedules with what these statements have made of the workflows.
        let (_, line) = ticker.tick_with(json!({})).await;
        if let Some(secs) = line["RunsWaitingSeconds"].as_f64() {
            return secs > 0.0;
        }
        assert!(began.elapsed() < PATIENCE, "the gauge stays unread: {line}");
    }
}

/// The gauges of the app: each run is in one class.
async fn app_counts(world: &World) -> bool {
    let present = ledger::stats::read_present(&mut world.pool.acquire().await.unwrap()).await.unwrap();
    let waiting = present.waiting;
    let count = waiting.under_1m + waiting.under_5m + waiting.under_1h + waiting.over_1h;
    assert_eq!(count > 0, waiting.oldest_secs > 0.0, "{waiting:?}");
    count > 0
}

/// Whether an instance without runs would claim one.
async fn claim_takes(world: &World, running_of_a_team: i64) -> bool {
    let now: DateTime<Utc> = sqlx::query_scalar("SELECT cronbox_now()").fetch_one(&world.pool).await.unwrap();
    let lease = Lease { instance: Uuid::new_v4(), secs: 120.0 };
    let slots = Slots { running_of_a_team, ..Slots::all_free(100) };
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let claimed = claim_due_runs(&mut tx, lease, &slots, &[], now).await.unwrap();
    tx.rollback().await.unwrap();
    !claimed.is_empty()
}

async fn waits(world: &World, ticker: &mut Ticker, running_of_a_team: i64, run: &str) -> Waits {
    let (by_publisher, by_app) = (publisher_counts(ticker).await, app_counts(world).await);
    assert_eq!(by_publisher, by_app, "the gauges of publisher and app differ: {run}");
    match (claim_takes(world, running_of_a_team).await, by_app) {
        (true, true) => Waits::Yes,
        (false, false) => Waits::No,
        (true, false) => Waits::OnlyForTheClaim,
        (false, true) => Waits::OnlyForTheGauges,
    }
}

/// Three statements have the rule which run an executor may start now: the claim, the gauges of the app, and that of the publisher. One run
/// in each situation shows where they agree, and names each difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gauges_count_what_a_claim_takes() {
    let world = World::new().await;
    for _ in 0..2 {
        world.create("0 9 * * *", "UTC").await;
    }
    sqlx::raw_sql(BEGIN_RUN).execute(&world.pool).await.unwrap();
    let mut ticker = Ticker::start(&world).await;
    for (situation, trigger, expected) in SITUATIONS {
        make_run(&world, situation, trigger).await;
        let run = format!("{trigger}: {situation}");
        assert_eq!(waits(&world, &mut ticker, 0, &run).await, expected, "{run}");
    }
    // The default of the operator is a setting of the app, which the gauges do not know.
    make_run(&world, "SELECT begin_run(max(id), INTERVAL '1 hour') FROM workflows", "manual").await;
    assert_eq!(waits(&world, &mut ticker, 1, "default").await, Waits::OnlyForTheGauges);
}
