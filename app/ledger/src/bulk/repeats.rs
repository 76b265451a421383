//! Step 7 of 7: which runs a bulk retry repeats: one of a due time, or of a manual run and its retries, and none if one of them
//! has succeeded since the first.
//!
//! A run that failed stays failed after its retry has succeeded, so its state does not say whether its work is done. A
//! success before the run says nothing either: a backfill may repeat work that was done. A retry of one run by its id repeats
//! whatever its caller names.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::id::first_id_of;

use super::operation::{MOST_ITEMS, Request, Selected, Selection};
use crate::runs::RunState;

/// No id of a run is later than now by more than the clocks of instances differ.
const LATEST: TimeDelta = TimeDelta::days(1);

/// Selects the runs that an operation repeats, in the order of their ids. They are too many if so many match its filter, also
/// those whose work is done.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(super) async fn select_repeats(
    tx: &mut PgConnection,
    request: &Request,
    now: DateTime<Utc>,
) -> sqlx::Result<Selection> {
    let filter = &request.filter;
    let (first, end) = filter.id_bounds();
    let states = filter.state_names();
    let rows = sqlx::query!(
        r#"
        -- the runs that a bulk operation repeats: of a due time, or of a manual run and its retries, the newest that matches,
        -- and none if one of them has succeeded since the first. Only a retry or a backfill repeats a run, so those of the
        -- span are read once, and no day is searched for each run. A window compares them, because a join could do so
        WITH matching AS MATERIALIZED (
            SELECT id, workflow_id, state, retry_of, COALESCE(occurrence_id, retry_of, id) AS work, COALESCE(retry_of, id) AS first_id
              FROM runs
             WHERE team_id = $1 AND id >= $2 AND id < $3
               AND state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')
               AND (cardinality($4::text[]) = 0 OR state = ANY($4))
               AND ($5::bigint[] IS NULL OR workflow_id = ANY($5))
               AND ($6::uuid[] IS NULL OR id = ANY($6))
             ORDER BY id
             LIMIT $7
        ), succeeded AS MATERIALIZED (
            SELECT id, COALESCE(occurrence_id, retry_of, id) AS work
              FROM runs
             WHERE team_id = $1 AND trigger IN ('retry', 'backfill') AND state = 'succeeded'
               AND id >= (SELECT first_id FROM matching ORDER BY first_id LIMIT 1) AND id < $8
        ), compared AS (
            SELECT *, first_value(CASE WHEN is_proof THEN id END)
                          OVER (PARTITION BY work ORDER BY is_proof DESC, id DESC) AS last_success
              FROM (SELECT id, workflow_id, state, retry_of, work, first_id, FALSE AS is_proof FROM matching
                     UNION ALL
                    SELECT id, NULL, NULL, NULL, work, NULL, TRUE FROM succeeded) AS runs_of_work
        ), repeated AS MATERIALIZED (
            SELECT DISTINCT ON (m.work) m.id, m.workflow_id
              FROM compared m
             WHERE NOT m.is_proof
               AND NOT EXISTS (SELECT FROM deleted_workflows d WHERE d.workflow_id = m.workflow_id)
                   -- the filter selects it although it succeeded
               AND (m.state = 'succeeded'
                    OR (m.last_success IS NULL OR m.last_success < m.first_id)
                       -- the run that it repeats, by its key: a schedule may have started it
                       AND (m.retry_of IS NULL
                            OR (SELECT count(*) FROM runs r WHERE r.id = m.retry_of AND r.state = 'succeeded') = 0))
             ORDER BY m.work, m.id DESC
        )
        SELECT c.matching AS "matching!", r.workflow_id AS "workflow_id?", r.id AS "run_id?"
          FROM (SELECT count(*) AS matching FROM matching) AS c
          LEFT JOIN repeated r ON c.matching < $7
         ORDER BY r.id
        "#,
        request.team_id,
        first,
        end,
        &states,
        filter.workflow_ids.as_deref(),
        filter.run_ids.as_deref(),
        MOST_ITEMS + 1,
        first_id_of(now + LATEST),
    )
    .fetch_all(tx)
    .await?;
    if rows.iter().any(|row| row.matching > MOST_ITEMS) {
        return Ok(Selection::TooMany);
    }
    let repeated =
        rows.into_iter().filter_map(|row| Some(Selected { workflow_id: row.workflow_id?, run_id: Some(row.run_id?) }));
    Ok(Selection::Items(repeated.collect()))
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
        -- what the other runs of a due time, or of a manual run, have come to: each part by an index of its own. What an
        -- older run came to says nothing about the work that this one repeats, so no earlier day is read
        SELECT COALESCE(bool_or(state = 'succeeded'), FALSE) AS "has_succeeded!",
               COALESCE(bool_or(id > $5 AND id <> $6), FALSE) AS "is_repeated!"
          FROM (SELECT id, state FROM runs WHERE id = $1
                 UNION ALL
                SELECT id, state FROM runs
                 WHERE retry_of = $1 AND id >= $1 AND state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')
                 UNION ALL
                SELECT id, state FROM runs
                 WHERE workflow_id = $2 AND scheduled_time = $3 AND occurrence_id = $4 AND id >= $1
                   AND state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')) AS others
        "#,
        named.first,
        workflow.0,
        named.scheduled_time,
        named.occurrence_id,
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
