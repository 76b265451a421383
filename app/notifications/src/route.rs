//! Step 7 of 7: gives new notifications to the channels of their rules.
//!
//! A round takes some of each team, so no team waits for the backlog of another one.

use db::{PgConnection, PgPool};

use crate::failures::{JOB, Part, skip_failed};

/// How many notifications of a team one round routes, in one statement.
const BATCH: i64 = 500;

/// How many notifications were routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Their number.
    pub notifications: usize,
    /// Teams whose statement failed.
    pub failed: u64,
    /// Whether more may wait.
    pub may_be_more: bool,
}

impl Routed {
    /// Adds the next round, which says whether more may wait.
    pub fn add(&mut self, round: Routed) {
        self.notifications += round.notifications;
        self.failed += round.failed;
        self.may_be_more = round.may_be_more;
    }
}

/// Routes a round of new notifications, a batch of each team: each gets an item for each enabled channel of its rule, or
/// none while the rule is snoozed.
///
/// A team that fails is logged and counted, and the round continues.
///
/// # Errors
/// Fails if the database fails; what was routed stays.
pub async fn route_notifications(pool: &PgPool) -> sqlx::Result<Routed> {
    let mut routed = Routed::default();
    // Not within the `for`, which would keep the connection to its end.
    let teams = list_teams(&mut *pool.acquire().await?).await?;
    for team in teams {
        match route_team(&mut *pool.acquire().await?, team).await {
            Ok(notifications) => {
                routed.notifications += notifications;
                routed.may_be_more |= notifications >= usize::try_from(BATCH).unwrap_or(usize::MAX);
            }
            Err(error) => {
                skip_failed(JOB, Part::Team(team), error)?;
                routed.failed += 1;
            }
        }
    }
    Ok(routed)
}

async fn list_teams(db: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- teams with new notifications: a step through the index for each, so that no backlog is read
        WITH RECURSIVE teams_with_new (team_id) AS (
            (SELECT team_id FROM notifications WHERE state = 'new' ORDER BY team_id LIMIT 1)
            UNION ALL
            SELECT (SELECT n.team_id FROM notifications n
                     WHERE n.state = 'new' AND n.team_id > t.team_id
                     ORDER BY n.team_id
                     LIMIT 1)
              FROM teams_with_new t
             WHERE t.team_id IS NOT NULL
        )
        SELECT team_id AS "team_id!" FROM teams_with_new WHERE team_id IS NOT NULL
        "#
    )
    .fetch_all(db)
    .await
}

async fn route_team(db: &mut PgConnection, team_id: i64) -> sqlx::Result<usize> {
    let routed = sqlx::query_scalar!(
        r#"
        -- route notifications of a team: another instance that does the same takes others
        WITH fresh AS MATERIALIZED (
            -- Two columns are compared and sorted, because an index without the team could read the new ones of all teams.
            SELECT id, rule_id, event, created_on
              FROM notifications
             WHERE state = 'new' AND (team_id, id) >= ($1, 0) AND (team_id, id) < ($1::bigint + 1, 0)
             ORDER BY team_id, id
             LIMIT $2
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
        team_id,
        BATCH,
    )
    .fetch_all(db)
    .await?;
    Ok(routed.len())
}
