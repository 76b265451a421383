//! Step 7 of 7: creates a bulk operation: its items are selected once, in the transaction of the request.

use db::PgConnection;
use serde_json::json;
use uuid::Uuid;
use workflows::State as WorkflowState;
use workflows::audit::{self, Edit, Entry};
use workflows::id::make_id;

use super::operation::{Filter, MOST_ITEMS, Request, Selected, Selection, Verb};
use super::repeats::select_repeats;

/// Running operations of one team at most.
const MOST_RUNNING: i64 = 10;
/// How many items the audit log and a dry run name.
const SAMPLE: usize = 20;

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

/// Creates an operation, or says why not; then the caller rolls back. The items are written last, and by a dry run not at all:
/// 100,000 rows that are written and taken back would delay the commits of all teams.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn create_operation(tx: &mut PgConnection, request: &Request, edit: &Edit) -> sqlx::Result<Created> {
    if count_running(tx, request.team_id).await? >= MOST_RUNNING {
        return Ok(Created::Busy(MOST_RUNNING));
    }
    let id = make_id(edit.now);
    insert_operation(tx, id, request, edit).await?;
    let selection = match request.verb {
        Verb::Retry => select_repeats(tx, request, edit.now).await?,
        Verb::Cancel => select_live_runs(tx, request).await?,
        Verb::Pause | Verb::Resume | Verb::Archive | Verb::Delete | Verb::Fire => select_workflows(tx, request).await?,
    };
    let Selection::Items(items) = selection else { return Ok(Created::TooMany(MOST_ITEMS)) };
    let total = i32::try_from(items.len()).unwrap_or(i32::MAX);
    if total == 0 {
        return Ok(Created::Nothing);
    }
    if request.expected_total.is_some_and(|expected| expected != total) {
        return Ok(Created::Changed(total));
    }
    set_total(tx, id, total).await?;
    if !db::is_dry_run() {
        insert_items(tx, id, &items).await?;
    }
    record_request(tx, id, &items, request, edit).await?;
    Ok(Created::Operation(id, total))
}

/// Writes the request into the audit log, with the first items. A dry run answers this entry.
async fn record_request(
    tx: &mut PgConnection,
    id: Uuid,
    items: &[Selected],
    request: &Request,
    edit: &Edit,
) -> sqlx::Result<()> {
    let sample: Vec<String> = items.iter().take(SAMPLE).map(Selected::subject).collect();
    let mut after = json!({"verb": request.verb.as_str(), "total": items.len(), "sample": sample, "reason": request.reason, "until": request.until});
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
    audit::record_entry(tx, edit, entry).await
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

async fn insert_items(tx: &mut PgConnection, id: Uuid, items: &[Selected]) -> sqlx::Result<()> {
    let (workflows, runs): (Vec<i64>, Vec<Option<Uuid>>) =
        items.iter().map(|item| (item.workflow_id, item.run_id)).unzip();
    sqlx::query!(
        r#"
        -- insert the items of a bulk operation, in the order of its selection
        INSERT INTO bulk_items (operation_id, nth, workflow_id, run_id)
        SELECT $1, nth, workflow_id, run_id
          FROM unnest($2::bigint[], $3::uuid[]) WITH ORDINALITY AS item (workflow_id, run_id, nth)
        "#,
        id,
        &workflows,
        &runs as &[Option<Uuid>],
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Counts the running operations of a team. Requests to several instances at the same moment do not see each other, so a team
/// may have a few more than the most.
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

async fn select_workflows(tx: &mut PgConnection, request: &Request) -> sqlx::Result<Selection> {
    let Filter { workflow_ids, workflow_state, q, .. } = &request.filter;
    let rows = sqlx::query_as!(
        Selected,
        r#"
        -- the workflows of a bulk operation: archived ones to delete, others for every other verb
        SELECT id AS workflow_id, NULL::uuid AS "run_id?"
          FROM workflows
         WHERE team_id = $1 AND (state = 'archived') = $6
           AND ($2::text IS NULL OR state = $2)
           AND ($3::text IS NULL OR strpos(lower(name || ' ' || coalesce(description, '')), lower($3)) > 0)
           AND ($4::bigint[] IS NULL OR id = ANY($4))
         ORDER BY id
         LIMIT $5
        "#,
        request.team_id,
        *workflow_state as Option<WorkflowState>,
        q.as_deref(),
        workflow_ids.as_deref(),
        MOST_ITEMS + 1,
        request.verb == Verb::Delete,
    )
    .fetch_all(tx)
    .await?;
    Ok(Selection::of_rows(rows))
}

async fn select_live_runs(tx: &mut PgConnection, request: &Request) -> sqlx::Result<Selection> {
    let filter = &request.filter;
    let (first, end) = filter.id_bounds();
    let states = filter.state_names();
    let rows = sqlx::query_as!(
        Selected,
        r#"
        -- the runs that a bulk operation cancels. Those that wait are the first, so that none of them gets the slot of
        -- another one of the operation
        SELECT r.workflow_id AS "workflow_id!", r.id AS "run_id?"
          FROM (SELECT id, workflow_id, state FROM runs
                 WHERE team_id = $1 AND id >= $2 AND id < $3
                   AND state IN ('accepted', 'queued', 'running')
                   AND (cardinality($4::text[]) = 0 OR state = ANY($4))
                   AND ($5::bigint[] IS NULL OR workflow_id = ANY($5))
                   AND ($6::uuid[] IS NULL OR id = ANY($6))
                 ORDER BY id
                 LIMIT $7) AS r
         WHERE NOT EXISTS (SELECT FROM deleted_workflows d WHERE d.workflow_id = r.workflow_id)
         ORDER BY r.state <> 'queued', r.id
        "#,
        request.team_id,
        first,
        end,
        &states,
        filter.workflow_ids.as_deref(),
        filter.run_ids.as_deref(),
        MOST_ITEMS + 1,
    )
    .fetch_all(tx)
    .await?;
    Ok(Selection::of_rows(rows))
}
