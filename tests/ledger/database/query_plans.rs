//! Claims and jobs read only the rows that they need, and never the past of the ledger.

use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgPool;
use executor::claim::Lease;
use ledger::bulk::{self, Created, Verb};
use ledger::invoke::{Answer, FireDecider};
use ledger::runs::RunState;
use schedule::Fire;
use serde_json::json;
use tests::Story;
use workflows::audit::Edit;

use crate::freezes::of_another_team;
use crate::steps::{fire_on_time, hourly, session_without_limits, story_without_executor};

/// A pool of one connection, so that Postgres reports its reads at once.
pub(crate) async fn one_connection(s: &Story) -> PgPool {
    let options = db::Options {
        acquire_timeout: Duration::from_secs(60),
        application_name: "one",
        ..app::config::database_options(&s.owner_dsn(), 1)
    };
    db::connect_pool(&options).await.unwrap()
}

/// The number of rows and index entries of a table and its partitions that were read so far.
pub(crate) async fn read_of(pool: &PgPool, table: &str) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    let read = "SELECT sum(COALESCE(seq_tup_read, 0)
                           + COALESCE((SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0))::bigint
                  FROM pg_stat_user_tables t WHERE relname = $1 OR relname LIKE $1 || '\\_%'";
    sqlx::query_scalar(read).bind(table).fetch_one(pool).await.unwrap()
}

const SKIPPED: &str = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), $1, $2::timestamptz - make_interval(mins => nth), 'skipped_overlap', 0, now(), now(), now()
      FROM generate_series(1, 10000) AS nth";

const FIRED: &str = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
    SELECT gen_random_uuid(), $1, $2::timestamptz - make_interval(mins => nth), 'fired', gen_random_uuid(), 0, now(), now(), now()
      FROM generate_series(1, 50000) AS nth";

#[tokio::test]
async fn a_claim_reads_no_skipped_times() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let mut workflows = Vec::new();
    for _ in 0..4 {
        workflows.push(hourly(&s, json!({})).await);
    }
    let nine: DateTime<Utc> = "2026-03-02T09:00:00Z".parse().unwrap();
    // Most rows of the table have a run, so that the planner has no reason to search for those without one.
    let others = hourly(&s, json!({})).await;
    let mut session = session_without_limits(&s).await;
    sqlx::query(FIRED).bind(others.0).bind(nine).execute(&mut session).await.unwrap();
    for wf in &workflows {
        sqlx::query(SKIPPED).bind(wf.0).bind(nine).execute(&mut session).await.unwrap();
        assert_eq!(fire_on_time(&s, *wf, "2026-03-02T09:00:00Z").await, "accepted");
    }
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "occurrences").await;
    let slots = executor::claim::Slots { of_a_team: 48, ..executor::claim::Slots::all_free(64) };
    let mut one = pool.acquire().await.unwrap();
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let claimed = executor::claim::claim_due_runs(&mut one, lease, &slots, &[], s.clock.now()).await.unwrap();
    drop(one);
    assert_eq!(claimed.len(), 4);
    let read = read_of(&pool, "occurrences").await - before;
    assert!(read < 100, "{read} rows of the ledger");
    s.end_early().await;
}

const RUNS: &str = "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on, finished_on)
    SELECT gen_random_uuid(), $1, 'manual', $2, $3, $3, $3, CASE $2 WHEN 'cancelled' THEN $3 END FROM generate_series(1, $4)";

/// The statistics are of a quiet hour, and then many runs of another workflow wait.
#[tokio::test]
async fn a_fire_reads_only_its_workflows_runs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (wf, other) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    let mut session = session_without_limits(&s).await;
    for (state, runs) in [("cancelled", 1_000), ("accepted", 10_000)] {
        sqlx::query(RUNS).bind(other.0).bind(state).bind(s.clock.now()).bind(runs).execute(&mut session).await.unwrap();
        if state == "cancelled" {
            s.execute("ANALYZE").await;
        }
    }
    s.now_is("2026-03-02T09:00:10Z").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "runs").await;
    let decider = FireDecider::new(pool.clone(), s.app().config.ledger_kept());
    let fire = Fire::from_event(&json!({"workflow_id": wf.0, "scheduled_time": "2026-03-02T09:00:00Z"})).unwrap();
    assert!(matches!(decider.decide_fire(&fire).await.unwrap(), Answer::Accepted(_)));
    let read = read_of(&pool, "runs").await - before;
    assert!(read < 100, "{read} runs");
    s.end_early().await;
}

const QUEUED: &str = "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
    SELECT gen_random_uuid(), id, 'schedule', CASE nth WHEN 0 THEN 'accepted' ELSE 'queued' END,
           $1::timestamptz - make_interval(mins => nth), $1, $1
      FROM workflows, generate_series(0, 100) AS nth";

#[tokio::test]
async fn the_queue_job_reads_each_run_once() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    for _ in 0..60 {
        hourly(&s, json!({"overlap_policy": "queue"})).await;
    }
    sqlx::query(QUEUED).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "runs").await;
    assert_eq!(
        ledger::admission::queue::advance_all(&pool, s.clock.now()).await.unwrap(),
        ledger::admission::queue::Pass::default()
    );
    let read = read_of(&pool, "runs").await - before;
    assert!(read <= 3 * 60 * 101, "{read} entries of 6,060 runs");
    s.end_early().await;
}

const BACKLOG: &str = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
    SELECT gen_random_uuid(), $1, 'manual', 'accepted', $2, $2 FROM generate_series(1, 5000)";

#[tokio::test]
async fn a_claim_passes_over_a_full_team() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    sqlx::query(BACKLOG).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "runs").await;
    let mut one = pool.acquire().await.unwrap();
    let slots = executor::claim::Slots {
        total: 32,
        of_a_team: 24,
        used: vec![(s.keys.team_id, 24)],
        ..executor::claim::Slots::all_free(8)
    };
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let claimed = executor::claim::claim_due_runs(&mut one, lease, &slots, &[], s.clock.now()).await.unwrap();
    drop(one);
    assert_eq!(claimed.len(), 0, "the team has its share");
    let read = read_of(&pool, "runs").await - before;
    assert!(read < 500, "{read} of 5,000 runs");
    s.end_early().await;
}

/// Accepted runs of a schedule.
const OF_SCHEDULE: &str = "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
    SELECT gen_random_uuid(), $1, 'schedule', 'accepted', $2::timestamptz - make_interval(secs => nth), $2, $2
      FROM generate_series(1, $3) AS nth";

/// Claims as an instance without runs. Returns the workflows of the claimed runs, and how many entries of runs it read.
async fn claim_and_count(s: &Story) -> (Vec<i64>, i64) {
    let pool = one_connection(s).await;
    let (mut workflows, mut least) = (Vec::new(), i64::MAX);
    // Another session may report meanwhile what it has read before.
    for _ in 0..3 {
        let before = read_of(&pool, "runs").await;
        let mut tx = db::begin_transaction(&pool).await.unwrap();
        let slots = executor::claim::Slots::all_free(64);
        let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
        let claimed = executor::claim::claim_due_runs(&mut tx, lease, &slots, &[], s.clock.now()).await.unwrap();
        tx.rollback().await.unwrap();
        workflows = claimed.iter().map(|run| run.workflow_id).collect();
        workflows.sort_unstable();
        least = least.min(read_of(&pool, "runs").await - before);
    }
    (workflows, least)
}

/// A team is frozen while 5,000 runs of its schedules and one that a person requested wait.
#[tokio::test]
async fn a_claim_reads_no_frozen_backlog() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (frozen, theirs) = (hourly(&s, json!({})).await, of_another_team(&s).await);
    for (wf, runs) in [(frozen, 5_000), (theirs, 1)] {
        sqlx::query(OF_SCHEDULE).bind(wf.0).bind(s.clock.now()).bind(runs).execute(&s.pool).await.unwrap();
    }
    sqlx::query(RUNS).bind(frozen.0).bind("accepted").bind(s.clock.now()).bind(1).execute(&s.pool).await.unwrap();
    s.editor().post("/api/v1/freezes", &json!({"reason": "incident"})).await.expect(201);
    s.execute("ANALYZE").await;
    let (claimed, read) = claim_and_count(&s).await;
    assert_eq!(claimed, [frozen.0, theirs.0], "the requested run, and that of the other team");
    assert!(read < 100, "{read} of 5,002 runs");
    s.end_early().await;
}

/// Ten workflows were paused while 5,000 of their runs waited for an executor, and the job has had its turn.
#[tokio::test]
async fn a_claim_reads_no_paused_backlog() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let other = hourly(&s, json!({})).await;
    sqlx::query(OF_SCHEDULE).bind(other.0).bind(s.clock.now()).bind(1).execute(&s.pool).await.unwrap();
    for _ in 0..10 {
        let wf = hourly(&s, json!({"overlap_policy": "concurrent", "max_concurrent": 100})).await;
        sqlx::query(OF_SCHEDULE).bind(wf.0).bind(s.clock.now()).bind(500).execute(&s.pool).await.unwrap();
        s.pause(wf).await;
    }
    s.job("queue").await;
    // The entries of the rows before count until Postgres removes them.
    s.execute("VACUUM (ANALYZE) runs_live").await;
    let (claimed, read) = claim_and_count(&s).await;
    assert_eq!(claimed, [other.0]);
    assert!(read < 100, "{read} of 5,001 runs");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'queued'").await, 5_000);
    s.end_early().await;
}

const RUNNING: &str = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, started_on, attempt, locked_by, locked_at, lease_until)
    SELECT gen_random_uuid(), $1, 'manual', 'running', $2, $2, $2, 1, gen_random_uuid(), $2, $2::timestamptz + INTERVAL '2 minutes'
      FROM generate_series(1, 5000)";

/// The limit of a team was lowered while it had 5,000 running runs, and 5,000 more wait.
#[tokio::test]
async fn a_claim_counts_up_to_the_limit() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    for runs in [RUNNING, BACKLOG] {
        sqlx::query(runs).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    }
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "runs").await;
    let mut one = pool.acquire().await.unwrap();
    let slots = executor::claim::Slots { running_of_a_team: 10, ..executor::claim::Slots::all_free(64) };
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let claimed = executor::claim::claim_due_runs(&mut one, lease, &slots, &[], s.clock.now()).await.unwrap();
    drop(one);
    assert_eq!(claimed.len(), 0, "the team has its limit");
    let read = read_of(&pool, "runs").await - before;
    assert!(read < 100, "{read} of 10,000 runs");
    s.end_early().await;
}

/// Each scrape and each tick of the publisher counts what waits. A full team is found once, and not for each of its runs.
#[tokio::test]
async fn the_waiting_gauge_reads_each_run_once() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (wf, busy) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    for (runs, wf) in [(RUNNING, busy), (BACKLOG, wf)] {
        sqlx::query(runs).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    }
    let limit = "INSERT INTO team_limits (team_id, running_runs) VALUES ($1, 10) ON CONFLICT (team_id) DO UPDATE SET running_runs = 10";
    sqlx::query(limit).bind(s.keys.team_id).execute(&s.pool).await.unwrap();
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "runs").await;
    let mut one = pool.acquire().await.unwrap();
    let present = ledger::stats::read_present(&mut one).await.unwrap();
    drop(one);
    let (running, under_1m) = (present.runs.running, present.waiting.under_1m);
    assert_eq!((running, under_1m), (5_000, 0), "they wait for runs of their team");
    let read = read_of(&pool, "runs").await - before;
    // The runs by state, those that wait, and those for which they might wait.
    assert!(read <= 4 * 10_000, "{read} entries of 10,000 runs");
    s.end_early().await;
}

const WORKFLOWS: &str = "INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on)
    SELECT $1, 'w' || nth, '{}', '0 0 1 1 *', 1, $2, $2 FROM generate_series(1, $3) AS nth";

/// A team at its equal share finds only the slots free that are kept for teams with hardly any.
#[tokio::test]
async fn a_claim_passes_over_a_team_without_slots() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    sqlx::query(BACKLOG).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "runs").await;
    let mut one = pool.acquire().await.unwrap();
    let slots = executor::claim::Slots {
        total: 100,
        of_a_team: 75,
        used: vec![(s.keys.team_id, 48), (s.keys.team_id + 1, 48)],
        ..executor::claim::Slots::all_free(4)
    };
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let claimed = executor::claim::claim_due_runs(&mut one, lease, &slots, &[], s.clock.now()).await.unwrap();
    drop(one);
    assert_eq!(claimed.len(), 0, "the last twentieth of the slots is for other teams");
    let read = read_of(&pool, "runs").await - before;
    assert!(read < 20, "{read} of 5,000 runs");
    s.end_early().await;
}

/// A team's statistics ask how far the watchdog is behind, which does not depend on workflows that are due later.
#[tokio::test]
async fn statistics_read_no_workflow_that_is_not_due() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    sqlx::query(WORKFLOWS).bind(s.keys.team_id).bind(s.clock.now()).bind(5000).execute(&s.pool).await.unwrap();
    sqlx::query(
        "INSERT INTO ledger (workflow_id, cursor, watch_at)
         SELECT id, $1, $1::timestamptz + INTERVAL '1 day' FROM workflows
         ON CONFLICT (workflow_id) DO UPDATE SET watch_at = excluded.watch_at, cron = NULL",
    )
    .bind(s.clock.now())
    .execute(&s.pool)
    .await
    .unwrap();
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "ledger").await + read_of(&pool, "workflows").await;
    let mut one = pool.acquire().await.unwrap();
    let scope = ledger::stats::Scope::of_last(chrono::TimeDelta::hours(1), s.clock.now());
    let stats = ledger::stats::read_stats(&mut one, ledger::stats::Scope { team_id: Some(s.keys.team_id), ..scope })
        .await
        .unwrap();
    drop(one);
    assert_eq!(stats.lag_s(s.clock.now()), 0);
    let read = read_of(&pool, "ledger").await + read_of(&pool, "workflows").await - before;
    assert!(read < 100, "{read} of 5,000 workflows");
    s.end_early().await;
}

/// 1,200 workflows of another team in each shard are behind for longer than the team's only one.
#[tokio::test]
async fn the_lag_of_a_team_is_bounded_by_others() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let now = s.clock.now();
    let own = hourly(&s, json!({})).await;
    let other: i64 = sqlx::query_scalar(
        "INSERT INTO teams (name, signing_secret, created_on) VALUES ('other', 's', cronbox_now()) RETURNING id",
    )
    .fetch_one(&s.pool)
    .await
    .unwrap();
    let mut session = session_without_limits(&s).await;
    sqlx::query(WORKFLOWS).bind(other).bind(now).bind(9600).execute(&mut session).await.unwrap();
    sqlx::query(
        "INSERT INTO ledger (workflow_id, cursor, watch_at)
         SELECT id, $1, $1::timestamptz - CASE id WHEN $2 THEN INTERVAL '1 hour' ELSE INTERVAL '2 hours' END FROM workflows
         ON CONFLICT (workflow_id) DO UPDATE SET watch_at = excluded.watch_at, cron = NULL",
    )
    .bind(now)
    .bind(own.0)
    .execute(&s.pool)
    .await
    .unwrap();
    let mut db = s.pool.acquire().await.unwrap();
    let scope = ledger::stats::Scope::of_last(chrono::TimeDelta::hours(1), now);
    let of_team = ledger::stats::Scope { team_id: Some(s.keys.team_id), ..scope };
    assert_eq!(
        ledger::stats::read_stats(&mut db, of_team).await.unwrap().watch_at,
        Some(now - chrono::TimeDelta::hours(2))
    );
    sqlx::query("UPDATE ledger SET watch_at = NULL WHERE workflow_id <> $1 AND workflow_id % 10 > 0")
        .bind(own.0)
        .execute(&s.pool)
        .await
        .unwrap();
    assert_eq!(
        ledger::stats::read_stats(&mut db, of_team).await.unwrap().watch_at,
        Some(now - chrono::TimeDelta::hours(1))
    );
    drop(db);
    s.end_early().await;
}

/// Every eleventh run failed. Half of those that failed are manual, so that only a retry names them.
const ENDED: &str =
    "INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, finished_on)
    SELECT (lpad(to_hex(1772438400000 + nth), 12, '0') || '70008000' || lpad(to_hex(nth), 12, '0'))::uuid, $1,
           CASE WHEN nth % 22 > 0 THEN gen_random_uuid() END, CASE WHEN nth % 22 > 0 THEN 'schedule' ELSE 'manual' END,
           CASE WHEN nth % 11 > 0 THEN 'succeeded' ELSE 'failed' END,
           CASE WHEN nth % 22 > 0 THEN to_timestamp(1600000020 + nth * 60) END, $2, $2, $2
      FROM generate_series(1, 11000) AS nth";

/// A bulk retry compares each run that failed with the others of its due time, or of its manual run.
#[tokio::test]
async fn a_bulk_retry_reads_no_other_work() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    let mut session = session_without_limits(&s).await;
    sqlx::query(ENDED).bind(wf.0).bind(s.clock.now()).execute(&mut session).await.unwrap();
    s.execute("ANALYZE").await;
    let pool = one_connection(&s).await;
    let mut read = i64::MAX;
    // A statement gets its final plan at its sixth execution. Another session may report meanwhile what it has read before.
    for nth in 1..=9 {
        let before = read_of(&pool, "runs").await;
        select_failed(&s, &pool).await;
        let now = read_of(&pool, "runs").await - before;
        read = if nth > 6 { read.min(now) } else { read };
    }
    assert!(read < 60_000, "{read} rows and entries of 11,000 runs");
    s.end_early().await;
}

/// Creates an operation that repeats what failed, and rolls it back.
async fn select_failed(s: &Story, pool: &PgPool) {
    let filter = bulk::Filter { run_states: vec![RunState::Failed], ..bulk::Filter::default() };
    let request = bulk::Request {
        team_id: s.keys.team_id,
        verb: Verb::Retry,
        filter,
        reason: None,
        until: None,
        replaces_pause: false,
        expected_total: None,
    };
    let edit = Edit::without_request("test", s.clock.now());
    let mut tx = db::begin_transaction(pool).await.unwrap();
    let created = bulk::create_operation(&mut tx, &request, &edit).await.unwrap();
    assert!(matches!(created, Created::Operation(_, 1_000)), "{created:?}");
    tx.rollback().await.unwrap();
}

/// The number of scans of `runs`, of its partitions and of their indexes so far; one that finds nothing counts, too.
async fn scans_of_runs(pool: &PgPool) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    let scans = "SELECT sum(COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0))::bigint
                   FROM pg_stat_user_tables WHERE relname = 'runs' OR relname LIKE 'runs\\_%'";
    sqlx::query_scalar(scans).fetch_one(pool).await.unwrap()
}

/// The same runs, spread over the 30 days before.
const ENDED_OF_DAYS: &str =
    "INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, finished_on)
    SELECT (lpad(to_hex(floor(extract(epoch FROM $2::timestamptz) * 1000)::bigint - nth * 235000::bigint), 12, '0')
            || '70008000' || lpad(to_hex(nth), 12, '0'))::uuid, $1,
           CASE WHEN nth % 22 > 0 THEN gen_random_uuid() END, CASE WHEN nth % 22 > 0 THEN 'schedule' ELSE 'manual' END,
           CASE WHEN nth % 11 > 0 THEN 'succeeded' ELSE 'failed' END,
           CASE WHEN nth % 22 > 0 THEN $2::timestamptz - make_interval(secs => nth * 235) END, $2, $2, $2
      FROM generate_series(1, 11000) AS nth";

/// Each run that failed may have a retry on each later day. A day is read once, and not once for each of these runs.
#[tokio::test]
async fn a_bulk_retry_reads_each_day_once() {
    let s = story_without_executor("2035-04-22T09:00:00Z").await;
    s.execute(
        "SELECT make_day_partitions(parent, '2035-03-17T00:00:00Z', 45) FROM partition_bounds WHERE unit = 'day'",
    )
    .await;
    let wf = hourly(&s, json!({})).await;
    let mut session = session_without_limits(&s).await;
    sqlx::query(ENDED_OF_DAYS).bind(wf.0).bind(s.clock.now()).execute(&mut session).await.unwrap();
    s.execute("ANALYZE").await;
    let days = "SELECT count(DISTINCT tableoid) FROM runs";
    assert!(s.count(days).await >= 30);
    let pool = one_connection(&s).await;
    let mut scans = i64::MAX;
    // A statement gets its final plan at its sixth execution. Another session may report meanwhile what it has scanned before.
    for nth in 1..=9 {
        let before = scans_of_runs(&pool).await;
        select_failed(&s, &pool).await;
        let now = scans_of_runs(&pool).await - before;
        scans = if nth > 6 { scans.min(now) } else { scans };
    }
    assert!(scans < 1_000, "{scans} scans for 1,000 runs of 30 days");
    s.end_early().await;
}
