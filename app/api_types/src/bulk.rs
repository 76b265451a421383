//! Bulk operations and their items.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A bulk operation and its progress.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct BulkView {
    /// Its id.
    pub id: Uuid,
    /// The team.
    pub team_id: i64,
    /// What is done.
    pub verb: BulkVerb,
    /// Why, for people.
    pub reason: Option<String>,
    /// When the pause ends automatically; null: it does not.
    pub until: Option<DateTime<Utc>>,
    /// Its state.
    pub state: BulkState,
    /// How many workflows or runs it has.
    pub total: i32,
    /// How many are processed, in their order.
    pub processed: i32,
    /// How many of these were refused: `items?outcome=refused` says why.
    pub refused: i32,
    /// Who requested it.
    pub actor: String,
    /// The name of the key, as it was then.
    pub actor_name: Option<String>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it ended; null: it has not.
    pub finished_on: Option<DateTime<Utc>>,
}

/// An item of a bulk operation.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct BulkItemView {
    /// Its place, from 1 on.
    pub nth: i32,
    /// The workflow.
    pub workflow_id: i64,
    /// The run, of `retry` and `cancel`.
    pub run_id: Option<Uuid>,
    /// Null: it is not processed yet.
    pub outcome: Option<BulkOutcome>,
    /// Why it was refused: the code of the problem that a request for this item alone gets, `not_archived`,
    /// `already_succeeded` or `already_repeated`; else null.
    pub code: Option<String>,
    /// The run that `fire` or `retry` has created.
    pub new_run_id: Option<Uuid>,
}

/// What is done with each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkVerb {
    /// Pauses workflows.
    Pause,
    /// Resumes workflows.
    Resume,
    /// Archives workflows.
    Archive,
    /// Deletes archived workflows; only for admins.
    Delete,
    /// Fires workflows.
    Fire,
    /// Repeats runs.
    Retry,
    /// Cancels runs.
    Cancel,
}

/// The state of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkState {
    /// The job processes its items.
    Running,
    /// Final: every item is processed.
    Finished,
    /// Final: a caller cancelled it; the items that were processed by then stay as they are.
    Cancelled,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkOutcome {
    /// The verb was applied.
    Done,
    /// It was so already, or its pause was over before its turn.
    Unchanged,
    /// The verb was refused, as it would be for this item alone.
    Refused,
}
