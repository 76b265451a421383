//! The messages of the dead-letter queues.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A message of a dead-letter queue, as the publisher last saw it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DeadLetterView {
    /// Its id here.
    pub id: i64,
    /// Its queue.
    pub queue: LetterQueue,
    /// SQS's id of the message, unique in its queue.
    pub message_id: String,
    /// What it contains; only a fire can be redriven.
    pub kind: LetterKind,
    /// Its state.
    pub state: LetterState,
    /// The team of its workflow; null: the workflow is not known.
    pub team_id: Option<i64>,
    /// The workflow, which may be deleted by now; null: the message is no fire.
    pub workflow_id: Option<i64>,
    /// The scheduled time of the fire.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// The error of the service that gave up, or why the message cannot be read; only its code for others than admins.
    pub error: String,
    /// How often that service tried; null: the message does not say.
    pub tries: Option<i64>,
    /// When it was sent to its queue, by SQS. SQS deletes it 14 days later.
    pub sent_on: Option<DateTime<Utc>>,
    /// When the publisher first saw it.
    pub first_seen: DateTime<Utc>,
    /// When the publisher last saw it.
    pub last_seen: DateTime<Utc>,
    /// Who last requested a redrive or a discard.
    pub requested_by: Option<String>,
    /// When that was.
    pub requested_on: Option<DateTime<Utc>>,
    /// How often the publisher tried to redrive it.
    pub attempt_count: i32,
    /// The app's answer to the last redrive (`accepted`, `duplicate`, `workflow_gone`, or the reason of a refusal), why there was none
    /// (for admins), or `left_the_queue`, with `_before_redrive` or `_before_discard` if that was requested.
    pub result: Option<String>,
    /// The run that the redrive started.
    pub run_id: Option<Uuid>,
    /// Since when nothing more is to be done; the row is deleted 30 days later.
    pub settled_on: Option<DateTime<Utc>>,
    /// Bytes of the body.
    pub body_bytes: i64,
    /// The first 16 KiB of the body; null in a list, and for others than admins.
    pub body: Option<String>,
    /// The attributes, each cut to 1,000 characters; null in a list, and for others than admins.
    pub attributes: Option<BTreeMap<String, String>>,
}

/// A dead-letter queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LetterQueue {
    /// Fires for which EventBridge could not invoke the runner.
    Schedules,
    /// Fires that the runner did not deliver.
    Runner,
    /// Ticks of the publisher that failed.
    Publisher,
}

/// What a message contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LetterKind {
    /// A fire, which can be redriven.
    Fire,
    /// A tick of the publisher: a later one did its work. It can only be discarded.
    Tick,
    /// Something else. It can only be discarded.
    Unreadable,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LetterState {
    /// It is in its queue.
    Present,
    /// The publisher is to post its fire to the app.
    RedriveRequested,
    /// The publisher posts its fire.
    Redriving,
    /// The app has answered for its fire, and the message is deleted.
    Redriven,
    /// The app has not answered for its fire: the message stays in its queue, and a redrive can be requested again.
    RedriveFailed,
    /// The publisher is to delete it.
    DiscardRequested,
    /// It was deleted, and its fire was not posted.
    Discarded,
    /// It left its queue by other means, for example by `cronbox dlq redrive`, or after 14 days.
    Gone,
}
