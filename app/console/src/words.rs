//! States in words, each with the class that colours it and a mark that shapes it: nothing is said by colour only.

use api_types::backfills::BackfillState;
use api_types::bulk::{BulkState, BulkVerb};
use api_types::occurrences::Decision;
use api_types::runs::{AttemptOutcome, RunState, Trigger};
use api_types::workflows::{State, SyncStatus};

/// How a state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Badge {
    /// The words.
    pub words: &'static str,
    /// The class: `good`, `bad`, `warn`, `busy` or `quiet`.
    pub class: &'static str,
    /// The mark.
    pub mark: &'static str,
}

const fn badge(words: &'static str, class: &'static str, mark: &'static str) -> Badge {
    Badge { words, class, mark }
}

/// The state of a run.
#[must_use]
pub fn run_state(state: &RunState) -> Badge {
    match state {
        RunState::Accepted => badge("waits for a slot", "busy", "○"),
        RunState::Queued => badge("waits for its turn", "busy", "○"),
        RunState::Running => badge("runs now", "busy", "▶"),
        RunState::Succeeded => badge("succeeded", "good", "✓"),
        RunState::Failed => badge("failed", "bad", "✕"),
        RunState::TimedOut => badge("timed out", "bad", "…"),
        RunState::Cancelled => badge("cancelled", "quiet", "–"),
        RunState::Abandoned => badge("abandoned", "bad", "!"),
    }
}

/// The outcome of an attempt.
#[must_use]
pub fn attempt_outcome(outcome: &AttemptOutcome) -> Badge {
    match outcome {
        AttemptOutcome::Running => badge("runs now", "busy", "▶"),
        AttemptOutcome::Succeeded => badge("succeeded", "good", "✓"),
        AttemptOutcome::Failed => badge("failed", "bad", "✕"),
        AttemptOutcome::TimedOut => badge("timed out", "bad", "…"),
        AttemptOutcome::Cancelled => badge("cancelled", "quiet", "–"),
        AttemptOutcome::Abandoned => badge("abandoned", "bad", "!"),
        AttemptOutcome::Lost => badge("its instance was lost", "warn", "?"),
        AttemptOutcome::HandedOver => badge("handed over to another instance", "quiet", "→"),
    }
}

/// What was decided for a due time.
#[must_use]
pub fn decision(decision: &Decision) -> Badge {
    match decision {
        Decision::Fired => badge("fired", "good", "✓"),
        Decision::CaughtUp => badge("caught up later", "good", "↻"),
        Decision::Backfilled => badge("backfilled", "good", "+"),
        Decision::SkippedOverlap => badge("skipped: the run before had not ended", "warn", "»"),
        Decision::SkippedPaused => badge("skipped: paused or frozen", "quiet", "‖"),
        Decision::Missed => badge("missed", "bad", "✕"),
        Decision::Abandoned => badge("abandoned", "bad", "!"),
    }
}

/// The state of a workflow.
#[must_use]
pub fn workflow_state(state: &State) -> Badge {
    match state {
        State::Active => badge("active", "good", "●"),
        State::Paused => badge("paused", "warn", "‖"),
        State::Archived => badge("archived", "quiet", "▪"),
    }
}

/// What EventBridge has of a workflow.
#[must_use]
pub fn sync_status(status: &SyncStatus) -> Badge {
    match status {
        SyncStatus::Pending => badge("EventBridge gets it soon", "busy", "○"),
        SyncStatus::Synced => badge("EventBridge has it", "good", "✓"),
        SyncStatus::Failed => badge("EventBridge refused it", "bad", "✕"),
        SyncStatus::Drifted => badge("EventBridge differs", "bad", "≠"),
        SyncStatus::None => badge("no schedule", "quiet", "–"),
    }
}

/// Why a run exists.
#[must_use]
pub fn trigger(trigger: &Trigger) -> &'static str {
    match trigger {
        Trigger::Schedule => "on schedule",
        Trigger::Manual => "manual",
        Trigger::CatchUp => "catch-up",
        Trigger::Backfill => "backfill",
        Trigger::Retry => "retry",
    }
}

/// The state of a backfill.
#[must_use]
pub fn backfill_state(state: &BackfillState) -> Badge {
    match state {
        BackfillState::Running => badge("in progress", "busy", "▶"),
        BackfillState::Paused => badge("paused", "warn", "‖"),
        BackfillState::Cancelled => badge("cancelled", "quiet", "–"),
        BackfillState::Finished => badge("finished", "good", "✓"),
    }
}

/// The state of a bulk operation.
#[must_use]
pub fn bulk_state(state: &BulkState) -> Badge {
    match state {
        BulkState::Running => badge("in progress", "busy", "▶"),
        BulkState::Finished => badge("finished", "good", "✓"),
        BulkState::Cancelled => badge("cancelled", "quiet", "–"),
    }
}

/// What a bulk operation does.
#[must_use]
pub fn bulk_verb(verb: &BulkVerb) -> &'static str {
    match verb {
        BulkVerb::Pause => "pause",
        BulkVerb::Resume => "resume",
        BulkVerb::Archive => "archive",
        BulkVerb::Delete => "delete",
        BulkVerb::Fire => "run now",
        BulkVerb::Retry => "retry",
        BulkVerb::Cancel => "cancel",
    }
}

/// The sentence about an act that was done, by the name in the address.
#[must_use]
pub fn done_sentence(name: &str) -> Option<&'static str> {
    let sentences = [
        ("saved", "Saved. It is in force now, and EventBridge gets it within seconds."),
        ("created", "The workflow was created. EventBridge gets it within seconds."),
        ("restored", "The version was restored. EventBridge gets it within seconds."),
        ("paused", "Paused. No time runs until it is resumed."),
        ("resumed", "Resumed. The next due time runs."),
        ("archived", "Archived. It never runs again."),
        ("fired", "A run was started."),
        ("retried", "A new run was started that repeats this one."),
        ("cancelled", "The end of the run was requested."),
        ("backfill", "The backfill was started."),
        ("backfill-paused", "The backfill was paused."),
        ("backfill-resumed", "The backfill goes on."),
        ("backfill-cancelled", "The backfill was cancelled. Its runs that have started go on."),
        ("bulk", "The operation was started. This page shows its progress."),
        ("bulk-cancelled", "The operation was cancelled. What is done stays done."),
        ("frozen", "Frozen. Due times are skipped until the freeze ends."),
        ("freeze-planned", "The freeze is planned. Due times are skipped from its begin on."),
        ("lifted", "The freeze was lifted."),
        ("checked", "A comparison with EventBridge was requested. It takes a minute or two."),
        ("outbox-retried", "The edit is sent to EventBridge again."),
        ("outbox-discarded", "The edit was discarded. The next sweep repairs what differs."),
        ("redriven", "The redrive was requested. The publisher does it with its next tick."),
        ("discarded", "The dead letter was discarded."),
        ("discard-requested", "The discard was requested. The publisher does it with its next tick."),
        ("acknowledged", "Acknowledged."),
        ("snoozed", "Snoozed."),
        ("tested", "The test message was sent."),
        ("test-waits", "The Lambda notifier sends the test message within a minute."),
        ("message-retried", "The message is sent again."),
        ("team-renamed", "The team was renamed."),
        ("team-deleted", "The team was deleted."),
        ("hosts", "The hosts were saved. All instances apply them within five seconds."),
        ("secret-saved", "The value was stored. The next attempt that refers to the secret sends it."),
        ("secret-deleted", "The secret was deleted."),
        ("key-revoked", "The key was revoked. It opens nothing after five seconds."),
        ("limits", "The limits were saved."),
        ("session-ended", "The session was ended. It opens nothing after five seconds."),
        ("rule-saved", "The rule was saved."),
        ("rule-deleted", "The rule was deleted."),
        ("channel-saved", "The channel was saved."),
        ("channel-deleted", "The channel was deleted."),
        ("verified", "The span was verified."),
    ];
    sentences.into_iter().find(|(known, _)| *known == name).map(|(_, sentence)| sentence)
}
