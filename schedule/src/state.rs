//! Whether a workflow has due times, as the database spells it: the app writes it, the publisher reads it.

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
    /// It has.
    Active,
    /// None until it is resumed.
    Paused,
    /// None any more; its history stays.
    Archived,
}

/// The text is no state of a workflow.
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
    /// As the column spells it.
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
