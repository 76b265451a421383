//! Step 7 of 7: reads bulk operations and their items, cancels one, and removes old ones.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::id::first_id_of;
use workflows::keyset::KeysetPage;

use super::operation::{Outcome, State, Verb};

/// Of how many operations one statement of the job `prune` removes items.
const OPERATIONS_A_BATCH: i64 = 1_000;
/// How many items it removes: an operation may have ten times as many.
const ITEMS_A_BATCH: i64 = 10_000;

/// An operation and its progress.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The id.
    pub id: Uuid,
    /// The team.
    pub team_id: i64,
    /// What is done with each item.
    pub verb: Verb,
    /// Why the workflows are paused.
    pub reason: Option<String>,
    /// When their pause ends.
    pub until: Option<DateTime<Utc>>,
    /// The state.
    pub state: State,
    /// How many items it has.
    pub total: i32,
    /// How many are processed.
    pub processed: i32,
    /// How many of these were refused.
    pub refused: i32,
    /// Who requested it.
    pub actor: String,
    /// The name of the key.
    pub actor_name: Option<String>,
    /// When it was requested.
    pub created_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
}

/// An item and what became of it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its place, from 1 on.
    pub nth: i32,
    /// The workflow.
    pub workflow_id: i64,
    /// The run, of retry and cancel.
    pub run_id: Option<Uuid>,
    /// What became of it; `None`: it is not processed yet.
    pub outcome: Option<Outcome>,
    /// Why it was refused.
    pub code: Option<String>,
    /// The run that fire or retry has created.
    pub new_run_id: Option<Uuid>,
}

/// Finds an operation that the team may see.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_operation(db: &mut PgConnection, id: Uuid, team_id: Option<i64>) -> sqlx::Result<Option<Operation>> {
    sqlx::query_as!(
        Operation,
        r#"
        -- find a bulk operation
        SELECT id, team_id, verb AS "verb: Verb", reason, until, state AS "state: State", total, processed, refused, actor,
               actor_name, created_on, finished_on
          FROM bulk_operations
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Lists operations, the newest first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_operations(
    db: &mut PgConnection,
    team_id: Option<i64>,
    before: Option<Uuid>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Operation, Uuid>> {
    let rows = sqlx::query_as!(
        Operation,
        r#"
        -- list bulk operations by key
        SELECT id, team_id, verb AS "verb: Verb", reason, until, state AS "state: State", total, processed, refused, actor,
               actor_name, created_on, finished_on
          FROM bulk_operations
         WHERE id < $2 AND ($1::bigint IS NULL OR team_id = $1)
         ORDER BY id DESC
         LIMIT $3
        "#,
        team_id,
        before.unwrap_or(Uuid::max()),
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |operation| operation.id))
}

/// Lists the items of an operation in their order; the caller may see it. Refused ones are few, so a filter reads on by place.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_items(
    db: &mut PgConnection,
    operation: Uuid,
    outcome: Option<Outcome>,
    after: Option<i32>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Item, i32>> {
    let rows = sqlx::query_as!(
        Item,
        r#"
        -- list the items of a bulk operation by key
        SELECT nth, workflow_id, run_id, outcome AS "outcome: Outcome", code, new_run_id
          FROM bulk_items
         WHERE operation_id = $1 AND nth > $2 AND ($3::text IS NULL OR outcome = $3)
         ORDER BY operation_id, nth
         LIMIT $4
        "#,
        operation,
        after.unwrap_or(0),
        outcome as Option<Outcome>,
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |item| item.nth))
}

/// Cancels a running operation; returns whether it was running.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cancel_operation(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> sqlx::Result<bool> {
    let cancelled = sqlx::query!(
        r#"
        -- cancel a bulk operation: it waits for the item that is processed now
        UPDATE bulk_operations SET state = 'cancelled', finished_on = $2 WHERE id = $1 AND state = 'running'
        "#,
        id,
        now,
    )
    .execute(tx)
    .await?;
    Ok(cancelled.rows_affected() > 0)
}

/// Removes a batch of the items of the first operations that ended before a time; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_old_items(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove items of old bulk operations: no operation ends before it was made, so its id is older, too. By ctid,
        -- because Postgres would read all items for a join
        WITH old AS MATERIALIZED (
            SELECT i.place
              FROM (SELECT id FROM bulk_operations WHERE id < $1 AND finished_on < $2 ORDER BY id LIMIT $3) AS b
             CROSS JOIN LATERAL (SELECT ctid AS place FROM bulk_items WHERE operation_id = b.id LIMIT $4) AS i
             LIMIT $4
        )
        DELETE FROM bulk_items i WHERE i.ctid = ANY(ARRAY(SELECT place FROM old))
        "#,
        first_id_of(before),
        before,
        OPERATIONS_A_BATCH,
        ITEMS_A_BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Removes a batch of the operations that ended before a time and have no items any more; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_old_operations(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old bulk operations: the first ones, of which the items were removed
        WITH old AS MATERIALIZED (
            SELECT id FROM bulk_operations
             WHERE id < $1 AND finished_on < $2
             ORDER BY id
             LIMIT $3
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM bulk_operations b USING old
         WHERE b.id = old.id AND NOT EXISTS (SELECT FROM bulk_items i WHERE i.operation_id = old.id)
        "#,
        first_id_of(before),
        before,
        OPERATIONS_A_BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
