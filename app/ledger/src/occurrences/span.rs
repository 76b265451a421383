//! Step 7 of 7: the ledger over a span of time, which the watchdog reads and completes.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use workflows::reasons::Reason;

use super::Decision;

/// A time that did not run, and why.
#[derive(Clone, Debug)]
pub struct NotRun {
    /// The due time.
    pub time: DateTime<Utc>,
    /// The schedule version that made it due.
    pub revision: i64,
    /// `missed` or `skipped_paused`.
    pub decision: Decision,
    /// The reason.
    pub reason: Reason,
}

/// Lists the decided times after `after`, up to and including `until`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_decided_times(
    db: &mut PgConnection,
    workflow: WorkflowId,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> sqlx::Result<HashSet<DateTime<Utc>>> {
    let times = sqlx::query_scalar!(
        r#"
        -- decided times of a span
        SELECT scheduled_time FROM occurrences
         WHERE workflow_id = $1 AND scheduled_time > $2 AND scheduled_time <= $3
        "#,
        workflow.0,
        after,
        until,
    )
    .fetch_all(db)
    .await?;
    Ok(times.into_iter().collect())
}

/// Whether a time later than this one has run by the schedule.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn has_run_after(db: &mut PgConnection, workflow: WorkflowId, time: DateTime<Utc>) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- has a later time run
        SELECT EXISTS (SELECT FROM occurrences
                        WHERE workflow_id = $1 AND scheduled_time > $2 AND decision IN ('fired', 'caught_up')) AS "is!"
        "#,
        workflow.0,
        time,
    )
    .fetch_one(db)
    .await
}

/// As [`has_run_after`], for one time of each of many workflows; returns those of which a later time has run.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_run_after(db: &mut PgConnection, times: &[(i64, DateTime<Utc>)]) -> sqlx::Result<HashSet<i64>> {
    if times.is_empty() {
        return Ok(HashSet::new());
    }
    let (ids, times): (Vec<_>, Vec<_>) = times.iter().copied().unzip();
    let found = sqlx::query_scalar!(
        r#"
        -- workflows of which a later time has run: $3 is the first of the times, so that Postgres reads no earlier day
        SELECT given.workflow_id AS "workflow_id!"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS given (workflow_id, time)
         WHERE (SELECT TRUE FROM occurrences o
                 WHERE o.workflow_id = given.workflow_id AND o.scheduled_time > given.time AND o.scheduled_time > $3
                   AND o.decision IN ('fired', 'caught_up')
                 LIMIT 1)
        "#,
        &ids,
        &times,
        times.iter().min().copied(),
    )
    .fetch_all(db)
    .await?;
    Ok(found.into_iter().collect())
}

/// Records times that did not run, and returns how many rows are new. Existing decisions are not changed.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn record_not_run(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    times: &[NotRun],
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    if times.is_empty() {
        return Ok(0);
    }
    record_not_run_of_many(tx, &vec![workflow.0; times.len()], times, now).await
}

/// As [`record_not_run`], for the times of many workflows, each with its workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn record_not_run_of_many(
    tx: &mut PgConnection,
    workflows: &[i64],
    times: &[NotRun],
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let ids: Vec<_> = times.iter().map(|_| workflows::id::make_id(now)).collect();
    let due_times: Vec<_> = times.iter().map(|not_run| not_run.time).collect();
    let decisions: Vec<_> = times.iter().map(|not_run| not_run.decision.as_str().to_owned()).collect();
    let reasons: Vec<_> = times.iter().map(|not_run| not_run.reason.to_string()).collect();
    let revisions: Vec<_> = times.iter().map(|not_run| not_run.revision).collect();
    let done = sqlx::query!(
        r#"
        -- record times that did not run: an existing row wins
        INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, reason, revision,
                                 lateness_s, decided_on, created_on, updated_on)
        SELECT u.id, u.workflow_id, u.time, u.decision, u.reason, u.revision,
               EXTRACT(EPOCH FROM $7 - u.time)::bigint, $7, $7, $7
          FROM unnest($1::bigint[], $2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[])
               AS u (workflow_id, id, time, decision, reason, revision)
         ORDER BY u.workflow_id, u.time
        ON CONFLICT ON CONSTRAINT occurrences_workflow_id_scheduled_time_key DO NOTHING
        "#,
        workflows,
        &ids,
        &due_times,
        &decisions,
        &reasons,
        &revisions,
        now,
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected())
}
