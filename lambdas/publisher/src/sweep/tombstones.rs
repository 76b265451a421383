//! Step 3 of 7: how long the publications of deleted workflows are kept.

use db::PgConnection;

/// How many publications one statement deletes.
const AT_ONCE: i64 = 10_000;

/// Deletes the publications of deleted workflows (`after` < id <= `until`) that are not needed any more.
///
/// That is when no earlier request can still arrive, and no outbox row of the workflow is open.
pub(crate) async fn prune_tombstones(tx: &mut PgConnection, after: i64, until: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- tombstones: kept for a month, which is longer than processed outbox rows and dead letters are kept. The bounds
        -- are repeated for each table, so that no plan reads more of any
        WITH old AS MATERIALIZED (
            SELECT p.workflow_id
              FROM publications AS p
             WHERE p.workflow_id > $1
               AND p.workflow_id <= $2
               AND p.spec_hash = 'none'
               AND p.due_at IS NULL
               AND p.lease_owner IS NULL
               AND p.verify_at IS NULL
               AND p.error_class IS NULL
               AND p.applied_on < cronbox_now() - INTERVAL '30 days'
               AND NOT EXISTS (SELECT FROM workflows AS w WHERE w.id = p.workflow_id AND w.id > $1 AND w.id <= $2)
             LIMIT $3
               FOR UPDATE OF p SKIP LOCKED
        )
        DELETE FROM publications AS p USING old WHERE p.workflow_id = old.workflow_id
        "#,
        after,
        until,
        AT_ONCE,
    )
    .execute(tx)
    .await
    .map(drop)
}
