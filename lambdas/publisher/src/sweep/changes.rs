//! Step 3 of 7: the brake: deletes, disables and changes that neither an edit nor a generation explains.
//!
//! They are recorded while the schedule group is listed, and enqueued after its last page if they are few. If they are
//! many, the database or the configuration is probably wrong, so they wait for force.

use chrono::{DateTime, Utc};
use db::PgConnection;
use sqlx::types::Json;

use crate::sweep::difference::Difference;
use crate::sweep::limit;
use crate::sweep::repair;
use crate::sweep::turn::Turn;

/// Whether there may be more to enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Done,
    More,
}

/// Records changes until it is known how many there are.
pub(crate) async fn record_changes(tx: &mut PgConnection, turn: &Turn, changes: &[Difference]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- note changes: a page may be read twice
        INSERT INTO sweep_changes (sweep_id, workflow_id, epoch, revision, class)
        SELECT $1, workflow_id, epoch, revision, class
          FROM jsonb_to_recordset($2) AS found (workflow_id bigint, epoch bigint, revision bigint, class text)
        ON CONFLICT (sweep_id, workflow_id) DO UPDATE
           SET epoch = excluded.epoch, revision = excluded.revision, class = excluded.class
        "#,
        turn.id,
        Json(changes) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Enqueues up to `limit` changes, unless they are too many without force.
pub(crate) async fn release_changes(
    tx: &mut PgConnection,
    turn: &mut Turn,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Release> {
    if !turn.force {
        let (ours, changes) = (turn.findings.count_ours(), count_changes(tx, turn).await?);
        // If some were already enqueued because they were few, the rest is fewer still.
        if changes > limit::most_of(ours) {
            turn.findings.changes_refused = changes.unsigned_abs();
            tracing::error!(
                changes,
                "brake engaged: {changes} of {ours} schedules would be deleted, disabled or changed, \
                 and neither an edit nor a generation explains it"
            );
            return Ok(Release::Done);
        }
    }
    // The sweep may have refused changes before the force was requested.
    turn.findings.changes_refused = 0;
    let taken = take(tx, turn, limit).await?;
    if taken.is_empty() {
        return Ok(Release::Done);
    }
    let (known, unknown): (Vec<_>, Vec<_>) = taken.into_iter().partition(|change| change.epoch.is_some());
    turn.findings.repaired += repair::enqueue_differences(tx, &known, now).await?;
    turn.findings.repaired += repair::enqueue_unpublished(tx, &unknown, now).await?;
    Ok(Release::More)
}

async fn count_changes(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count changes
        SELECT COUNT(*) AS "count!" FROM sweep_changes WHERE sweep_id = $1
        "#,
        turn.id,
    )
    .fetch_one(tx)
    .await
}

async fn take(tx: &mut PgConnection, turn: &Turn, limit: i64) -> sqlx::Result<Vec<Difference>> {
    let taken = sqlx::query!(
        r#"
        -- take changes
        DELETE FROM sweep_changes
         WHERE sweep_id = $1
           AND workflow_id = ANY(ARRAY(
               SELECT workflow_id FROM sweep_changes WHERE sweep_id = $1 ORDER BY workflow_id LIMIT $2))
        RETURNING workflow_id, epoch, revision, class
        "#,
        turn.id,
        limit,
    )
    .fetch_all(tx)
    .await?;
    Ok(taken
        .into_iter()
        .map(|row| Difference {
            workflow_id: row.workflow_id,
            epoch: row.epoch,
            revision: row.revision,
            class: row.class,
        })
        .collect())
}
