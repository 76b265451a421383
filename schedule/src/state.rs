//! Whether a workflow has due times, as stored in the database: the app writes it, the publisher reads it.

use std::str::FromStr;

/// Whether a workflow has due times.
///
/// ```
/// use schedule::WorkflowState;
/// assert_eq!("paused".parse(), Ok(WorkflowState::Paused));
/// assert_eq!(WorkflowState::Archived.as_str(), "archived");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowState {
    /// The workflow has due times.
    Active,
    /// The workflow has no due times until it is resumed.
    Paused,
    /// The workflow has no due times any more; its history remains.
    Archived,
}

/// The text is not a state of a workflow.
///
/// ```
/// use schedule::{WorkflowState, WorkflowStateError};
/// assert_eq!("asleep".parse::<WorkflowState>(), Err(WorkflowStateError));
/// assert_eq!(WorkflowStateError.to_string(), "not a state: expected active, paused or archived");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a state: expected active, paused or archived")]
pub struct WorkflowStateError;

impl WorkflowState {
    /// The value in the column.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            WorkflowState::Active => "active",
            WorkflowState::Paused => "paused",
            WorkflowState::Archived => "archived",
        }
    }
}

impl FromStr for WorkflowState {
    type Err = WorkflowStateError;

    fn from_str(text: &str) -> Result<Self, WorkflowStateError> {
        [WorkflowState::Active, WorkflowState::Paused, WorkflowState::Archived]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(WorkflowStateError)
    }
}
