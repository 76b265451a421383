//! Step 7 of 7: what the Lambda `notifier` sends to AWS. It claims and settles messages as the app does.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::Value;
use url::Url;

use super::claim::Claimed;
use super::content::{Content, NAMED};
use super::refusal::NotAccepted;
use crate::aws_target::AwsTarget;
use crate::message::TEST;
use crate::notification::list_of_message;

/// A message for AWS.
#[derive(Clone, Debug)]
pub struct AwsMessage {
    /// Where it goes.
    pub target: AwsTarget,
    /// One line.
    pub subject: String,
    /// `cronbox.` and the event.
    pub kind: String,
    /// The body of a webhook, and the id of the message.
    pub document: Value,
}

/// What messages say about where they come from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The environment.
    pub environment: String,
    /// Where people reach the service; `None`: messages have no links.
    pub public_url: Option<Url>,
}

/// Reads what a claimed message says, and where it goes.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn read_aws_message(
    db: &mut PgConnection,
    message: &Claimed,
    origin: &Origin,
    now: DateTime<Utc>,
) -> sqlx::Result<Result<AwsMessage, NotAccepted>> {
    let found = find_target(db, message.channel_id).await?;
    let Some(target) = found.as_deref().and_then(AwsTarget::parse) else {
        return Ok(Err(NotAccepted::permanent("the channel is deleted, or has no valid target_arn")));
    };
    let content = match message.event.as_str() {
        TEST => Content::test(message.channel_id, message.team_id, &origin.environment, now),
        _ => {
            let items = list_of_message(db, message.id, NAMED).await?;
            Content::new(message, &items, &origin.environment, origin.public_url.as_ref(), now)
        }
    };
    let mut document = content.envelope();
    document["id"] = message.id.to_string().into();
    Ok(Ok(AwsMessage { target, subject: content.subject(), kind: content.kind(), document }))
}

/// The seconds for which the oldest message to AWS has waited; 0: none waits.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn oldest_aws_wait(db: &mut PgConnection) -> sqlx::Result<f64> {
    sqlx::query_scalar!(
        r#"
        -- how long the oldest message to AWS has waited that would be sent
        SELECT COALESCE(EXTRACT(EPOCH FROM cronbox_now() - min(m.created_on)), 0)::double precision AS "secs!"
          FROM notification_messages m
          JOIN notification_channels c ON c.id = m.channel_id
         WHERE m.state = 'pending' AND c.kind = 'aws' AND c.target_arn IS NOT NULL AND (c.is_enabled OR m.event = 'test')
        "#,
    )
    .fetch_one(db)
    .await
}

async fn find_target(db: &mut PgConnection, channel: i64) -> sqlx::Result<Option<String>> {
    let found = sqlx::query_scalar!(
        r#"
        -- where a channel of AWS leads
        SELECT target_arn FROM notification_channels WHERE id = $1
        "#,
        channel,
    )
    .fetch_optional(db)
    .await?;
    Ok(found.flatten())
}
