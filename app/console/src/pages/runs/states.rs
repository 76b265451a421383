//! The states of runs, as filters and pages need them.

use api_types::runs::RunState;

/// The states of runs: the value in an address, and the words.
pub(super) const STATES: [(&str, &str); 8] = [
    ("accepted", "waits for a slot"),
    ("queued", "waits for its turn"),
    ("running", "runs now"),
    ("succeeded", "succeeded"),
    ("failed", "failed"),
    ("timed_out", "timed out"),
    ("cancelled", "cancelled"),
    ("abandoned", "abandoned"),
];

pub(super) fn has_ended(state: RunState) -> bool {
    match state {
        RunState::Accepted | RunState::Queued | RunState::Running => false,
        RunState::Succeeded | RunState::Failed | RunState::TimedOut | RunState::Cancelled | RunState::Abandoned => true,
    }
}
