//! Step 7 of 7: collects what waits for a channel in messages: one for each event.
//!
//! A message is made when the first of its notifications has waited for the time of its rule. While the channel is
//! disabled, has quiet hours, or has had as many messages in an hour as it may, everything waits, and the next message has
//! all of it. So it does while its team has had as many e-mails as it may.

use api_types::notifications::ChannelKind;
use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use uuid::Uuid;

use crate::channel::{Channel, lock_channel};
use crate::team_limits::may_send_mail;

/// How many channels with events one statement lists.
const BATCH: i64 = 200;

/// Notifications of one event that wait for one channel.
struct Ready {
    channel_id: i64,
    event: String,
}

/// Makes the messages that are due; returns their number.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement; earlier messages remain.
pub async fn make_messages(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<usize> {
    let (mut made, mut after) = (0, (i64::MIN, String::new()));
    loop {
        // All of them, because any number of channels may have quiet hours.
        let ready = list_ready(&mut *pool.acquire().await?, &after).await?;
        let Some(last) = ready.last() else { return Ok(made) };
        after = (last.channel_id, last.event.clone());
        for Ready { channel_id, event } in &ready {
            made += usize::from(make_one(pool, *channel_id, event, now).await? > 0);
        }
    }
}

/// Makes the message of an event for a channel, unless it has to wait; returns how many notifications it has.
async fn make_one(pool: &PgPool, channel_id: i64, event: &str, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut tx = db::begin_transaction(pool).await?;
    // Locked, so that two instances make messages for a channel one after another.
    let items = match lock_channel(&mut tx, channel_id, None).await? {
        Some(channel) if may_be_sent(&mut tx, &channel, now).await? => {
            make_message(&mut tx, &channel, event, now).await?
        }
        Some(_) => 0,
        None => drop_items(&mut tx, channel_id).await?,
    };
    tx.commit().await?;
    Ok(items)
}

async fn may_be_sent(tx: &mut PgConnection, channel: &Channel, now: DateTime<Utc>) -> sqlx::Result<bool> {
    if !channel.is_enabled || channel.is_quiet(now) {
        return Ok(false);
    }
    let since = now - TimeDelta::hours(1);
    let of_channel = count_since(tx, channel.id, since).await?;
    if of_channel >= i64::from(channel.max_per_hour) {
        return Ok(false);
    }
    Ok(channel.kind() != ChannelKind::Email || may_send_mail(tx, channel.team_id, since, of_channel).await?)
}

async fn list_ready(db: &mut PgConnection, after: &(i64, String)) -> sqlx::Result<Vec<Ready>> {
    sqlx::query_as!(
        Ready,
        r#"
        -- events whose first notification has waited long enough, by channel
        SELECT DISTINCT channel_id, event
          FROM notification_items
         WHERE message_id IS NULL AND ready_on <= cronbox_now() AND (channel_id, event) > ($2, $3)
         ORDER BY channel_id, event
         LIMIT $1
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

/// Takes all that waits, also what has not waited long enough by itself.
async fn take_items(tx: &mut PgConnection, channel_id: i64, event: &str, message: Uuid) -> sqlx::Result<u64> {
    let taken = sqlx::query!(
        r#"
        -- the message takes all notifications of the event that wait for the channel
        UPDATE notification_items SET message_id = $3 WHERE channel_id = $1 AND event = $2 AND message_id IS NULL
        "#,
        channel_id,
        event,
        message,
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
        -- remove what waits for a channel that is deleted
        DELETE FROM notification_items WHERE channel_id = $1 AND message_id IS NULL
        "#,
        channel_id,
    )
    .execute(tx)
    .await?;
    Ok(0)
}
