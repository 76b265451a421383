//! Step 7 of 7: creates a bulk operation: its items are selected once, in the transaction of the request.

use db::PgConnection;
use serde_json::json;
use uuid::Uuid;
use workflows::State as WorkflowState;
use workflows::audit::{self, Edit, Entry};
use workflows::id::make_id;

use super::operation::{Filter, Request, Verb};
use super::repeats::select_repeats;

/// Items of one operation at most.
const MOST: i64 = 100_000;
/// Running operations of one team at most.
const MOST_RUNNING: i64 = 10;
/// How many items the audit log names.
const SAMPLE: i64 = 20;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The operation, and how many items it has.
    Operation(Uuid, i32),
    /// The filter selects nothing.
    Nothing,
    /// The filter selects more than this many items.
    TooMany(i64),
    /// The filter selects so many items, and the caller expected another number.
    Changed(i32),
    /// So many operations of the team run already.
    Busy(i64),
}

/// Creates an operation, or says why not; then the caller rolls back.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn create_operation(tx: &mut PgConnection, request: &Request, edit: &Edit) -> sqlx::Result<Created> {
    let id = make_id(edit.now);
    insert_operation(tx, id, request, edit).await?;
    let selected = match request.verb {
        Verb::Retry => select_repeats(tx, id, request, MOST, edit.now).await?,
        Verb::Cancel => select_live_runs(tx, id, request).await?,
        Verb::Pause | Verb::Resume | Verb::Archive | Verb::Delete | Verb::Fire => {
            select_workflows(tx, id, request).await?
        }
    };
    let total = match i32::try_from(selected) {
        Ok(0) => return Ok(Created::Nothing),
        Ok(total) if selected <= MOST as u64 => total,
        _ => return Ok(Created::TooMany(MOST)),
    };
    if request.expected_total.is_some_and(|expected| expected != total) {
        return Ok(Created::Changed(total));
    }
    if count_running(tx, request.team_id).await? > MOST_RUNNING {
        return Ok(Created::Busy(MOST_RUNNING));
    }
    set_total(tx, id, total).await?;
    let sample = read_sample(tx, id).await?;
    let mut after = json!({"verb": request.verb.as_str(), "total": total, "sample": sample, "reason": request.reason, "until": request.until});
    if request.replaces_pause {
        after["replace_pause"] = json!(true);
    }
    let entry = Entry {
        verb: "bulk",
        subject: format!("bulk:{id}"),
        team_id: Some(request.team_id),
        before: None,
        after: Some(after),
    };
    audit::record_entry(tx, edit, entry).await?;
    Ok(Created::Operation(id, total))
}

async fn insert_operation(tx: &mut PgConnection, id: Uuid, request: &Request, edit: &Edit) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- insert a bulk operation; its items follow
        INSERT INTO bulk_operations (id, team_id, verb, reason, until, total, actor, actor_name, traceparent, created_on,
                                     replaces_pause)
        VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, $9, $10)
        "#,
        id,
        request.team_id,
        request.verb as Verb,
        request.reason,
        request.until,
        edit.actor,
        edit.actor_name,
        edit.traceparent,
        edit.now,
        request.replaces_pause,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Counts the running operations of a team with the new one. Requests at the same moment do not see each other, so a team may
/// have a few more.
async fn count_running(tx: &mut PgConnection, team_id: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- running bulk operations of a team
        SELECT count(*) AS "running!" FROM bulk_operations WHERE team_id = $1 AND state = 'running'
        "#,
        team_id,
    )
    .fetch_one(tx)
    .await
}

async fn set_total(tx: &mut PgConnection, id: Uuid, total: i32) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- how many items a bulk operation has
        UPDATE bulk_operations SET total = $2 WHERE id = $1
        "#,
        id,
        total,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn select_workflows(tx: &mut PgConnection, id: Uuid, request: &Request) -> sqlx::Result<u64> {
    let Filter { workflow_ids, workflow_state, q, .. } = &request.filter;
    let selected = sqlx::query!(
        r#"
        -- the workflows of a bulk operation: archived ones to delete, others for every other verb
        INSERT INTO bulk_items (operation_id, nth, workflow_id)
        SELECT $1, row_number() OVER (ORDER BY w.id), w.id
          FROM (SELECT id FROM workflows
                 WHERE team_id = $2 AND (state = 'archived') = $7
                   AND ($3::text IS NULL OR state = $3)
                   AND ($4::text IS NULL OR strpos(lower(name || ' ' || coalesce(description, '')), lower($4)) > 0)
                   AND ($5::bigint[] IS NULL OR id = ANY($5))
                 ORDER BY id
                 LIMIT $6) AS w
        "#,
        id,
        request.team_id,
        *workflow_state as Option<WorkflowState>,
        q.as_deref(),
        workflow_ids.as_deref(),
        MOST + 1,
        request.verb == Verb::Delete,
    )
    .execute(tx)
    .await?;
    Ok(selected.rows_affected())
}

async fn select_live_runs(tx: &mut PgConnection, id: Uuid, request: &Request) -> sqlx::Result<u64> {
    let filter = &request.filter;
    let (first, end) = filter.id_bounds();
    let states = filter.state_names();
    let selected = sqlx::query!(
        r#"
        -- the runs that a bulk operation cancels. Those that wait are the first, so that none of them gets the slot of
        -- another one of the operation
        INSERT INTO bulk_items (operation_id, nth, workflow_id, run_id)
        SELECT $1, row_number() OVER (ORDER BY r.state <> 'queued', r.id), r.workflow_id, r.id
          FROM (SELECT id, workflow_id, state FROM runs
                 WHERE team_id = $2 AND id >= $3 AND id < $4
                   AND state IN ('accepted', 'queued', 'running')
                   AND (cardinality($5::text[]) = 0 OR state = ANY($5))
                   AND ($6::bigint[] IS NULL OR workflow_id = ANY($6))
                   AND ($7::uuid[] IS NULL OR id = ANY($7))
                 ORDER BY id
                 LIMIT $8) AS r
         WHERE NOT EXISTS (SELECT FROM deleted_workflows d WHERE d.workflow_id = r.workflow_id)
        "#,
        id,
        request.team_id,
        first,
        end,
        &states,
        filter.workflow_ids.as_deref(),
        filter.run_ids.as_deref(),
        MOST + 1,
    )
    .execute(tx)
    .await?;
    Ok(selected.rows_affected())
}

/// The first items, as the audit log and a dry run name them.
async fn read_sample(tx: &mut PgConnection, id: Uuid) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"
        -- the first items of a bulk operation
        SELECT COALESCE('run:' || run_id, 'workflow:' || workflow_id) AS "item!"
          FROM bulk_items
         WHERE operation_id = $1
         ORDER BY nth
         LIMIT $2
        "#,
        id,
        SAMPLE,
    )
    .fetch_all(tx)
    .await
}
