//! `/delivery/letters`: dead letters in words.

#![expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]

use api_types::dead_letters::{DeadLetterView, LetterKind, LetterQueue, LetterState};

use crate::words::Badge;

/// The queues in the order of the way of a fire, as the list selects them.
pub(super) const QUEUES: [(&str, LetterQueue); 3] =
    [("schedules", LetterQueue::Schedules), ("runner", LetterQueue::Runner), ("publisher", LetterQueue::Publisher)];

/// The states, as the list selects them.
pub(super) const STATES: [(&str, LetterState); 8] = [
    ("present", LetterState::Present),
    ("redrive_failed", LetterState::RedriveFailed),
    ("redrive_requested", LetterState::RedriveRequested),
    ("redriving", LetterState::Redriving),
    ("redriven", LetterState::Redriven),
    ("discard_requested", LetterState::DiscardRequested),
    ("discarded", LetterState::Discarded),
    ("gone", LetterState::Gone),
];

/// The name of a queue.
pub(super) fn queue_name(queue: &LetterQueue) -> &'static str {
    match queue {
        LetterQueue::Schedules => "schedules",
        LetterQueue::Runner => "runner",
        LetterQueue::Publisher => "publisher",
    }
}

/// Why a message is in its queue.
pub(super) fn queue(queue: &LetterQueue) -> &'static str {
    match queue {
        LetterQueue::Schedules => "EventBridge could not invoke the runner",
        LetterQueue::Runner => "the runner could not deliver the fire",
        LetterQueue::Publisher => "a tick of the publisher failed",
    }
}

/// The state of a message.
pub(super) fn state(state: &LetterState) -> Badge {
    let (words, class, mark) = match state {
        LetterState::Present => ("waits in its queue", "bad", "!"),
        LetterState::RedriveFailed => ("redrive failed", "bad", "✕"),
        LetterState::RedriveRequested => ("redrive requested", "busy", "○"),
        LetterState::Redriving => ("redrive in progress", "busy", "▶"),
        LetterState::Redriven => ("redriven", "good", "✓"),
        LetterState::DiscardRequested => ("discard requested", "busy", "○"),
        LetterState::Discarded => ("discarded", "quiet", "–"),
        LetterState::Gone => ("left its queue by other means", "quiet", "–"),
    };
    Badge { words, class, mark }
}

/// What a message is.
pub(super) fn kind(kind: &LetterKind) -> &'static str {
    match kind {
        LetterKind::Fire => "a fire",
        LetterKind::Tick => "a tick of the publisher; a later tick did its work",
        LetterKind::Unreadable => "a message that cronbox cannot read",
    }
}

/// What the app answered to the last redrive.
pub(super) fn result(message: &DeadLetterView) -> Option<&str> {
    message.result.as_deref().map(|result| match result {
        "accepted" => "the app accepted the fire",
        "duplicate" => "the app had decided this time before: nothing ran twice",
        "workflow_gone" => "the workflow is deleted",
        "left_the_queue" => "the message had left its queue",
        "left_the_queue_before_redrive" => "the message had left its queue before the redrive",
        "left_the_queue_before_discard" => "the message had left its queue before the discard",
        other => other,
    })
}

/// Whether something can still be done with a message.
pub(super) fn is_open(message: &DeadLetterView) -> bool {
    matches!(message.state, LetterState::Present | LetterState::RedriveFailed | LetterState::RedriveRequested)
}

/// Whether a redrive can be requested.
pub(super) fn can_be_redriven(message: &DeadLetterView) -> bool {
    let is_waiting = matches!(message.state, LetterState::Present | LetterState::RedriveFailed);
    message.kind == LetterKind::Fire && is_waiting
}
