//! The sentences that version 0.1 stored and answered, word for word. The next version removes this file.

use api_types::reasons::ReasonCode;

/// The old sentence, with `{}` in the place of the fact; the code itself where it was stored already.
pub(super) fn sentence_before(code: ReasonCode) -> &'static str {
    match code {
        ReasonCode::BeforeActivation => "it lies before the schedule's last activation",
        ReasonCode::OlderThanCatchUpWindow => "older than the catch-up window",
        ReasonCode::NoFireAndNoCatchUp => "nobody asked in time, and the workflow does not catch up",
        ReasonCode::NoFireInTime => "nobody asked in time",
        ReasonCode::Superseded => "a later time has run or was owed, and the workflow catches up the newest alone",
        ReasonCode::ScheduleChangedBeforeRun => "the schedule was changed before it had run",
        ReasonCode::PausedBeforeRun => "the workflow was paused before it had run",
        ReasonCode::ArchivedBeforeRun => "the workflow was archived before it had run",
        ReasonCode::PreviousRunNotEnded => "the run before it has not ended",
        ReasonCode::QueueFull => "the queue is full",
        ReasonCode::RunAlreadyQueued => "a run waits already",
        ReasonCode::ReplacedBeforeStart => "a newer time took its place before it had started",
        ReasonCode::ReplacedByLaterRun => "replaced by a later run",
        ReasonCode::WorkflowArchived => "the workflow was archived",
        ReasonCode::CancelledOnRequest => "cancelled on request",
        ReasonCode::InstanceLostAfterCancel => "{}; its instance was lost",
        ReasonCode::TimedOut => "no answer within {} s",
        ReasonCode::StuckAfterTimeout => "it did not end at its timeout and was ended from outside",
        ReasonCode::InstanceLostWorkflowArchived => "its instance was lost, and its workflow is archived",
        ReasonCode::InstanceLostOnLostAbandon => "its instance was lost, and on_lost is abandon",
        ReasonCode::InstanceLostTooOften => "its instance was lost, and it had gone on {} times already",
        ReasonCode::InstanceLostTooOld => "its instance was lost, and it was accepted more than {} s ago",
        ReasonCode::HandedOverNotTaken => {
            "its instance handed it over, and no executor took it within RECOVERY_MAX_AGE_SECS"
        }
        ReasonCode::SlotWaitTooLong => "it waited for a slot longer than the catch-up window",
        ReasonCode::NotStartedInTime => "no executor started it within the catch-up window",
        ReasonCode::FailuresInARow => "paused by cronbox: {} runs in a row have failed",
        ReasonCode::Frozen => code.sentence(),
        ReasonCode::Paused
        | ReasonCode::Restored
        | ReasonCode::PredecessorNotStarted
        | ReasonCode::CutOffByShutdown => code.as_str(),
    }
}
