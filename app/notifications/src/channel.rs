//! Step 7 of 7: channels, where a team wants notifications.

use api_types::notifications::{ChannelKind, ChannelView, QuietHours};
use chrono::{DateTime, Utc};
use db::PgConnection;
use egress::mail::is_mail_address;
use serde_json::{Value, json};
use url::Url;
use workflows::audit::{self, Edit, Entry};
use workflows::definition::field::{self, FieldError};
use workflows::keyset::KeysetPage;
use workflows::secrets::{SecretError, Secrets};

use crate::aws_target::AwsTarget;
use crate::quiet::{QuietSpan, minute_text, parse_minute};

/// How many channels a team has at most.
pub const MOST_CHANNELS: i64 = 50;
/// How many addresses an e-mail has at most.
const MOST_RECIPIENTS: usize = 20;
/// Messages in an hour, unless a channel says otherwise.
pub const DEFAULT_MAX_PER_HOUR: i32 = 60;
/// Messages in an hour at most.
const MOST_PER_HOUR: i32 = 1_000;

/// What a client defines of a channel.
#[derive(Clone, Debug)]
pub struct ChannelSpec {
    /// Unique in its team.
    pub name: String,
    /// How messages are sent.
    pub kind: ChannelKind,
    /// Of a webhook or of Slack; `None`: it has none, or keeps the present one.
    pub url: Option<Url>,
    /// Of an e-mail.
    pub recipients: Vec<String>,
    /// Of AWS.
    pub target_arn: Option<String>,
    /// Messages in an hour at most.
    pub max_per_hour: i32,
    /// When no message is sent.
    pub quiet: Option<QuietHours>,
    /// Whether it gets notifications.
    pub is_enabled: bool,
}

/// A channel as it is stored.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its id.
    pub id: i64,
    /// The owner.
    pub team_id: i64,
    name: String,
    kind: String,
    pub(crate) url: Option<String>,
    origin: Option<String>,
    pub(crate) recipients: Vec<String>,
    target_arn: Option<String>,
    pub(crate) max_per_hour: i32,
    quiet_from: Option<i32>,
    quiet_to: Option<i32>,
    quiet_timezone: Option<String>,
    pub(crate) is_enabled: bool,
    /// Raised by each change.
    pub version: i64,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// What became of a new channel.
#[derive(Clone, Debug)]
pub enum ChannelCreation {
    /// It exists.
    Created(Box<Channel>),
    /// The team has as many as it may.
    TooMany,
}

/// What became of a channel that is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelDeletion {
    /// It is deleted.
    Deleted,
    /// A rule has it.
    InUse,
}

impl ChannelSpec {
    /// Checks the fields. `is_new`: a URL is required, where the kind has one.
    ///
    /// # Errors
    /// Fails with the first field that is not valid.
    pub fn check(&self, is_new: bool) -> Result<(), FieldError> {
        field::check_name("name", &self.name)?;
        self.check_target(is_new)?;
        if !(1..=MOST_PER_HOUR).contains(&self.max_per_hour) {
            let detail = format!("max_per_hour must be from 1 to {MOST_PER_HOUR}");
            return Err(FieldError::invalid("max_per_hour", detail));
        }
        match &self.quiet {
            Some(quiet) => parse_quiet(quiet).map(drop),
            None => Ok(()),
        }
    }

    fn check_target(&self, is_new: bool) -> Result<(), FieldError> {
        let has_url = matches!(self.kind, ChannelKind::Webhook | ChannelKind::Slack);
        match &self.url {
            Some(_) if !has_url => return Err(FieldError::invalid("url", "only webhook and slack have a url")),
            None if has_url && is_new => {
                return Err(FieldError::new("missing_field", "url", "webhook and slack need a url"));
            }
            Some(url) if !matches!(url.scheme(), "http" | "https") => {
                return Err(FieldError::invalid("url", "url must begin with https://"));
            }
            _ => {}
        }
        self.check_target_arn()?;
        match self.kind {
            ChannelKind::Email if !(1..=MOST_RECIPIENTS).contains(&self.recipients.len()) => {
                Err(FieldError::invalid("recipients", format!("an e-mail needs 1 to {MOST_RECIPIENTS} recipients")))
            }
            ChannelKind::Email => match self.recipients.iter().position(|address| !is_mail_address(address)) {
                Some(at) => Err(FieldError::invalid(format!("recipients.{at}"), "this is not an address of e-mail")),
                None => Ok(()),
            },
            _ if self.recipients.is_empty() => Ok(()),
            _ => Err(FieldError::invalid("recipients", "only email has recipients")),
        }
    }

    fn check_target_arn(&self) -> Result<(), FieldError> {
        match &self.target_arn {
            None if self.kind == ChannelKind::Aws => Err(FieldError::new(
                "missing_field",
                "target_arn",
                "aws needs the target_arn of an event bus or an SNS topic",
            )),
            Some(_) if self.kind != ChannelKind::Aws => {
                Err(FieldError::invalid("target_arn", "only aws has a target_arn"))
            }
            Some(arn) if AwsTarget::parse(arn).is_none() => Err(FieldError::invalid(
                "target_arn",
                "write the ARN of an event bus or an SNS topic, for example arn:aws:sns:eu-west-1:123456789012:alerts",
            )),
            _ => Ok(()),
        }
    }

    fn quiet_columns(&self) -> (Option<i32>, Option<i32>, Option<String>) {
        let parsed = self.quiet.as_ref().and_then(|quiet| parse_quiet(quiet).ok());
        match parsed {
            Some(span) => (Some(span.from), Some(span.to), Some(span.timezone.name().to_owned())),
            None => (None, None, None),
        }
    }
}

fn parse_quiet(quiet: &QuietHours) -> Result<QuietSpan, FieldError> {
    let minute = |field: &str, text: &str| {
        parse_minute(text).ok_or_else(|| FieldError::invalid(field, "write a local time as HH:MM, for example 22:00"))
    };
    let (from, to) = (minute("quiet.from", &quiet.from)?, minute("quiet.to", &quiet.to)?);
    if from == to {
        return Err(FieldError::invalid(
            "quiet.to",
            "quiet.to must differ from quiet.from: set enabled to false instead",
        ));
    }
    let timezone = schedule::parse_timezone(&quiet.timezone)
        .map_err(|error| FieldError::new(error.code(), "quiet.timezone", error.to_string()))?;
    Ok(QuietSpan { from, to, timezone })
}

impl Channel {
    /// How many messages it sends in an hour at most.
    #[must_use]
    pub fn max_per_hour(&self) -> i32 {
        self.max_per_hour
    }

    /// How messages are sent. The table permits no other word.
    #[must_use]
    pub fn kind(&self) -> ChannelKind {
        match self.kind.as_str() {
            "webhook" => ChannelKind::Webhook,
            "slack" => ChannelKind::Slack,
            "email" => ChannelKind::Email,
            _ => ChannelKind::Aws,
        }
    }

    /// Whether a moment lies in its quiet hours. A timezone that is not known any more has none.
    pub(crate) fn is_quiet(&self, moment: DateTime<Utc>) -> bool {
        let span = || {
            let timezone = schedule::parse_timezone(self.quiet_timezone.as_deref()?).ok()?;
            Some(QuietSpan { from: self.quiet_from?, to: self.quiet_to?, timezone })
        };
        span().is_some_and(|span| span.contains(moment))
    }

    /// The view of the API.
    #[must_use]
    pub fn view(&self) -> ChannelView {
        let quiet = || {
            Some(QuietHours {
                from: minute_text(self.quiet_from?),
                to: minute_text(self.quiet_to?),
                timezone: self.quiet_timezone.clone()?,
            })
        };
        ChannelView {
            id: self.id,
            team_id: self.team_id,
            name: self.name.clone(),
            kind: self.kind(),
            origin: self.origin.clone(),
            recipients: self.recipients.clone(),
            target_arn: self.target_arn.clone(),
            max_per_hour: self.max_per_hour,
            quiet: quiet(),
            enabled: self.is_enabled,
            version: self.version,
            created_on: self.created_on,
            updated_on: self.updated_on,
        }
    }

    fn audited(&self) -> Value {
        json!({
            "name": self.name, "kind": self.kind, "origin": self.origin, "recipients": self.recipients,
            "target_arn": self.target_arn, "max_per_hour": self.max_per_hour, "quiet": self.view().quiet,
            "enabled": self.is_enabled,
        })
    }
}

/// The word of the database for a kind.
fn kind_word(kind: ChannelKind) -> &'static str {
    match kind {
        ChannelKind::Webhook => "webhook",
        ChannelKind::Slack => "slack",
        ChannelKind::Email => "email",
        ChannelKind::Aws => "aws",
    }
}

/// Creates a channel of a team, which the caller has checked.
///
/// # Errors
/// Fails if the database fails, or if this instance does not have the key of the team; a name that is taken violates
/// `notification_channels_name`.
pub async fn create_channel(
    tx: &mut PgConnection,
    secrets: &Secrets,
    team_id: i64,
    spec: &ChannelSpec,
    edit: &Edit,
) -> Result<ChannelCreation, SecretError> {
    let url = seal_url(tx, secrets, team_id, spec, edit.now).await?;
    let channel = insert_channel(tx, team_id, spec, url, edit.now).await?;
    if count_channels(tx, team_id).await? > MOST_CHANNELS {
        return Ok(ChannelCreation::TooMany);
    }
    record(tx, edit, "create", team_id, channel.id, None, Some(channel.audited())).await?;
    Ok(ChannelCreation::Created(Box::new(channel)))
}

/// Replaces the fields of a channel, which the caller has locked. Without a URL it keeps its own.
///
/// # Errors
/// As [`create_channel`].
pub async fn replace_channel(
    tx: &mut PgConnection,
    secrets: &Secrets,
    before: &Channel,
    spec: &ChannelSpec,
    edit: &Edit,
) -> Result<Channel, SecretError> {
    let url = seal_url(tx, secrets, before.team_id, spec, edit.now).await?;
    let after = update_channel(tx, before.id, spec, url, edit.now).await?;
    record(tx, edit, "update", before.team_id, before.id, Some(before.audited()), Some(after.audited())).await?;
    Ok(after)
}

/// Deletes a channel, which the caller has locked. Messages to it that wait fail.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn delete_channel(tx: &mut PgConnection, before: &Channel, edit: &Edit) -> sqlx::Result<ChannelDeletion> {
    if is_in_use(tx, before.id).await? {
        return Ok(ChannelDeletion::InUse);
    }
    sqlx::query!(
        r#"
        -- delete a channel that no rule has
        DELETE FROM notification_channels WHERE id = $1
        "#,
        before.id,
    )
    .execute(&mut *tx)
    .await?;
    fail_pending_messages(tx, before.id).await?;
    record(tx, edit, "delete", before.team_id, before.id, Some(before.audited()), None).await?;
    Ok(ChannelDeletion::Deleted)
}

/// Else a team that creates and deletes channels would have any number of messages that wait. The job settles what a carrier
/// sends now, e-mails that some recipients have, and what is beyond this number, which only an earlier version has made.
async fn fail_pending_messages(tx: &mut PgConnection, channel_id: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- fail the messages that wait for a channel that is deleted
        UPDATE notification_messages
           SET state = 'failed', failed_on = cronbox_now(), due_at = NULL, lease_until = NULL, last_error = 'the channel is deleted'
         WHERE state = 'pending'
           AND ctid = ANY(ARRAY(SELECT ctid
                                  FROM notification_messages
                                 WHERE channel_id = $1 AND state = 'pending' AND recipients_left IS NULL
                                   AND (lease_until IS NULL OR lease_until <= cronbox_now())
                                 LIMIT 1000))
        "#,
        channel_id,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn seal_url(
    tx: &mut PgConnection,
    secrets: &Secrets,
    team_id: i64,
    spec: &ChannelSpec,
    now: DateTime<Utc>,
) -> Result<Option<String>, SecretError> {
    match &spec.url {
        Some(url) => secrets.seal_channel_url(tx, team_id, url.as_str(), now).await.map(Some),
        None => Ok(None),
    }
}

async fn record(
    tx: &mut PgConnection,
    edit: &Edit,
    verb: &str,
    team_id: i64,
    id: i64,
    before: Option<Value>,
    after: Option<Value>,
) -> sqlx::Result<()> {
    let subject = format!("notification-channel:{id}");
    audit::record_entry(tx, edit, Entry { verb, subject, team_id: Some(team_id), before, after }).await
}

/// Finds a channel of a team, or of any team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_channel(db: &mut PgConnection, id: i64, team_id: Option<i64>) -> sqlx::Result<Option<Channel>> {
    sqlx::query_as!(
        Channel,
        r#"
        -- find a channel
        SELECT id, team_id, name, kind, url, origin, recipients, target_arn, max_per_hour, quiet_from, quiet_to, quiet_timezone,
               is_enabled, version, created_on, updated_on
          FROM notification_channels
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// As [`find_channel`], and locks it until the transaction ends.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_channel(tx: &mut PgConnection, id: i64, team_id: Option<i64>) -> sqlx::Result<Option<Channel>> {
    sqlx::query_as!(
        Channel,
        r#"
        -- lock a channel
        SELECT id, team_id, name, kind, url, origin, recipients, target_arn, max_per_hour, quiet_from, quiet_to, quiet_timezone,
               is_enabled, version, created_on, updated_on
          FROM notification_channels
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)
           FOR NO KEY UPDATE
        "#,
        id,
        team_id,
    )
    .fetch_optional(tx)
    .await
}

/// Counts a test of a channel, if it may be tested now: so often an hour as it may send messages. The caller has locked it, and
/// with it the row of its team, so that this reads nothing that grows: the audit log has each edit of the channel, too.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn take_test(tx: &mut PgConnection, channel: &Channel, now: DateTime<Utc>) -> sqlx::Result<bool> {
    let taken = sqlx::query!(
        r#"
        -- count a test of a channel that was tested less often in the last hour than it may send
        UPDATE notification_channels c
           SET tested_on = recent.tests || $2
          FROM (SELECT ARRAY(SELECT test
                               FROM notification_channels t, unnest(t.tested_on) AS test
                              WHERE t.id = $1 AND test > $2::timestamptz - INTERVAL '1 hour'
                                AND test <= $2 + INTERVAL '1 hour') AS tests) AS recent
         WHERE c.id = $1 AND cardinality(recent.tests) < c.max_per_hour
        "#,
        channel.id,
        now,
    )
    .execute(tx)
    .await?;
    Ok(taken.rows_affected() > 0)
}

/// Lists the channels of a team, or of all teams, the newest first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_channels(
    db: &mut PgConnection,
    team_id: Option<i64>,
    before: Option<i64>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Channel, i64>> {
    let rows = sqlx::query_as!(
        Channel,
        r#"
        -- list channels by key
        SELECT id, team_id, name, kind, url, origin, recipients, target_arn, max_per_hour, quiet_from, quiet_to, quiet_timezone,
               is_enabled, version, created_on, updated_on
          FROM notification_channels
         WHERE id < $2 AND ($1::bigint IS NULL OR team_id = $1)
         ORDER BY id DESC
         LIMIT $3
        "#,
        team_id,
        before.unwrap_or(i64::MAX),
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |channel| channel.id))
}

async fn insert_channel(
    tx: &mut PgConnection,
    team_id: i64,
    spec: &ChannelSpec,
    url: Option<String>,
    now: DateTime<Utc>,
) -> sqlx::Result<Channel> {
    let (quiet_from, quiet_to, quiet_timezone) = spec.quiet_columns();
    sqlx::query_as!(
        Channel,
        r#"
        -- insert a channel
        INSERT INTO notification_channels (team_id, name, kind, url, origin, recipients, target_arn, max_per_hour, quiet_from, quiet_to,
                                           quiet_timezone, is_enabled, created_on, updated_on)
        VALUES ($1, $2, $3, $4, $5, $6, $13, $7, $8, $9, $10, $11, $12, $12)
        RETURNING id, team_id, name, kind, url, origin, recipients, target_arn, max_per_hour, quiet_from, quiet_to, quiet_timezone,
                  is_enabled, version, created_on, updated_on
        "#,
        team_id,
        spec.name,
        kind_word(spec.kind),
        url,
        spec.url.as_ref().map(|url| url.origin().ascii_serialization()),
        &spec.recipients,
        spec.max_per_hour,
        quiet_from,
        quiet_to,
        quiet_timezone,
        spec.is_enabled,
        now,
        spec.target_arn,
    )
    .fetch_one(tx)
    .await
}

async fn update_channel(
    tx: &mut PgConnection,
    id: i64,
    spec: &ChannelSpec,
    url: Option<String>,
    now: DateTime<Utc>,
) -> sqlx::Result<Channel> {
    let (quiet_from, quiet_to, quiet_timezone) = spec.quiet_columns();
    sqlx::query_as!(
        Channel,
        r#"
        -- replace the fields of a channel; without a URL it keeps its own
        UPDATE notification_channels
           SET name = $2, url = COALESCE($3, url), origin = COALESCE($4, origin), recipients = $5, target_arn = $12, max_per_hour = $6,
               quiet_from = $7, quiet_to = $8, quiet_timezone = $9, is_enabled = $10, updated_on = $11, version = version + 1
         WHERE id = $1
        RETURNING id, team_id, name, kind, url, origin, recipients, target_arn, max_per_hour, quiet_from, quiet_to, quiet_timezone,
                  is_enabled, version, created_on, updated_on
        "#,
        id,
        spec.name,
        url,
        spec.url.as_ref().map(|url| url.origin().ascii_serialization()),
        &spec.recipients,
        spec.max_per_hour,
        quiet_from,
        quiet_to,
        quiet_timezone,
        spec.is_enabled,
        now,
        spec.target_arn,
    )
    .fetch_one(tx)
    .await
}

async fn count_channels(tx: &mut PgConnection, team_id: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count the channels of a team
        SELECT count(*) AS "count!" FROM notification_channels WHERE team_id = $1
        "#,
        team_id,
    )
    .fetch_one(tx)
    .await
}

async fn is_in_use(tx: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- has a rule this channel
        SELECT EXISTS (SELECT FROM notification_rule_channels WHERE channel_id = $1) AS "is!"
        "#,
        id,
    )
    .fetch_one(tx)
    .await
}
