//! Step 7 of 7: claims messages that are due, and settles them. `attempt_count` is the fence.

use db::PgConnection;
use uuid::Uuid;

use super::acceptance::Acceptance;
use super::refusal::NotAccepted;

/// How many messages one pass claims.
pub const BATCH: usize = 32;
/// How many of them are of one team.
const OF_A_TEAM: i64 = 4;
/// How long a claim lasts; the courier gives each message half of it.
const LEASE_SECS: f64 = 120.0;
/// How often a message is tried: for about eleven hours.
const MOST_ATTEMPTS: i32 = 20;
/// The wait after the first failure; it doubles.
const FIRST_WAIT_SECS: f64 = 10.0;
/// The longest wait.
const LONGEST_WAIT_SECS: f64 = 3_600.0;

/// A message that this pass delivers.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The id of every delivery.
    pub id: Uuid,
    /// The channel; it may be deleted by now.
    pub channel_id: i64,
    /// The team.
    pub team_id: i64,
    pub(crate) team_name: Option<String>,
    pub(crate) event: String,
    pub(crate) items: i32,
    /// How many attempts it has had, with this one.
    pub attempt_count: i32,
    /// Only these recipients of an e-mail do not have it yet; `None`: no recipient has it.
    pub(crate) recipients_left: Option<Vec<String>>,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The receiver accepted the message.
    Sent,
    /// Another attempt follows.
    Again,
    /// No further attempt follows.
    Failed,
}

/// Who delivers messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The app: all but those to AWS.
    App,
    /// The Lambda `notifier`: those to AWS.
    Notifier,
}

/// Claims messages that are due for this carrier: the first of each team before the second of another team, and of these
/// the new ones before those that are repeated. So no other team waits for the silent receivers of a team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn claim_messages(db: &mut PgConnection, carrier: Carrier) -> sqlx::Result<Vec<Claimed>> {
    sqlx::query_as!(
        Claimed,
        r#"
        -- claim messages: some of each team, and no more are read. Another instance takes those that this one has not locked
        WITH RECURSIVE teams_with_messages (team_id) AS (
            (SELECT team_id FROM notification_messages WHERE state = 'pending' ORDER BY team_id LIMIT 1)
            UNION ALL
            SELECT (SELECT m.team_id FROM notification_messages m
                     WHERE m.state = 'pending' AND m.team_id > t.team_id
                     ORDER BY m.team_id
                     LIMIT 1)
              FROM teams_with_messages t
             WHERE t.team_id IS NOT NULL
        ), waiting AS MATERIALIZED (
            SELECT m.id, t.team_id, m.due_at, k.is_retry,
                   row_number() OVER (PARTITION BY t.team_id, k.is_retry ORDER BY m.due_at) AS nth_of_kind
              FROM teams_with_messages t
             CROSS JOIN (VALUES (false), (true)) AS k (is_retry)
             CROSS JOIN LATERAL (
                   SELECT p.id, p.due_at
                     FROM notification_messages p
                    WHERE p.state = 'pending' AND p.team_id = t.team_id AND p.due_at <= cronbox_now()
                      AND (p.attempt_count > 0) = k.is_retry
                      AND (p.lease_until IS NULL OR p.lease_until <= cronbox_now())
                          -- a scalar subquery, because a join could read all messages. Those of a disabled channel wait until it is
                          -- enabled, but for the test that an editor requests
                      AND COALESCE((SELECT CASE c.kind WHEN 'aws' THEN $4 AND c.target_arn IS NOT NULL ELSE NOT $4 END
                                           AND (c.is_enabled OR p.event = 'test')
                                      FROM notification_channels c
                                     WHERE c.id = p.channel_id),
                                   -- the app settles those of a channel that is deleted
                                   NOT $4)
                    ORDER BY p.due_at
                    LIMIT $1) AS m
             WHERE t.team_id IS NOT NULL
        ), due AS MATERIALIZED (
            SELECT id
              FROM (SELECT id, due_at, is_retry,
                           -- New messages and retries of a team take turns, so that neither ends the other.
                           row_number() OVER (PARTITION BY team_id ORDER BY nth_of_kind, is_retry) AS nth
                      FROM waiting) AS of_teams
             WHERE nth <= $1
             ORDER BY nth, is_retry, due_at
             LIMIT $2
        ), locked AS MATERIALIZED (
            SELECT m.id
              FROM notification_messages m
             WHERE m.id IN (SELECT id FROM due) AND m.state = 'pending' AND m.due_at <= cronbox_now()
               AND (m.lease_until IS NULL OR m.lease_until <= cronbox_now())
               FOR UPDATE SKIP LOCKED
        )
        UPDATE notification_messages m
           SET attempt_count = m.attempt_count + 1, lease_until = cronbox_now() + make_interval(secs => $3)
          FROM locked l
         WHERE m.id = l.id
        RETURNING m.id, m.channel_id, m.team_id, (SELECT t.name FROM teams t WHERE t.id = m.team_id) AS "team_name?", m.event,
                  m.items, m.attempt_count, m.recipients_left
        "#,
        OF_A_TEAM,
        i64::try_from(BATCH).unwrap_or(i64::MAX),
        LEASE_SECS,
        carrier == Carrier::Notifier,
    )
    .fetch_all(db)
    .await
}

/// Records what became of an attempt, unless another claim has replaced it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement; the message is then sent again after its lease.
pub async fn settle_message(
    db: &mut PgConnection,
    message: &Claimed,
    outcome: &Result<Acceptance, NotAccepted>,
) -> sqlx::Result<Settlement> {
    match outcome {
        Ok(acceptance) => {
            let (refused, left) = (acceptance.refused_recipients(), acceptance.recipients_left());
            if left.is_empty() {
                settle_sent(db, message, refused.as_deref()).await?;
                return Ok(Settlement::Sent);
            }
            let recipients = Recipients { left: Some(&left), refused: &acceptance.recipients_refused() };
            settle_refused(db, message, &NotAccepted::transient(refused.unwrap_or_default()), recipients).await
        }
        Err(refusal) => {
            let recipients = Recipients { left: message.recipients_left.as_deref(), refused: &[] };
            settle_refused(db, message, refusal, recipients).await
        }
    }
}

/// The recipients of an e-mail that do not have it after an attempt.
#[derive(Clone, Copy)]
struct Recipients<'a> {
    /// Those that get it with the next attempt; `None`: no recipient has it.
    left: Option<&'a [String]>,
    /// Those that this attempt found to get nothing, each with the reason.
    refused: &'a [String],
}

/// Records that these recipients do not have the message.
async fn settle_refused(
    db: &mut PgConnection,
    message: &Claimed,
    refusal: &NotAccepted,
    recipients: Recipients<'_>,
) -> sqlx::Result<Settlement> {
    if refusal.is_final || message.attempt_count >= MOST_ATTEMPTS {
        // People have it: it is no dead letter.
        if recipients.left.is_some() {
            settle_sent(db, message, Some(&refusal.error)).await?;
            return Ok(Settlement::Sent);
        }
        settle_failed(db, message, &refusal.error).await?;
        return Ok(Settlement::Failed);
    }
    settle_again(db, message, refusal, recipients).await?;
    Ok(Settlement::Again)
}

async fn settle_sent(db: &mut PgConnection, message: &Claimed, refused: Option<&str>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle a message that was accepted, perhaps not by all recipients
        UPDATE notification_messages
           SET state = 'sent', sent_on = cronbox_now(), due_at = NULL, lease_until = NULL, recipients_left = NULL,
               -- Also the recipients that an earlier attempt found to get nothing.
               last_error = NULLIF(concat_ws('; ', array_to_string(recipients_refused, '; '), $3::text), ''),
               recipients_refused = NULL
         WHERE id = $1 AND attempt_count = $2 AND state = 'pending'
        "#,
        message.id,
        message.attempt_count,
        refused,
    )
    .execute(db)
    .await
    .map(drop)
}

async fn settle_failed(db: &mut PgConnection, message: &Claimed, error: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle a message that no recipient has, and that no further attempt delivers: a dead letter
        UPDATE notification_messages
           SET state = 'failed', failed_on = cronbox_now(), due_at = NULL, lease_until = NULL, last_error = $3
         WHERE id = $1 AND attempt_count = $2 AND state = 'pending'
        "#,
        message.id,
        message.attempt_count,
        error,
    )
    .execute(db)
    .await
    .map(drop)
}

async fn settle_again(
    db: &mut PgConnection,
    message: &Claimed,
    refusal: &NotAccepted,
    recipients: Recipients<'_>,
) -> sqlx::Result<()> {
    let doubled = FIRST_WAIT_SECS * 2_f64.powi((message.attempt_count - 1).clamp(0, 20));
    // No larger number of a receiver counts.
    let requested = refusal.retry_after_secs.map_or(0.0, |secs| f64::from(u32::try_from(secs).unwrap_or(u32::MAX)));
    sqlx::query!(
        r#"
        -- settle a message that is tried again
        UPDATE notification_messages
           SET due_at = cronbox_now() + make_interval(secs => $3), lease_until = NULL, last_error = $4, recipients_left = $5,
               recipients_refused = recipients_refused || NULLIF($6::text[], '{}')
         WHERE id = $1 AND attempt_count = $2 AND state = 'pending'
        "#,
        message.id,
        message.attempt_count,
        doubled.max(requested).min(LONGEST_WAIT_SECS),
        refusal.error,
        recipients.left,
        recipients.refused,
    )
    .execute(db)
    .await
    .map(drop)
}
