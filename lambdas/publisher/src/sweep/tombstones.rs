//! Step 3 of 7: how long the publications of deleted workflows are kept.

use db::PgConnection;

/// How many publications one sweep deletes.
const AT_ONCE: i64 = 10_000;

/// Deletes the publications of deleted workflows that are not needed any more.
///
/// That is when no earlier request can still arrive, and no outbox row of the workflow is open.
pub(crate) async fn prune_tombstones(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- tombstones: kept for a month, which is longer than processed outbox rows and dead letters are kept
        WITH old AS MATERIALIZED (
            SELECT p.workflow_id
              FROM publications AS p
             WHERE p.spec_hash = 'none'
               AND p.due_at IS NULL
               AND p.lease_owner IS NULL
               AND p.verify_at IS NULL
               AND p.error_class IS NULL
               AND p.applied_on < cronbox_now() - INTERVAL '30 days'
               AND NOT EXISTS (SELECT FROM workflows AS w WHERE w.id = p.workflow_id)
             LIMIT $1
               FOR UPDATE OF p SKIP LOCKED
        )
        DELETE FROM publications AS p USING old WHERE p.workflow_id = old.workflow_id
        "#,
        AT_ONCE,
    )
    .execute(tx)
    .await
    .map(drop)
}
