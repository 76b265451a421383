//! Step 7 of 7: which runs a bulk retry repeats: one of a due time, or of a manual run and its retries, and none if one of them
//! has succeeded.
//!
//! A run that failed stays failed after its retry has succeeded, so its state does not say whether its work is done. A retry
//! of one run by its id repeats whatever its caller names.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::id::{first_id_of, first_run_id_of};

use super::operation::Request;
use crate::runs::RunState;

/// No id of a run is later than now by more than the clocks of instances differ.
const LATEST: TimeDelta = TimeDelta::days(1);

/// Selects the runs that an operation repeats, in the order of their ids; returns how many. If more than `most` runs match its
/// filter, it returns how many match, at most one more than `most`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(super) async fn select_repeats(
    tx: &mut PgConnection,
    id: Uuid,
    request: &Request,
    most: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let filter = &request.filter;
    let (first, end) = filter.id_bounds();
    let states = filter.state_names();
    let found = sqlx::query!(
        r#"
        -- the runs that a bulk operation repeats: of a due time, or of a manual run and its retries, the newest that matches,
        -- and none if one of them has succeeded. The others of each run are counted: a join could read all ended runs, and
        -- with a LIMIT Postgres may expect to find one soon in any order
        WITH matching AS MATERIALIZED (
            SELECT id, workflow_id, state, occurrence_id, scheduled_time, retry_of
              FROM runs
             WHERE team_id = $2 AND id >= $3 AND id < $4
               AND state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')
               AND (cardinality($5::text[]) = 0 OR state = ANY($5))
               AND ($6::bigint[] IS NULL OR workflow_id = ANY($6))
               AND ($7::uuid[] IS NULL OR id = ANY($7))
             ORDER BY id
             LIMIT $8
        ), repeated AS MATERIALIZED (
            SELECT DISTINCT ON (COALESCE(m.occurrence_id, m.retry_of, m.id)) m.id, m.workflow_id
              FROM matching m
             WHERE NOT EXISTS (SELECT FROM deleted_workflows d WHERE d.workflow_id = m.workflow_id)
               AND NOT CASE
                   -- the filter selects it although it succeeded
                   WHEN m.state = 'succeeded' THEN FALSE
                   WHEN m.occurrence_id IS NOT NULL THEN
                       (SELECT count(*) FROM runs r
                         WHERE r.workflow_id = m.workflow_id AND r.scheduled_time = m.scheduled_time
                           AND r.occurrence_id = m.occurrence_id AND r.state = 'succeeded'
                           AND r.id >= $3 AND r.id < $9 AND r.id >= COALESCE(m.retry_of, m.id)) > 0
                   ELSE
                       (SELECT count(*) FROM runs r
                         WHERE r.retry_of = COALESCE(m.retry_of, m.id) AND r.state = 'succeeded'
                           AND r.id >= $3 AND r.id < $9 AND r.id >= COALESCE(m.retry_of, m.id)) > 0
                       OR (SELECT count(*) FROM runs r
                            WHERE r.id = m.retry_of AND r.state = 'succeeded' AND r.id >= $3 AND r.id < $9) > 0
                   END
             ORDER BY COALESCE(m.occurrence_id, m.retry_of, m.id), m.id DESC
        ), inserted AS (
            INSERT INTO bulk_items (operation_id, nth, workflow_id, run_id)
            SELECT $1, row_number() OVER (ORDER BY id), workflow_id, id FROM repeated
        )
        SELECT (SELECT count(*) FROM matching) AS "matching!", (SELECT count(*) FROM repeated) AS "repeated!"
        "#,
        id,
        request.team_id,
        first,
        end,
        &states,
        filter.workflow_ids.as_deref(),
        filter.run_ids.as_deref(),
        most + 1,
        first_id_of(now + LATEST),
    )
    .fetch_one(tx)
    .await?;
    let selected = if found.matching > most { found.matching } else { found.repeated };
    Ok(u64::try_from(selected).unwrap_or_default())
}

/// What the other runs of a due time, or of a manual run, say about a retry of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherRuns {
    /// The work is not done, and no retry came first.
    Permit,
    /// One has succeeded, and the run to repeat has not.
    Succeeded,
    /// One was created after the operation, and has ended.
    Repeated,
}

/// The run that an item names.
struct Named {
    state: RunState,
    /// It, or the run that it repeats.
    first: Uuid,
    occurrence_id: Option<Uuid>,
    scheduled_time: Option<DateTime<Utc>>,
}

/// Compares a run with the others of its due time, or of its manual run, since an operation has selected it; the caller has
/// locked its workflow, so none of them is created meanwhile.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(super) async fn compare_other_runs(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    run: Uuid,
    operation: Uuid,
) -> sqlx::Result<OtherRuns> {
    let Some(named) = find_named(tx, run).await? else { return Ok(OtherRuns::Permit) };
    let others = sqlx::query!(
        r#"
        -- what the other runs of a due time, or of a manual run, have come to: each part by an index of its own. No run is
        -- made before its time, and no retry before its run, so no earlier day is read
        SELECT COALESCE(bool_or(state = 'succeeded'), FALSE) AS "has_succeeded!",
               COALESCE(bool_or(id > $6 AND id <> $7), FALSE) AS "is_repeated!"
          FROM (SELECT id, state FROM runs WHERE id = $1
                 UNION ALL
                SELECT id, state FROM runs
                 WHERE retry_of = $1 AND id >= $1 AND state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')
                 UNION ALL
                SELECT id, state FROM runs
                 WHERE workflow_id = $2 AND scheduled_time = $3 AND occurrence_id = $4 AND id >= $5
                   AND state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')) AS others
        "#,
        named.first,
        workflow.0,
        named.scheduled_time,
        named.occurrence_id,
        named.scheduled_time.map(first_run_id_of),
        operation,
        run,
    )
    .fetch_one(tx)
    .await?;
    Ok(match (others.has_succeeded && named.state != RunState::Succeeded, others.is_repeated) {
        (true, _) => OtherRuns::Succeeded,
        (false, true) => OtherRuns::Repeated,
        (false, false) => OtherRuns::Permit,
    })
}

async fn find_named(tx: &mut PgConnection, run: Uuid) -> sqlx::Result<Option<Named>> {
    sqlx::query_as!(
        Named,
        r#"
        -- the run that an item of a bulk operation names
        SELECT state AS "state: RunState", COALESCE(retry_of, id) AS "first!", occurrence_id, scheduled_time FROM runs WHERE id = $1
        "#,
        run,
    )
    .fetch_optional(tx)
    .await
}
