//! The stream of events.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An event: something has changed. It says what, and not how: read the object.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct EventView {
    /// Its place in the stream; the same event always has the same one.
    #[schema(example = "81726.5")]
    pub id: String,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// The kind.
    pub kind: EventKind,
    /// The verb of an edit, `synced` or `failed`, the decision, or the final state of a run.
    #[schema(example = "fired")]
    pub what: String,
    /// Null: an object of the operators.
    pub team_id: Option<i64>,
    /// The workflow.
    pub workflow_id: Option<i64>,
    /// The run.
    pub run_id: Option<Uuid>,
    /// The time that the schedule named; null: no schedule fired it.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// The revision that EventBridge has, or that made the time due.
    pub revision: Option<i64>,
    /// The object of an edit.
    #[schema(example = "workflow:12")]
    pub subject: Option<String>,
    /// Who made an edit, as in the audit log.
    pub actor: Option<String>,
}

/// Some events.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct EventsView {
    /// Each of them.
    pub items: Vec<EventView>,
    /// Where the next request continues.
    pub next_cursor: String,
}

/// What kind of change an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An entry of the audit log.
    Edit,
    /// EventBridge has a revision, or its publication has failed permanently.
    Sync,
    /// A due time was decided, or its decision has changed.
    Decision,
    /// A run has ended.
    RunEnd,
}
