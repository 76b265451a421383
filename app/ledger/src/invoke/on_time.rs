//! Step 7 of 7: the fast path of fires: four statements for any number of fires.
//!
//! A fire takes it if it is on time and due by the version in force, and if its workflow is active, not locked, and
//! without a run that is active or waits. Such a fire starts under every overlap policy. `cases.rs` handles all others,
//! and under `run_all` also a fire after whose time a later one became due.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::failpoint::pass_point;
use db::{PgConnection, PgPool};
use schedule::delivery::GRACE;
use schedule::{Cron, Fire, Timezone};
use uuid::Uuid;
use workflows::definition::policies::CatchUp;
use workflows::definition::spec::Timing;
use workflows::failpoint::Point;
use workflows::{CLOCK_SKEW, State};

use crate::spread;
use crate::versions::{DueCheck, Version};

/// The runs of a batch, by workflow.
pub(super) type Accepted = HashMap<i64, Uuid>;

/// Accepts the runs of the fires that take the fast path, each of another workflow, and commits.
pub(super) async fn accept_fires<'a>(pool: &PgPool, fires: impl Iterator<Item = &'a Fire>) -> sqlx::Result<Accepted> {
    let mut fires: Vec<_> = fires.collect();
    fires.sort_unstable_by_key(|fire| fire.workflow_id.0);
    let mut tx = db::begin_transaction(pool).await?;
    let locked = lock_workflows(&mut tx, &fires).await?;
    fires.retain(|fire| locked.binary_search(&fire.workflow_id.0).is_ok());
    let candidates = read(&mut tx, &fires).await?;
    let started: Vec<_> = fires.iter().filter_map(|fire| start(fire, candidates.get(&fire.workflow_id.0)?)).collect();
    if started.is_empty() {
        tx.rollback().await?;
        return Ok(HashMap::new());
    }
    let accepted = accept(&mut tx, &started).await?;
    if !accepted.is_empty() {
        pass_point(Point::I1);
    }
    tx.commit().await?;
    Ok(accepted)
}

fn is_on_time(fire: &Fire, now: DateTime<Utc>) -> bool {
    (-CLOCK_SKEW..=GRACE).contains(&(now - fire.scheduled_time))
}

/// Locks the workflows that are not locked, in the order of their ids.
async fn lock_workflows(tx: &mut PgConnection, fires: &[&Fire]) -> sqlx::Result<Vec<i64>> {
    let ids: Vec<_> = fires.iter().map(|fire| fire.workflow_id.0).collect();
    sqlx::query_scalar!(
        r#"
        -- lock the workflows of a batch: it waits for no lock, so two batches cannot block each other
        SELECT id FROM workflows WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
        "#,
        &ids,
    )
    .fetch_all(tx)
    .await
}

/// The state of a workflow that may start a run at once.
struct Candidate {
    /// The database's time under the locks: a fire may have waited for a connection, and may be late by now.
    now: DateTime<Utc>,
    version: Version,
    team_id: i64,
    catch_up: CatchUp,
    spread_secs: i32,
    catch_up_window_secs: i32,
}

/// Reads the states under the locks; a later statement than the one that took them sees their newest rows.
async fn read(tx: &mut PgConnection, fires: &[&Fire]) -> sqlx::Result<HashMap<i64, Candidate>> {
    let (ids, times): (Vec<_>, Vec<_>) = fires.iter().map(|fire| (fire.workflow_id.0, fire.scheduled_time)).unzip();
    let rows = sqlx::query!(
        r#"
        -- workflows that may start at once: active, not decided yet, and without a run that is active or waits. The
        -- last two conditions are subqueries of one row, because NOT EXISTS becomes a join, and a plan that Postgres
        -- made in a quiet minute then reads every active run for each batch. $3 and $4 are the bounds of all times, so
        -- that Postgres plans only the partitions of their days
        SELECT (SELECT cronbox_now()) AS "now!", w.id, w.team_id, w.catch_up_policy AS "catch_up: CatchUp", w.spread_secs, w.catch_up_window_secs, v.revision, v.valid_from, v.cron, v.timezone,
               v.starts_at, v.ends_at
          FROM unnest($1::bigint[], $2::timestamptz[]) AS f (id, time)
          JOIN workflows w ON w.id = f.id
         CROSS JOIN LATERAL (SELECT * FROM schedule_versions s
                              WHERE s.workflow_id = f.id AND s.valid_from <= f.time
                              ORDER BY s.valid_from DESC
                              LIMIT 1) AS v
         WHERE w.state = 'active' AND v.state = 'active'
           AND (SELECT TRUE FROM occurrences o WHERE o.workflow_id = f.id AND o.scheduled_time = f.time
                   AND o.scheduled_time BETWEEN $3 AND $4 LIMIT 1) IS NULL
           AND (SELECT TRUE FROM runs r
                 WHERE r.workflow_id = f.id AND r.state IN ('accepted', 'queued', 'running') LIMIT 1) IS NULL
        "#,
        &ids,
        &times,
        times.iter().min().copied(),
        times.iter().max().copied(),
    )
    .fetch_all(tx)
    .await?;
    let candidates = rows.into_iter().map(|row| {
        let version = Version {
            revision: row.revision,
            valid_from: row.valid_from,
            // A fire on time does not need the end of its version.
            ended_on: None,
            ended_by: None,
            timing: Timing { cron: row.cron, timezone: row.timezone, starts_at: row.starts_at, ends_at: row.ends_at },
            state: State::Active,
        };
        let (spread_secs, catch_up_window_secs) = (row.spread_secs, row.catch_up_window_secs);
        let (now, team_id, catch_up) = (row.now, row.team_id, row.catch_up);
        (row.id, Candidate { now, version, team_id, catch_up, spread_secs, catch_up_window_secs })
    });
    Ok(candidates.collect())
}

/// A run to accept, with its occurrence.
struct Started<'a> {
    fire: &'a Fire,
    team_id: i64,
    revision: i64,
    run_after: DateTime<Utc>,
    now: DateTime<Utc>,
}

/// Returns `None` if the fire does not take the fast path after all.
fn start<'a>(fire: &'a Fire, candidate: &Candidate) -> Option<Started<'a>> {
    let now = candidate.now;
    let is_due = candidate.version.check_due(fire.scheduled_time) == DueCheck::Due;
    // The catch-up window may be shorter than the grace.
    let is_within = (now - fire.scheduled_time).num_milliseconds() <= i64::from(candidate.catch_up_window_secs) * 1000;
    let timing = candidate.version.timing.parsed_at(fire.scheduled_time).ok().flatten();
    let run_after = spread::run_after(fire.workflow_id, candidate.spread_secs, timing, fire.scheduled_time, now);
    let is_fast_path = is_on_time(fire, now) && is_due && is_within && !is_overtaken(fire, candidate, timing);
    let (team_id, revision) = (candidate.team_id, candidate.version.revision);
    is_fast_path.then_some(Started { fire, team_id, revision, run_after, now })
}

/// Whether a retried fire may have to be deferred, because a later time has become due since.
fn is_overtaken(fire: &Fire, candidate: &Candidate, timing: Option<(Cron, Timezone)>) -> bool {
    // Nearly all fires are of this minute, so no later time can be due.
    if candidate.catch_up != CatchUp::RunAll || candidate.now - fire.scheduled_time < TimeDelta::minutes(1) {
        return false;
    }
    let later = timing.and_then(|(cron, timezone)| cron.next_after(fire.scheduled_time, timezone));
    later.is_some_and(|later| later <= candidate.now)
}

/// Records the fires and their runs. The UNIQUE constraint still prevents a second decision.
async fn accept(tx: &mut PgConnection, started: &[Started<'_>]) -> sqlx::Result<Accepted> {
    let all = started.iter();
    let occurrences: Vec<Uuid> = all.clone().map(|one| workflows::id::make_id(one.now)).collect();
    let runs: Vec<Uuid> = all.clone().map(|one| workflows::id::make_id(one.now)).collect();
    let workflows: Vec<_> = all.clone().map(|one| one.fire.workflow_id.0).collect();
    let times: Vec<_> = all.clone().map(|one| one.fire.scheduled_time).collect();
    let revisions: Vec<_> = all.clone().map(|one| one.revision).collect();
    let raw_times: Vec<_> = all.clone().map(|one| one.fire.raw_time.clone()).collect();
    let executions: Vec<_> = all.clone().map(|one| one.fire.execution_id.clone()).collect();
    let attempts: Vec<_> = all.clone().map(|one| one.fire.attempt).collect();
    let run_after: Vec<_> = all.clone().map(|one| one.run_after).collect();
    let teams: Vec<_> = all.clone().map(|one| one.team_id).collect();
    let now: Vec<_> = all.map(|one| one.now).collect();
    let accepted = sqlx::query!(
        r#"
        -- accept a batch: each run with its occurrence, or neither
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::bigint[], $6::text[],
                                 $7::text[], $8::integer[], $9::timestamptz[], $10::timestamptz[], $11::bigint[])
                AS given (id, run_id, workflow_id, time, revision, raw_time, execution_id, attempt, run_after, now, team_id)
        ), recorded AS (
            INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, revision, run_id, raw_time,
                                     execution_id, attempt, lateness_s, decided_on, created_on, updated_on)
            SELECT id, workflow_id, time, 'fired', revision, run_id, raw_time, execution_id, attempt,
                   trunc(EXTRACT(EPOCH FROM now - time))::bigint, now, now, now
              FROM given
             ORDER BY workflow_id
            ON CONFLICT ON CONSTRAINT occurrences_workflow_id_scheduled_time_key DO NOTHING
            RETURNING id
        )
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, team_id)
        SELECT given.run_id, given.workflow_id, given.id, 'schedule', 'accepted', given.time, given.run_after, given.now,
               given.team_id
          FROM given JOIN recorded ON recorded.id = given.id
        RETURNING workflow_id, id
        "#,
        &occurrences,
        &runs,
        &workflows,
        &times,
        &revisions,
        &raw_times,
        &executions as &[Option<String>],
        &attempts as &[Option<i32>],
        &run_after,
        &now,
        &teams,
    )
    .fetch_all(tx)
    .await?;
    Ok(accepted.into_iter().map(|run| (run.workflow_id, run.id)).collect())
}
