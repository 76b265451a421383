//! Step 7 of 7: adds up what server processes counted, by minute and team and by minute of all teams. A job.
//!
//! Decisions and ends of runs are counted in rows of each server process, so that no transaction waits for another one.
//! A read would have to add up many such rows. The job moves those of past minutes to the sums, in one statement, so that
//! each count is in exactly one of both tables; and it removes sums that no statistic reads any more.

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};

/// Name of the job in the table `jobs`.
pub const JOB: &str = "statistics";
/// How many rows one statement moves or removes.
const BATCH: i64 = 10_000;
/// How many statements one pass executes for each table.
const BATCHES: u32 = 20;
/// Processes still count in the newest minutes.
const COUNTING: TimeDelta = TimeDelta::minutes(2);
/// For how long the sums are kept: a day longer than the longest span of the statistics.
const KEPT: TimeDelta = TimeDelta::days(8);

/// The result of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Counts that it added up.
    pub added: u64,
    /// Sums that it removed.
    pub removed: u64,
    /// Whether a batch was full after the last statement.
    pub may_be_more: bool,
}

impl Pass {
    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} counts added up, {} old sums removed", self.added, self.removed)
    }
}

/// Moves the counts of past minutes to the sums, and removes old sums.
///
/// # Errors
/// Fails if the database fails; earlier batches remain moved.
pub async fn add_up_minutes(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut pass = Pass::default();
    for _ in 0..BATCHES {
        // Between two batches the ends of runs get the connection: an instance has few for all of its work.
        let mut db = pool.acquire().await?;
        let added = [add_up_decisions(&mut db, now - COUNTING).await?, add_up_ends(&mut db, now - COUNTING).await?];
        let removed = [remove_decisions(&mut db, now - KEPT).await?, remove_ends(&mut db, now - KEPT).await?];
        pass.added += added.iter().sum::<u64>();
        pass.removed += removed.iter().sum::<u64>();
        pass.may_be_more = added.iter().chain(&removed).any(|rows| *rows >= BATCH.unsigned_abs());
        if !pass.may_be_more {
            break;
        }
    }
    Ok(pass)
}

async fn add_up_decisions(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let moved = sqlx::query_scalar!(
        r#"
        -- add up decisions: a row that a process writes at this moment is moved by the next pass
        WITH old AS MATERIALIZED (
            SELECT team_id, minute, decision, late_s, backend FROM decision_minutes
             WHERE minute < $1
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        ), moved AS (
            DELETE FROM decision_minutes d USING old
             WHERE (d.team_id, d.minute, d.decision, d.late_s, d.backend)
                 = (old.team_id, old.minute, old.decision, old.late_s, old.backend)
            RETURNING d.*
        ), added AS (
            INSERT INTO decision_sums AS s (team_id, minute, decision, late_s, times, late_max_s)
            SELECT COALESCE(team_id, 0), minute, decision, late_s, sum(times), max(late_max_s)
              FROM moved
             GROUP BY GROUPING SETS ((team_id, minute, decision, late_s), (minute, decision, late_s))
             ORDER BY 1, 2, 3, 4
            ON CONFLICT (team_id, minute, decision, late_s) DO UPDATE
               SET times = s.times + excluded.times, late_max_s = GREATEST(s.late_max_s, excluded.late_max_s)
        )
        SELECT count(*) AS "moved!" FROM moved
        "#,
        before,
        BATCH,
    )
    .fetch_one(db)
    .await?;
    Ok(moved.unsigned_abs())
}

async fn add_up_ends(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let moved = sqlx::query_scalar!(
        r#"
        -- add up ends of runs: a row that a process writes at this moment is moved by the next pass
        WITH old AS MATERIALIZED (
            SELECT team_id, minute, state, backend FROM run_end_minutes
             WHERE minute < $1
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        ), moved AS (
            DELETE FROM run_end_minutes e USING old
             WHERE (e.team_id, e.minute, e.state, e.backend) = (old.team_id, old.minute, old.state, old.backend)
            RETURNING e.*
        ), added AS (
            INSERT INTO run_end_sums AS s (team_id, minute, state, runs, cut_off, handed_over, recoveries, recovered)
            SELECT COALESCE(team_id, 0), minute, state, sum(runs), sum(cut_off), sum(handed_over), sum(recoveries), sum(recovered)
              FROM moved
             GROUP BY GROUPING SETS ((team_id, minute, state), (minute, state))
             ORDER BY 1, 2, 3
            ON CONFLICT (team_id, minute, state) DO UPDATE
               SET runs = s.runs + excluded.runs, cut_off = s.cut_off + excluded.cut_off,
                   handed_over = s.handed_over + excluded.handed_over, recoveries = s.recoveries + excluded.recoveries,
                   recovered = s.recovered + excluded.recovered
        )
        SELECT count(*) AS "moved!" FROM moved
        "#,
        before,
        BATCH,
    )
    .fetch_one(db)
    .await?;
    Ok(moved.unsigned_abs())
}

async fn remove_decisions(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old sums of decisions
        WITH old AS MATERIALIZED (
            SELECT team_id, minute, decision, late_s FROM decision_sums WHERE minute < $1 ORDER BY minute LIMIT $2
        )
        DELETE FROM decision_sums s USING old
         WHERE (s.team_id, s.minute, s.decision, s.late_s) = (old.team_id, old.minute, old.decision, old.late_s)
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn remove_ends(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old sums of ends of runs
        WITH old AS MATERIALIZED (
            SELECT team_id, minute, state FROM run_end_sums WHERE minute < $1 ORDER BY minute LIMIT $2
        )
        DELETE FROM run_end_sums s USING old
         WHERE (s.team_id, s.minute, s.state) = (old.team_id, old.minute, old.state)
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
