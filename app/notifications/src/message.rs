//! Step 7 of 7: messages, each about one notification or several of one event, for one channel.

use api_types::notifications::{MessageState, MessageView, NotificationEvent};
use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::aws_errors::{StoredError, error_for_team};

use crate::channel::Channel;

/// The event of a message that is a test of its channel.
pub(crate) const TEST: &str = "test";

/// A message as it is stored.
#[derive(Clone, Debug)]
pub struct Message {
    /// The id of every delivery.
    pub id: Uuid,
    pub(crate) channel_id: i64,
    /// The team.
    pub team_id: i64,
    pub(crate) event: String,
    pub(crate) items: i32,
    pub(crate) state: String,
    pub(crate) due_at: Option<DateTime<Utc>>,
    pub(crate) attempt_count: i32,
    pub(crate) last_error: Option<String>,
    pub(crate) created_on: DateTime<Utc>,
    pub(crate) sent_on: Option<DateTime<Utc>>,
    pub(crate) failed_on: Option<DateTime<Utc>>,
}

/// What became of a request to deliver a message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is due now, with the full number of attempts.
    Requested,
    /// It has not failed.
    NotFailed,
    /// It is a test, and a newer one may wait.
    IsTest,
}

impl Message {
    /// For the members of a team: without the words of AWS.
    #[must_use]
    pub fn for_team(self) -> Self {
        let last_error = self.last_error.as_deref().map(|error| error_for_team(StoredError::Message { error }));
        Self { last_error, ..self }
    }

    /// The view of the API.
    #[must_use]
    pub fn view(&self) -> MessageView {
        MessageView {
            id: self.id,
            channel_id: self.channel_id,
            team_id: self.team_id,
            event: (self.event != TEST)
                .then(|| NotificationEvent::parse(&self.event).unwrap_or(NotificationEvent::RunFailed)),
            items: self.items,
            state: MessageState::parse(&self.state).unwrap_or(MessageState::Pending),
            due_at: self.due_at,
            attempt_count: self.attempt_count,
            last_error: self.last_error.clone(),
            created_on: self.created_on,
            sent_on: self.sent_on,
            failed_on: self.failed_on,
        }
    }
}

/// Finds a message of a team, or of any team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_message(db: &mut PgConnection, id: Uuid, team_id: Option<i64>) -> sqlx::Result<Option<Message>> {
    sqlx::query_as!(
        Message,
        r#"
        -- find a message
        SELECT id, channel_id, team_id, event, items, state, due_at, attempt_count, last_error, created_on, sent_on, failed_on
          FROM notification_messages
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Makes a test of a channel due, and returns the id of its message: of the one that waits, if there is one.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn create_test(tx: &mut PgConnection, channel: &Channel, now: DateTime<Utc>) -> sqlx::Result<Uuid> {
    sqlx::query_scalar!(
        r#"
        -- test a channel by a message
        INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on)
        VALUES ($1, $2, $3, 'test', 0, cronbox_now(), cronbox_now())
        ON CONFLICT (channel_id) WHERE event = 'test' AND state = 'pending' DO UPDATE SET due_at = cronbox_now()
        RETURNING id
        "#,
        workflows::id::make_id(now),
        channel.id,
        channel.team_id,
    )
    .fetch_one(tx)
    .await
}

/// Makes a message that has failed due again.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn retry_message(tx: &mut PgConnection, message: &Message, edit: &Edit) -> sqlx::Result<Retry> {
    if message.event == TEST {
        return Ok(Retry::IsTest);
    }
    let changed = sqlx::query!(
        r#"
        -- deliver a failed message again, under its id
        UPDATE notification_messages
           SET state = 'pending', due_at = cronbox_now(), attempt_count = 0, lease_until = NULL, failed_on = NULL
         WHERE id = $1 AND state = 'failed'
        "#,
        message.id,
    )
    .execute(&mut *tx)
    .await?;
    if changed.rows_affected() == 0 {
        return Ok(Retry::NotFailed);
    }
    let subject = format!("notification-message:{}", message.id);
    let entry = Entry { verb: "retry", subject, team_id: Some(message.team_id), before: None, after: None };
    audit::record_entry(tx, edit, entry).await?;
    Ok(Retry::Requested)
}
