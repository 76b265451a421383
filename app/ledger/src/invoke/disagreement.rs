//! Steps 5 and 7 of 7: fires that EventBridge sent by other zone data or another clock than the app's.
//!
//! The published expression defines when EventBridge fires. If by our zone data it does not name the time of a fire,
//! the two sides differ, whether the expression is exact or a superset.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::{Cron, Fire, compile_cron};

use crate::versions::{self, Version};

/// Whether the fire comes from the expression in force, and this expression does not name its time.
pub(super) async fn is_disagreement(tx: &mut PgConnection, fire: &Fire, in_force: &Version) -> sqlx::Result<bool> {
    // A manual call names no revision.
    let Some(revision) = fire.revision else { return Ok(false) };
    let Ok(Some((cron, timezone))) = in_force.timing.parsed_at(fire.scheduled_time) else { return Ok(false) };
    let published = compile_cron(&cron, timezone);
    if revision.0 != in_force.revision {
        // EventBridge keeps the old revision while the expression stays the same.
        let other = versions::find_by_revision(tx, fire.workflow_id, revision).await?;
        let other = other.and_then(|other| other.timing.parsed_at(fire.scheduled_time).ok().flatten());
        if other.is_none_or(|(cron, timezone)| compile_cron(&cron, timezone) != published) {
            return Ok(false);
        }
    }
    let expression = Cron::parse(&published.expression);
    Ok(expression.is_ok_and(|expression| !expression.matches(fire.scheduled_time, published.timezone)))
}

/// Records the fire for the publisher's metrics, which raise the alarm.
pub(super) async fn record_disagreement(tx: &mut PgConnection, fire: &Fire, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- record_disagreement: a repeated fire is the same disagreement
        INSERT INTO fire_disagreements (workflow_id, scheduled_time, revision, seen_on)
        VALUES ($1, $2, $3, $4)
        ON CONFLICT (workflow_id, scheduled_time) DO UPDATE SET seen_on = excluded.seen_on
        "#,
        fire.workflow_id.0,
        fire.scheduled_time,
        fire.revision.map_or(0, |revision| revision.0),
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
