//! Step 7 of 7: the notifications of the daily verification.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// A time on which the ledger differs, for its notification.
#[derive(Clone, Copy, Debug)]
pub struct LedgerDifference {
    /// The workflow.
    pub workflow_id: i64,
    /// The time.
    pub scheduled_time: DateTime<Utc>,
    /// The word of the kind.
    pub kind: &'static str,
}

/// Writes the notifications of differences, in the transaction that records the part of the verification.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn record_differences(
    tx: &mut PgConnection,
    differences: &[LedgerDifference],
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    if differences.is_empty() {
        return Ok(());
    }
    let workflows: Vec<_> = differences.iter().map(|one| one.workflow_id).collect();
    let times: Vec<_> = differences.iter().map(|one| one.scheduled_time).collect();
    let kinds: Vec<_> = differences.iter().map(|one| one.kind.to_owned()).collect();
    sqlx::query!(
        r#"
        -- notify of differences of the ledger
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, scheduled_time, facts)
        SELECT r.id, w.team_id, w.id, r.event, w.id || '/' || EXTRACT(EPOCH FROM d.time)::bigint, $4, d.time,
               jsonb_build_object('kind', d.kind)
          FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS d (workflow_id, time, kind)
          JOIN workflows w ON w.id = d.workflow_id
          JOIN notification_rules r ON r.team_id = w.team_id AND (r.workflow_id IS NULL OR r.workflow_id = w.id)
         WHERE r.is_enabled AND r.event = 'verify_difference'
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        &workflows,
        &times,
        &kinds,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
