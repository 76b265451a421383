//! Keeps rows due after the clock went back, for example after a failover to a server whose clock is behind.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// Seconds. The longest lease of a publisher, a sweep or a job. Its owner renews it in time whichever clock counts.
const LONGEST_LEASE_SECS: f64 = 60.0;

/// Makes the rows due now that were due at `before`, the time that the old server's clock would show.
///
/// Any instance may call it any number of times: a row that was due stays due.
///
/// # Errors
/// Fails if a statement fails. The next sample sees no step any more, so the rows then wait for their time.
pub(super) async fn keep_due(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<()> {
    keep_edits_due(db, before).await?;
    keep_jobs_due(db, before).await?;
    keep_runs_due(db, before).await?;
    shorten_run_leases(db).await?;
    shorten_leases(db).await
}

async fn keep_edits_due(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- keep edits due: a row that a publisher has locked is being published
        UPDATE publications SET due_at = cronbox_now()
         WHERE workflow_id IN (SELECT workflow_id FROM publications
                                WHERE due_at > cronbox_now() AND due_at <= $1
                                  FOR UPDATE SKIP LOCKED)
        "#,
        before,
    )
    .execute(db)
    .await
    .map(drop)
}

async fn keep_jobs_due(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- keep jobs due
        UPDATE jobs SET next_run = cronbox_now() WHERE next_run > cronbox_now() AND next_run <= $1
        "#,
        before,
    )
    .execute(db)
    .await
    .map(drop)
}

async fn keep_runs_due(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- keep runs due
        UPDATE runs_live SET run_after = cronbox_now()
         WHERE id IN (SELECT id FROM runs_live
                       WHERE state = 'accepted' AND run_after > cronbox_now() AND run_after <= $1
                         FOR UPDATE SKIP LOCKED)
        "#,
        before,
    )
    .execute(db)
    .await
    .map(drop)
}

/// The step would extend the lease of a run. Its length is the difference of `locked_at` and `lease_until`.
async fn shorten_run_leases(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- shorten the leases of runs: to a full lease from now, so that an owner that lives has time to renew; a row
        -- that is locked is being renewed or settled
        WITH leased AS MATERIALIZED (
            SELECT id
              FROM runs
             WHERE state = 'running' AND locked_at > cronbox_now()
             ORDER BY id
               FOR UPDATE SKIP LOCKED
        )
        UPDATE runs_live AS r
           SET lease_until = cronbox_now() + (r.lease_until - r.locked_at), locked_at = cronbox_now()
          FROM leased
         WHERE r.id = leased.id
        "#
    )
    .execute(db)
    .await
    .map(drop)
}

/// The step would extend a lease, although its owner may have failed together with the old server.
async fn shorten_leases(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- shorten leases: to a full lease from now, so that an owner that lives has time to renew; a row that is locked
        -- is being renewed or settled
        WITH latest AS (
            SELECT cronbox_now() + make_interval(secs => $1) AS ends_on
        ), leased AS MATERIALIZED (
            SELECT p.workflow_id
              FROM publications AS p, latest
             WHERE p.due_at IS NOT NULL AND p.lease_until > latest.ends_on
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        ), of_publications AS (
            UPDATE publications AS p SET lease_until = latest.ends_on
              FROM leased, latest
             WHERE p.workflow_id = leased.workflow_id
        ), of_publishers AS (
            UPDATE publishers SET live_until = latest.ends_on FROM latest WHERE live_until > latest.ends_on
        ), of_sweeps AS (
            UPDATE sweeps SET locked_until = latest.ends_on
              FROM latest
             WHERE finished_on IS NULL AND locked_until > latest.ends_on
        )
        UPDATE jobs SET locked_until = latest.ends_on FROM latest WHERE locked_until > latest.ends_on
        "#,
        LONGEST_LEASE_SECS,
    )
    .execute(db)
    .await
    .map(drop)
}
