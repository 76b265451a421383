//! Step 7 of 7: claims messages that are due, sends each, and settles it.

use std::time::Duration;

use api_types::notifications::ChannelKind;
use chrono::{DateTime, Utc};
use db::PgPool;
use db::failpoint::pass_point;
use egress::Client;
use egress::mail::{AcceptedFor, Mail, Mailer};
use futures::StreamExt as _;
use url::Url;
use uuid::Uuid;
use workflows::failpoint::Point;
use workflows::secrets::{SecretError, Secrets};

use super::acceptance::Acceptance;
use super::claim::{self, Carrier, Claimed, Settlement};
use super::content::{Content, NAMED};
use super::post::Poster;
use super::refusal::NotAccepted;
use crate::channel::{Channel, find_channel};
use crate::notification::list_of_message;

/// How many messages are sent at once: all of a pass, so that the lease of none ends before its request begins.
const AT_ONCE: usize = claim::BATCH;
/// How long one message may take. Each kind has a shorter limit of its own; this one also covers what a kind does before
/// its request. It is half of the lease, so that no other instance claims a message that is being sent.
const SENDING_LIMIT: Duration = Duration::from_secs(60);

/// Delivers messages.
#[derive(Clone)]
pub struct Courier {
    pool: PgPool,
    poster: Poster,
    mailer: Option<Mailer>,
    environment: String,
    public_url: Option<Url>,
}

/// What deliveries need.
pub struct CourierParts {
    /// The connections to the database.
    pub pool: PgPool,
    /// Sends requests to the URLs of teams.
    pub client: Client,
    /// Sends e-mail; `None`: the operator has set no mail server.
    pub mailer: Option<Mailer>,
    /// Decrypts URLs and signing secrets.
    pub secrets: Secrets,
    /// The environment, which messages name.
    pub environment: String,
    /// Where people reach the service; `None`: messages have no links.
    pub public_url: Option<Url>,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Messages that receivers accepted.
    pub sent: usize,
    /// Attempts that failed.
    pub failed: usize,
    /// Whether more may be due.
    pub may_be_more: bool,
}

impl Courier {
    /// A courier of these parts.
    #[must_use]
    pub fn new(parts: CourierParts) -> Self {
        let CourierParts { pool, client, mailer, secrets, environment, public_url } = parts;
        Self { poster: Poster { pool: pool.clone(), client, secrets }, pool, mailer, environment, public_url }
    }

    /// Delivers messages that are due: some of each team, so that a team whose receivers are slow delays others by one pass
    /// at most.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses a statement, with the first such error and after all other
    /// messages are settled; a message that was sent may be sent again.
    pub async fn deliver_due(&self, now: DateTime<Utc>) -> sqlx::Result<Delivered> {
        let claimed = claim::claim_messages(&mut *self.pool.acquire().await?, Carrier::App).await?;
        if !claimed.is_empty() {
            pass_point(Point::N3);
        }
        let may_be_more = claimed.len() >= claim::BATCH;
        let delivering = futures::stream::iter(claimed).map(|message| self.deliver(message, now));
        // An error of one message must not end the requests of the others: their receivers may have the messages already.
        let settled: Vec<sqlx::Result<Settlement>> = delivering.buffer_unordered(AT_ONCE).collect().await;
        let mut delivered = Delivered { may_be_more, ..Delivered::default() };
        for settlement in settled {
            match settlement? {
                Settlement::Sent => delivered.sent += 1,
                Settlement::Again | Settlement::Failed => delivered.failed += 1,
            }
        }
        Ok(delivered)
    }

    /// Sends a message that says that it is a test, and returns who accepted it, or why it was not accepted.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses a statement, or if a secret cannot be decrypted.
    pub async fn send_test(
        &self,
        channel: &Channel,
        now: DateTime<Utc>,
    ) -> Result<Result<Acceptance, String>, SecretError> {
        let content = Content::test(channel.id, channel.team_id, &self.environment, now);
        let sent = self.send(channel, &content, workflows::id::make_id(now), now).await?;
        Ok(sent.map_err(|refusal| refusal.error))
    }

    async fn deliver(&self, message: Claimed, now: DateTime<Utc>) -> sqlx::Result<Settlement> {
        let outcome = self.attempt(&message, now).await?;
        pass_point(Point::N4);
        let mut db = self.pool.acquire().await?;
        let settlement = claim::settle_message(&mut db, &message, &outcome).await?;
        log_outcome(&message, &outcome);
        Ok(settlement)
    }

    async fn attempt(&self, message: &Claimed, now: DateTime<Utc>) -> sqlx::Result<Result<Acceptance, NotAccepted>> {
        let (channel, items) = {
            let mut db = self.pool.acquire().await?;
            let channel = find_channel(&mut db, message.channel_id, None).await?;
            (channel, list_of_message(&mut db, message.id, NAMED).await?)
        };
        let Some(mut channel) = channel else {
            return Ok(Err(NotAccepted::permanent("the channel is deleted")));
        };
        if let Some(left) = &message.recipients_left {
            channel.recipients.retain(|recipient| left.contains(recipient));
            if channel.recipients.is_empty() {
                return Ok(Err(NotAccepted::permanent(
                    "the channel no longer has the recipients that lack the message",
                )));
            }
        }
        let content = Content::new(message, &items, &self.environment, self.public_url.as_ref(), now);
        match self.send(&channel, &content, message.id, now).await {
            Ok(sent) => Ok(sent),
            Err(SecretError::Database(error)) => Err(error),
            Err(error) => Ok(Err(NotAccepted::transient(error.to_string()))),
        }
    }

    async fn send(
        &self,
        channel: &Channel,
        content: &Content,
        id: Uuid,
        now: DateTime<Utc>,
    ) -> Result<Result<Acceptance, NotAccepted>, SecretError> {
        let sending = self.send_by_kind(channel, content, id, now);
        tokio::time::timeout(SENDING_LIMIT, sending).await.unwrap_or_else(|_| {
            Ok(Err(NotAccepted::transient(format!("not sent within {} s", SENDING_LIMIT.as_secs()))))
        })
    }

    async fn send_by_kind(
        &self,
        channel: &Channel,
        content: &Content,
        id: Uuid,
        now: DateTime<Utc>,
    ) -> Result<Result<Acceptance, NotAccepted>, SecretError> {
        match channel.kind() {
            ChannelKind::Webhook => self.poster.post(channel, &content.envelope(), Some(id), now).await,
            ChannelKind::Slack => self.poster.post(channel, &content.slack(), None, now).await,
            ChannelKind::Email => Ok(self.send_mail(channel, content, id).await),
            ChannelKind::Aws => {
                Ok(Err(NotAccepted::permanent("the Lambda notifier sends messages to AWS, not the app")))
            }
        }
    }

    async fn send_mail(&self, channel: &Channel, content: &Content, id: Uuid) -> Result<Acceptance, NotAccepted> {
        let Some(mailer) = &self.mailer else {
            return Err(NotAccepted::transient("no mail server is set: an operator must set CRONBOX_SMTP_URL"));
        };
        let (id, text) = (id.to_string(), content.mail_text());
        let mail = Mail { id: &id, to: &channel.recipients, subject: &content.subject(), text: &text };
        match mailer.send(mail).await {
            Ok(AcceptedFor::All) => Ok(Acceptance::Complete),
            Ok(AcceptedFor::AllBut(refused)) => Ok(Acceptance::Partial(refused)),
            Err(error) => Err(NotAccepted { is_final: error.is_final(), ..NotAccepted::transient(error.to_string()) }),
        }
    }
}

fn log_outcome(message: &Claimed, outcome: &Result<Acceptance, NotAccepted>) {
    let (error, event) = match outcome {
        Ok(acceptance) => {
            let Some(refused) = acceptance.refused_recipients() else { return };
            (refused, "notification not delivered to all recipients")
        }
        Err(refusal) => (refusal.error.clone(), "notification not delivered"),
    };
    tracing::warn!(message_id = %message.id, channel_id = message.channel_id, attempt = message.attempt_count,
        %error, "{event}");
}
