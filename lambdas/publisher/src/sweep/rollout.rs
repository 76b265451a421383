//! Step 3 of 7: the rollout of a raised generation: ten canaries, and after their success the rest, behind edits.
//!
//! A sweep queues the schedules whose difference the generation explains (`sweep.rs`). A drain that has nothing else to
//! do enqueues them, never more at once than it publishes in about a second, so that no edit waits longer than that.

use chrono::{DateTime, Utc};
use db::PgConnection;
use sqlx::types::Json;

use crate::claim::deployment::Generation;
use crate::publisher::Publisher;
use crate::sweep::difference::Difference;
use crate::sweep::repair::{self, Repair};

/// How many are published first; if one of them fails, no other follows.
const CANARIES: i64 = 10;
/// The minimum that is enqueued at once, however low `CRONBOX_API_TPS` is.
const FEWEST: i64 = 10;
/// The maximum that is enqueued in one transaction.
const MOST: i64 = 1000;

/// The progress of a rollout.
enum Stage {
    /// No canary is enqueued yet.
    Canaries,
    /// A canary is not published yet, or has failed.
    Waiting,
    /// Each canary has succeeded.
    Rest,
}

/// The workflows taken off the queue of the rollout.
struct Enqueued {
    taken: u64,
    /// The workflows that were enqueued.
    workflows: Vec<i64>,
}

/// Queues workflows whose schedule differs only because the generation was raised.
pub(crate) async fn queue_for_rollout(tx: &mut PgConnection, explained: &[Difference]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- queue for the rollout
        INSERT INTO rollout_queue (workflow_id, class)
        SELECT workflow_id, class
          FROM jsonb_to_recordset($1) AS found (workflow_id bigint, class text)
         ORDER BY workflow_id
        ON CONFLICT DO NOTHING
        "#,
        Json(explained) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Continues the rollout whatever the results of the canaries: an operator's force.
pub(crate) async fn force_rollout(tx: &mut PgConnection, generation: Generation) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- force the rollout
        UPDATE config_generation
           SET canaries = '{}'
         WHERE (generation, template) = ($1, $2)
           AND canaries_on IS NOT NULL
           AND rolled_out_on IS NULL
        "#,
        generation.number,
        generation.template,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Records that a sweep that began after the generation was raised read each suspect, and found no schedule of an older
/// one.
pub(crate) async fn finish_rollout(tx: &mut PgConnection, generation: Generation, sweep: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- finish the rollout
        UPDATE config_generation AS g
           SET rolled_out_on = cronbox_now()
          FROM sweeps AS s
         WHERE s.id = $3
           AND s.started_on >= g.raised_on
           AND (g.generation, g.template) = ($1, $2)
           AND g.rolled_out_on IS NULL
           AND NOT EXISTS (SELECT FROM rollout_queue)
        "#,
        generation.number,
        generation.template,
        sweep,
    )
    .execute(tx)
    .await
    .map(drop)
}

impl Publisher {
    /// Removes the next workflows from the rollout's queue and returns their number; 0 = there are none, or they must
    /// wait.
    pub(crate) async fn roll_out(&self) -> sqlx::Result<u64> {
        let mut tx = db::begin_transaction(self.pool()).await?;
        let now = self.clock().now();
        let taken = match lock_stage(&mut tx, self.claimant().generation).await? {
            Some(Stage::Canaries) => {
                let Enqueued { taken, workflows } = enqueue(&mut tx, CANARIES, now).await?;
                remember_canaries(&mut tx, &workflows).await?;
                taken
            }
            Some(Stage::Rest) => {
                let at_once = i64::from(self.config().api_tps).clamp(FEWEST, MOST);
                let marks = self.low_water().marks();
                let room = at_once - repair::count_due_repairs(&mut tx, marks, at_once).await?;
                if room > 0 { enqueue(&mut tx, room, now).await?.taken } else { 0 }
            }
            Some(Stage::Waiting) | None => 0,
        };
        tx.commit().await?;
        Ok(taken)
    }
}

/// `None` = another publisher has locked it, or a newer generation was raised.
async fn lock_stage(tx: &mut PgConnection, generation: Generation) -> sqlx::Result<Option<Stage>> {
    let locked = sqlx::query!(
        r#"
        -- lock the rollout: by one publisher at a time, or two would each choose canaries
        SELECT canaries, canaries_on IS NOT NULL AS "has_canaries!"
          FROM config_generation
         WHERE (generation, template) = ($1, $2)
           FOR UPDATE SKIP LOCKED
        "#,
        generation.number,
        generation.template,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(locked) = locked else { return Ok(None) };
    if !locked.has_canaries {
        return Ok(Some(Stage::Canaries));
    }
    let is_waiting = sqlx::query_scalar!(
        r#"
        -- canaries: published are those whose schedule is known to exist as required
        SELECT EXISTS (
               SELECT FROM publications
                WHERE workflow_id = ANY($1)
                  AND (spec_hash IS NULL OR error_class IS NOT NULL)
        ) AS "is_waiting!"
        "#,
        &locked.canaries,
    )
    .fetch_one(tx)
    .await?;
    Ok(Some(if is_waiting { Stage::Waiting } else { Stage::Rest }))
}

/// Takes up to `limit` workflows off the queue, and enqueues those that no publisher processes.
///
/// What is due or leased is published in the new generation anyway.
async fn enqueue(tx: &mut PgConnection, limit: i64, now: DateTime<Utc>) -> sqlx::Result<Enqueued> {
    let taken = take(tx, limit).await?;
    if taken.is_empty() {
        return Ok(Enqueued { taken: 0, workflows: Vec::new() });
    }
    let repairs: Vec<_> =
        taken.iter().map(|next| Repair { workflow_id: next.workflow_id, epoch: None, class: &next.class }).collect();
    let workflows = repair::enqueue_repairs(tx, &repairs, now).await?;
    Ok(Enqueued { taken: taken.len() as u64, workflows })
}

/// A workflow in the queue.
struct Queued {
    workflow_id: i64,
    class: String,
}

async fn take(tx: &mut PgConnection, limit: i64) -> sqlx::Result<Vec<Queued>> {
    sqlx::query_as!(
        Queued,
        r#"
        -- take the next of the rollout
        DELETE FROM rollout_queue
         WHERE workflow_id IN (SELECT workflow_id FROM rollout_queue ORDER BY workflow_id LIMIT $1)
        RETURNING workflow_id, class
        "#,
        limit,
    )
    .fetch_all(tx)
    .await
}

async fn remember_canaries(tx: &mut PgConnection, canaries: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- remember canaries: an empty list means that none is chosen yet
        UPDATE config_generation
           SET canaries = $1, canaries_on = cronbox_now()
         WHERE cardinality($1::bigint[]) > 0
        "#,
        canaries,
    )
    .execute(tx)
    .await
    .map(drop)
}
