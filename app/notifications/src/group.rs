//! Step 7 of 7: collects what waits for a channel in messages: one for each event.
//!
//! A message is made when the first of its notifications has waited for the time of its rule. While the channel is
//! disabled, has quiet hours, or has had as many messages in an hour as it may, everything waits for the next message. So it
//! does while its team has had as many e-mails as it may, and while its receiver does not accept the messages before.
//!
//! What waits may be any number, so a statement takes a part of it: else a statement would reach its time limit, in each pass.

use std::collections::HashMap;

use api_types::notifications::ChannelKind;
use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use uuid::Uuid;

use crate::channel::{Channel, lock_channel};
use crate::failures::{JOB, Part, skip_failed};
use crate::team_limits::may_send_mail;

/// How many channels with events one statement lists.
const BATCH: i64 = 200;
/// How many notifications a message has at most.
const MOST_ITEMS: i64 = 10_000;
/// A team that has had so many notifications in the messages of a pass gets no further message in it.
const ITEMS_OF_A_TEAM: u64 = 20_000;
/// A channel for which so many messages wait gets one further message of an event in [`ASKED_EVERY`]. So a receiver that accepts
/// nothing has few messages, whose attempts end, and the next message has all that was collected meanwhile.
const MOST_PENDING: i64 = 5;
/// The waits between the attempts of a message become an hour. A receiver that accepts again must not get the next failure only then.
const ASKED_EVERY: TimeDelta = TimeDelta::minutes(10);
/// If so many wait, it gets one of each event and no further one: the carrier of a channel may be missing, so that no attempt ends.
const MOST_ASKED: i64 = 100;

/// Notifications of one event that wait for one channel.
struct Waiting {
    channel_id: i64,
    event: String,
    /// `None`: the channel is deleted.
    team_id: Option<i64>,
    /// Whether the first of them has waited long enough.
    is_ready: bool,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Messages that were made.
    pub messages: usize,
    /// Channels with events whose statements failed.
    pub failed: u64,
}

/// Makes the messages that are due.
///
/// A channel that fails is logged and counted, and the pass continues.
///
/// # Errors
/// Fails if the database fails; earlier messages remain.
pub async fn make_messages(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Made> {
    let (mut made, mut taken) = (Made::default(), HashMap::<Option<i64>, u64>::new());
    let mut after = (i64::MIN, String::new());
    loop {
        // All of them, because any number of channels may have quiet hours.
        let waiting = list_waiting(&mut *pool.acquire().await?, &after).await?;
        let Some(last) = waiting.last() else { return Ok(made) };
        after = (last.channel_id, last.event.clone());
        for Waiting { channel_id, event, team_id, .. } in waiting.iter().filter(|one| one.is_ready) {
            let of_team = taken.entry(*team_id).or_default();
            if *of_team >= ITEMS_OF_A_TEAM {
                continue;
            }
            match make_one(pool, *channel_id, event, now).await {
                Ok(items) => {
                    made.messages += usize::from(items > 0);
                    *of_team += items;
                }
                Err(error) => {
                    skip_failed(JOB, Part::Channel(*channel_id), error)?;
                    made.failed += 1;
                }
            }
        }
    }
}

/// Makes the message of an event for a channel, unless it has to wait; returns how many notifications it has.
async fn make_one(pool: &PgPool, channel_id: i64, event: &str, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut tx = db::begin_transaction(pool).await?;
    // Locked, so that two instances make messages for a channel one after another.
    let items = match lock_channel(&mut tx, channel_id, None).await? {
        Some(channel) if may_be_sent(&mut tx, &channel, event, now).await? => {
            make_message(&mut tx, &channel, event, now).await?
        }
        Some(_) => 0,
        None => drop_items(&mut tx, channel_id).await?,
    };
    tx.commit().await?;
    Ok(items)
}

async fn may_be_sent(tx: &mut PgConnection, channel: &Channel, event: &str, now: DateTime<Utc>) -> sqlx::Result<bool> {
    if !channel.is_enabled || channel.is_quiet(now) || !has_room(tx, channel.id, event, now).await? {
        return Ok(false);
    }
    let since = now - TimeDelta::hours(1);
    let of_channel = count_since(tx, channel.id, since).await?;
    if of_channel >= i64::from(channel.max_per_hour) {
        return Ok(false);
    }
    Ok(channel.kind() != ChannelKind::Email || may_send_mail(tx, channel.team_id, since, of_channel).await?)
}

/// Whether fewer messages wait for a channel than may, or none of this event: no event waits for the others.
async fn has_room(tx: &mut PgConnection, channel_id: i64, event: &str, now: DateTime<Utc>) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a further message of an event may wait for a channel. Tests do not count, nor e-mails that some recipients have:
        -- these would wait for the full mailbox of another one
        SELECT p.waiting < $3 OR p.newest IS NULL OR (p.waiting < $4 AND p.newest <= $5) AS "has_room!"
          FROM (SELECT count(*) AS waiting, max(created_on) FILTER (WHERE event = $2) AS newest
                  FROM notification_messages
                 WHERE state = 'pending' AND channel_id = $1 AND event <> 'test' AND recipients_left IS NULL) AS p
        "#,
        channel_id,
        event,
        MOST_PENDING,
        MOST_ASKED,
        now - ASKED_EVERY,
    )
    .fetch_one(tx)
    .await
}

async fn list_waiting(db: &mut PgConnection, after: &(i64, String)) -> sqlx::Result<Vec<Waiting>> {
    sqlx::query_as!(
        Waiting,
        r#"
        -- events with notifications that wait, by channel: a step through the index for each, so that no backlog is read
        WITH RECURSIVE waiting (channel_id, event) AS (
            (SELECT channel_id, event
               FROM notification_items
              WHERE message_id IS NULL AND (channel_id, event) > ($2, $3)
              ORDER BY channel_id, event
              LIMIT 1)
            UNION ALL
            SELECT later.channel_id, later.event
              FROM waiting w
             CROSS JOIN LATERAL (
                   SELECT i.channel_id, i.event
                     FROM notification_items i
                    WHERE i.message_id IS NULL AND (i.channel_id, i.event) > (w.channel_id, w.event)
                    ORDER BY i.channel_id, i.event
                    LIMIT 1) AS later
        )
        SELECT w.channel_id AS "channel_id!", w.event AS "event!",
               (SELECT c.team_id FROM notification_channels c WHERE c.id = w.channel_id) AS "team_id?",
               (SELECT i.ready_on <= cronbox_now()
                  FROM notification_items i
                 WHERE i.message_id IS NULL AND i.channel_id = w.channel_id AND i.event = w.event
                 ORDER BY i.ready_on
                 LIMIT 1) AS "is_ready!"
          -- The limit is inside, because the order would need all steps.
          FROM (SELECT channel_id, event FROM waiting LIMIT $1) AS w
         ORDER BY w.channel_id, w.event
        "#,
        BATCH,
        after.0,
        after.1,
    )
    .fetch_all(db)
    .await
}

async fn count_since(tx: &mut PgConnection, channel_id: i64, since: DateTime<Utc>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count the messages to a channel since a time
        SELECT count(*) AS "count!" FROM notification_messages WHERE channel_id = $1 AND created_on > $2
        "#,
        channel_id,
        since,
    )
    .fetch_one(tx)
    .await
}

/// Returns how many notifications the message has; 0: another instance has made it.
async fn make_message(tx: &mut PgConnection, channel: &Channel, event: &str, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let id = workflows::id::make_id(now);
    let items = take_items(tx, channel.id, event, id).await?;
    if items > 0 {
        insert_message(tx, id, channel, event, items, now).await?;
    }
    Ok(items)
}

/// Takes what waits, the first of it first, also what has not waited long enough by itself.
async fn take_items(tx: &mut PgConnection, channel_id: i64, event: &str, message: Uuid) -> sqlx::Result<u64> {
    let taken = sqlx::query!(
        r#"
        -- the message takes notifications of the event that wait for the channel
        UPDATE notification_items
           SET message_id = $3
         WHERE message_id IS NULL
           AND ctid = ANY(ARRAY(SELECT ctid
                                  FROM notification_items
                                 WHERE channel_id = $1 AND event = $2 AND message_id IS NULL
                                 ORDER BY ready_on
                                 LIMIT $4))
        "#,
        channel_id,
        event,
        message,
        MOST_ITEMS,
    )
    .execute(tx)
    .await?;
    Ok(taken.rows_affected())
}

async fn insert_message(
    tx: &mut PgConnection,
    id: Uuid,
    channel: &Channel,
    event: &str,
    items: u64,
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- insert a message
        INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on, is_mail)
        VALUES ($1, $2, $3, $4, $5, cronbox_now(), $6, $7)
        "#,
        id,
        channel.id,
        channel.team_id,
        event,
        i32::try_from(items).unwrap_or(i32::MAX),
        now,
        channel.kind() == ChannelKind::Email,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// A channel that was deleted meanwhile gets nothing.
async fn drop_items(tx: &mut PgConnection, channel_id: i64) -> sqlx::Result<u64> {
    sqlx::query!(
        r#"
        -- remove some of what waits for a channel that is deleted
        DELETE FROM notification_items
         WHERE message_id IS NULL
           AND ctid = ANY(ARRAY(SELECT ctid FROM notification_items WHERE channel_id = $1 AND message_id IS NULL LIMIT $2))
        "#,
        channel_id,
        MOST_ITEMS,
    )
    .execute(tx)
    .await?;
    Ok(0)
}
