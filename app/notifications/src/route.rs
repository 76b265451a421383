//! Step 7 of 7: gives new notifications to the channels of their rules.

use db::PgConnection;

/// How many notifications one statement routes.
const BATCH: i64 = 1_000;

/// How many notifications were routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Their number.
    pub notifications: usize,
    /// Whether more may wait.
    pub may_be_more: bool,
}

/// Routes a batch of new notifications, in one statement: each gets an item for each enabled channel of its rule, or
/// none while the rule is snoozed.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn route_notifications(db: &mut PgConnection) -> sqlx::Result<Routed> {
    let routed = sqlx::query_scalar!(
        r#"
        -- route notifications: another instance that does the same takes others
        WITH fresh AS MATERIALIZED (
            SELECT id, rule_id, event, created_on FROM notifications WHERE state = 'new' ORDER BY id LIMIT $1
               FOR UPDATE SKIP LOCKED
        ), chosen AS MATERIALIZED (
            SELECT f.id, f.event, c.id AS channel_id, f.created_on + make_interval(secs => r.group_secs) AS ready_on,
                   COALESCE(r.snoozed_until > cronbox_now(), false) AS is_snoozed
              FROM fresh f
              JOIN notification_rules r ON r.id = f.rule_id
              JOIN notification_rule_channels rc ON rc.rule_id = r.id
              JOIN notification_channels c ON c.id = rc.channel_id
             WHERE c.is_enabled
        ), items AS (
            INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
            SELECT id, channel_id, event, ready_on FROM chosen WHERE NOT is_snoozed
        )
        UPDATE notifications n
           SET state = CASE (SELECT bool_or(is_snoozed) FROM chosen c WHERE c.id = f.id)
                            WHEN false THEN 'routed' WHEN true THEN 'snoozed' ELSE 'unsent' END
          FROM fresh f
         WHERE n.id = f.id
        RETURNING n.id
        "#,
        BATCH,
    )
    .fetch_all(db)
    .await?;
    let batch = usize::try_from(BATCH).unwrap_or(usize::MAX);
    Ok(Routed { notifications: routed.len(), may_be_more: routed.len() >= batch })
}
