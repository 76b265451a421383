//! Notifications: their channels and rules, what happened, and the messages about it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Where a team wants notifications.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ChannelView {
    /// Its id.
    pub id: i64,
    /// Its team.
    pub team_id: i64,
    /// Unique in its team.
    pub name: String,
    /// How messages are sent.
    pub kind: ChannelKind,
    /// Scheme, host and port of the URL, which itself is never shown; null: an e-mail or AWS.
    pub origin: Option<String>,
    /// Addresses of an e-mail.
    pub recipients: Vec<String>,
    /// The ARN of an event bus or an SNS topic; null: not AWS, or its messages wait until it has one.
    pub target_arn: Option<String>,
    /// Messages in an hour at most; further notifications wait, and are collected in the next message.
    pub max_per_hour: i32,
    /// When no message is sent; null: messages are sent at all times.
    pub quiet: Option<QuietHours>,
    /// Whether it gets notifications.
    pub enabled: bool,
    /// Raised by each change.
    pub version: i64,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// A POST that is signed as Standard Webhooks defines.
    Webhook,
    /// A POST to an incoming webhook of Slack, or of a service that is compatible with it.
    Slack,
    /// An e-mail.
    Email,
    /// The Lambda `notifier` publishes it to an event bus or an SNS topic.
    Aws,
}

/// Hours of each day at which no message is sent: messages wait until their end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// The local time of their start, HH:MM.
    #[schema(example = "22:00")]
    pub from: String,
    /// The local time of their end, HH:MM; before `from`: on the next day.
    #[schema(example = "07:00")]
    pub to: String,
    /// The timezone of both.
    #[schema(example = "Europe/Paris")]
    pub timezone: String,
}

/// Which event of a team, or of one workflow, becomes a notification.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RuleView {
    /// Its id.
    pub id: i64,
    /// Its team.
    pub team_id: i64,
    /// The workflow; null: all of the team.
    pub workflow_id: Option<i64>,
    /// What happens.
    pub event: NotificationEvent,
    /// How often in a row, of `failures_in_a_row`, `recovered` and `skipped_overlap`; else null.
    pub threshold: Option<i32>,
    /// For how many seconds, of `run_late`, `run_long`, `no_success`, `frozen_long` and `paused_long`; else null.
    pub after_secs: Option<i32>,
    /// For how many seconds notifications are collected in one message, from the first on.
    pub group_secs: i32,
    /// The channels that get it.
    pub channel_ids: Vec<i64>,
    /// Until then notifications are recorded and not sent; null: they are sent.
    pub snoozed_until: Option<DateTime<Utc>>,
    /// Whether it is in force.
    pub enabled: bool,
    /// Raised by each change.
    pub version: i64,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationEvent {
    /// A run failed or timed out after its last attempt.
    RunFailed,
    /// So many runs failed in a row (`threshold`).
    FailuresInARow,
    /// A run succeeded after so many failures in a row (`threshold`).
    Recovered,
    /// Due times did not run.
    Missed,
    /// A run was abandoned.
    Abandoned,
    /// So many due times in a row (`threshold`) were skipped, because the run before had not ended.
    SkippedOverlap,
    /// cronbox paused the workflow after failures (`pause_after_failures`).
    AutoPaused,
    /// EventBridge refuses the schedule of an edit.
    SyncFailed,
    /// Another program had changed a schedule in EventBridge, and it was repaired.
    DriftRepaired,
    /// A run has not started so long after its due time (`after_secs`).
    RunLate,
    /// A run has not ended so long after its start (`after_secs`).
    RunLong,
    /// The workflow has had no successful run for so long (`after_secs`).
    NoSuccess,
    /// The daily verification found a difference.
    VerifyDifference,
    /// A freeze has been in force for so long (`after_secs`).
    FrozenLong,
    /// The workflow has been paused for so long (`after_secs`).
    PausedLong,
}

impl NotificationEvent {
    /// All events.
    pub const ALL: [Self; 15] = [
        Self::RunFailed,
        Self::FailuresInARow,
        Self::Recovered,
        Self::Missed,
        Self::Abandoned,
        Self::SkippedOverlap,
        Self::AutoPaused,
        Self::SyncFailed,
        Self::DriftRepaired,
        Self::RunLate,
        Self::RunLong,
        Self::NoSuccess,
        Self::VerifyDifference,
        Self::FrozenLong,
        Self::PausedLong,
    ];

    /// The word of the API and of the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunFailed => "run_failed",
            Self::FailuresInARow => "failures_in_a_row",
            Self::Recovered => "recovered",
            Self::Missed => "missed",
            Self::Abandoned => "abandoned",
            Self::SkippedOverlap => "skipped_overlap",
            Self::AutoPaused => "auto_paused",
            Self::SyncFailed => "sync_failed",
            Self::DriftRepaired => "drift_repaired",
            Self::RunLate => "run_late",
            Self::RunLong => "run_long",
            Self::NoSuccess => "no_success",
            Self::VerifyDifference => "verify_difference",
            Self::FrozenLong => "frozen_long",
            Self::PausedLong => "paused_long",
        }
    }

    /// The event with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }

    /// Whether a rule says how often in a row it happens.
    #[must_use]
    pub fn has_threshold(self) -> bool {
        matches!(self, Self::FailuresInARow | Self::Recovered | Self::SkippedOverlap)
    }

    /// Whether a rule says how long it lasts.
    #[must_use]
    pub fn has_duration(self) -> bool {
        matches!(self, Self::RunLate | Self::RunLong | Self::NoSuccess | Self::FrozenLong | Self::PausedLong)
    }
}

/// One event of one rule.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NotificationView {
    /// Its id.
    pub id: i64,
    /// The rule; it may be deleted by now.
    pub rule_id: i64,
    /// The team.
    pub team_id: i64,
    /// The workflow; null: a freeze.
    pub workflow_id: Option<i64>,
    /// Its name, as it is now; null: it is deleted.
    pub workflow_name: Option<String>,
    /// What happened.
    pub event: NotificationEvent,
    /// What happened, in a sentence.
    pub text: String,
    /// When it happened.
    pub happened_on: DateTime<Utc>,
    /// The run.
    pub run_id: Option<Uuid>,
    /// The due time.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// Whether it is sent.
    pub state: NotificationState,
    /// Who acknowledged it; null: not yet.
    pub acknowledged_by: Option<String>,
    /// When.
    pub acknowledged_on: Option<DateTime<Utc>>,
    /// When it was written.
    pub created_on: DateTime<Utc>,
}

/// Whether a notification is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationState {
    /// The job has not processed it.
    New,
    /// Each channel of its rule gets it.
    Routed,
    /// Its rule was snoozed.
    Snoozed,
    /// Its rule had no enabled channel.
    Unsent,
}

impl NotificationState {
    /// The state with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "new" => Some(Self::New),
            "routed" => Some(Self::Routed),
            "snoozed" => Some(Self::Snoozed),
            "unsent" => Some(Self::Unsent),
            _ => None,
        }
    }
}

/// One message to one channel.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct MessageView {
    /// The id of every delivery, by which a receiver recognises a repeated one.
    pub id: Uuid,
    /// The channel.
    pub channel_id: i64,
    /// The team.
    pub team_id: i64,
    /// What happened; null: the message is a test of its channel.
    pub event: Option<NotificationEvent>,
    /// How many notifications it has.
    pub items: i32,
    /// Whether it was delivered.
    pub state: MessageState,
    /// When the next attempt is due; null: none is.
    pub due_at: Option<DateTime<Utc>>,
    /// How often it was tried.
    pub attempt_count: i32,
    /// Why the last attempt failed; of an e-mail that was sent: which recipients the mail server refused. Only admins read
    /// the words of AWS.
    pub last_error: Option<String>,
    /// When it was made of its notifications.
    pub created_on: DateTime<Utc>,
    /// When the receiver accepted it.
    pub sent_on: Option<DateTime<Utc>>,
    /// When the last attempt failed.
    pub failed_on: Option<DateTime<Utc>>,
}

/// Whether a message was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// Not yet.
    Pending,
    /// The receiver accepted it.
    Sent,
    /// All attempts failed, or the receiver refuses it. `:retry` tries again.
    Failed,
}

impl MessageState {
    /// The word of the API and of the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Failed => "failed",
        }
    }

    /// The state with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pending, Self::Sent, Self::Failed].into_iter().find(|state| state.as_str() == word)
    }
}

/// The result of a test message.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TestResultView {
    /// Whether the receiver accepted it.
    pub delivered: bool,
    /// Why not, or which recipients of an e-mail were refused; null: neither, or the answer is not known yet.
    pub error: Option<String>,
    /// Of AWS: the message that the Lambda `notifier` sends within a minute. Its `state` says what became of it.
    pub message_id: Option<Uuid>,
}
