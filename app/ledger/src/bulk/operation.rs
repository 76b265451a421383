//! Step 7 of 7: a bulk operation: which items it has, what is done with each, and what became of it.

use chrono::{DateTime, Utc};
use uuid::Uuid;
use workflows::State as WorkflowState;
use workflows::id::first_id_of;

use crate::runs::RunState;

/// What is done with each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BulkVerb)]
pub enum Verb {
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

impl Verb {
    /// The value in the column.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Archive => "archive",
            Self::Delete => "delete",
            Self::Fire => "fire",
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }

    /// Whether its items are runs; else they are workflows.
    #[must_use]
    pub fn is_of_runs(self) -> bool {
        matches!(self, Self::Retry | Self::Cancel)
    }
}

/// The state of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BulkState)]
pub enum State {
    /// The job processes its items.
    Running,
    /// Final: every item is processed.
    Finished,
    /// Final: a caller cancelled it; the items that were processed by then stay as they are.
    Cancelled,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BulkOutcome)]
pub enum Outcome {
    /// The verb was applied.
    Done,
    /// It was so already, or its pause was over before its turn.
    Unchanged,
    /// The verb was refused, as it would be for this item alone.
    Refused,
}

/// Items of one operation at most.
pub(super) const MOST_ITEMS: i64 = 100_000;

/// A workflow or run to which an operation is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    /// The workflow.
    pub(super) workflow_id: i64,
    /// The run, of retry and cancel.
    pub(super) run_id: Option<Uuid>,
}

impl Selected {
    /// Its name in the audit log and in the answer to a dry run.
    pub(super) fn subject(&self) -> String {
        match self.run_id {
            Some(run) => format!("run:{run}"),
            None => format!("workflow:{}", self.workflow_id),
        }
    }
}

/// What the filter of a request selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// These, in the order in which they are processed.
    Items(Vec<Selected>),
    /// More than an operation has.
    TooMany,
}

impl Selection {
    /// Those of a statement that reads one more than [`MOST_ITEMS`].
    pub(super) fn of_rows(rows: Vec<Selected>) -> Self {
        if rows.len() as i64 > MOST_ITEMS { Self::TooMany } else { Self::Items(rows) }
    }
}

/// The runs that a retry repeats, if its caller names neither states nor runs: one that succeeded is not repeated by mistake.
pub const WORTH_A_RETRY: [RunState; 3] = [RunState::Failed, RunState::TimedOut, RunState::Abandoned];

/// Which workflows or runs an operation has; an empty filter has all of the team that are not archived, or have not ended.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these workflows, or runs of them.
    pub workflow_ids: Option<Vec<i64>>,
    /// Only workflows in this state.
    pub workflow_state: Option<WorkflowState>,
    /// Only workflows whose name or description contains this text, in any case.
    pub q: Option<String>,
    /// Only these runs.
    pub run_ids: Option<Vec<Uuid>>,
    /// Only runs in one of these states.
    pub run_states: Vec<RunState>,
    /// Only runs that were accepted at or after this time.
    pub from: Option<DateTime<Utc>>,
    /// Only runs that were accepted before this time.
    pub to: Option<DateTime<Utc>>,
}

impl Filter {
    /// The states of its runs, as the column has them; empty: any.
    pub(super) fn state_names(&self) -> Vec<String> {
        self.run_states.iter().map(|state| state.as_str().to_owned()).collect()
    }

    /// The first id that one of its runs may have, and the one before which all of them are.
    pub(super) fn id_bounds(&self) -> (Uuid, Uuid) {
        (self.from.map_or(Uuid::nil(), first_id_of), self.to.map_or(Uuid::max(), first_id_of))
    }
}

/// A request for an operation.
#[derive(Clone, Debug)]
pub struct Request {
    /// The team.
    pub team_id: i64,
    /// What is done.
    pub verb: Verb,
    /// With what.
    pub filter: Filter,
    /// Why the workflows are paused.
    pub reason: Option<String>,
    /// When their pause ends.
    pub until: Option<DateTime<Utc>>,
    /// Whether workflows that are paused already get this reason and this end; else they keep theirs.
    pub replaces_pause: bool,
    /// How many items the caller has seen; `None`: the caller has not counted them.
    pub expected_total: Option<i32>,
}
