//! The codes of reasons, each with its sentence. docs/errors.md lists them.

/// The code of a reason: stable, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// The schedule named the time before its present activation.
    BeforeActivation,
    /// The time was too old to run late.
    OlderThanCatchUpWindow,
    /// No fire arrived in time, and the workflow does not catch up.
    NoFireAndNoCatchUp,
    /// No fire arrived in time, so the catch-up policy ran it.
    NoFireInTime,
    /// Under `skip` a later time ran instead.
    Superseded,
    /// The schedule changed before the time ran.
    ScheduleChangedBeforeRun,
    /// The workflow was paused before the time ran.
    PausedBeforeRun,
    /// The workflow was archived before the time ran.
    ArchivedBeforeRun,
    /// The workflow was paused. Never stored: the row has the text of the person who paused it.
    Paused,
    /// The schedules of the team, or of all teams, were frozen; the fact is the text of the person who froze them.
    Frozen,
    /// Whether it ran is unknown, because the database was restored.
    Restored,
    /// Under `skip` the previous run has not ended.
    PreviousRunNotEnded,
    /// Under `skip` a newer time waits for the previous run to start.
    PredecessorNotStarted,
    /// Under `queue` too many runs wait.
    QueueFull,
    /// Under `queue_one` a run already waits.
    RunAlreadyQueued,
    /// A newer time replaced a run that had not started.
    ReplacedBeforeStart,
    /// Under `replace` a later run replaced it.
    ReplacedByLaterRun,
    /// The workflow was archived while the run had not ended.
    WorkflowArchived,
    /// A caller cancelled it.
    CancelledOnRequest,
    /// Its cancellation was requested, for the reason in the fact, and its instance was lost before it stopped.
    InstanceLostAfterCancel,
    /// It did not end within its timeout; the fact is the timeout in seconds.
    TimedOut,
    /// It did not stop at its timeout.
    StuckAfterTimeout,
    /// Its instance was lost, and its workflow is archived.
    InstanceLostWorkflowArchived,
    /// Its instance was lost, and `on_lost` is `abandon`.
    InstanceLostOnLostAbandon,
    /// Its instance was lost too often; the fact is the number of recoveries.
    InstanceLostTooOften,
    /// Its instance was lost too long after it was accepted; the fact is the limit in seconds.
    InstanceLostTooOld,
    /// It was handed over, and no executor continued it.
    HandedOverNotTaken,
    /// It waited too long for a slot.
    SlotWaitTooLong,
    /// It waited too long for an executor.
    NotStartedInTime,
    /// A shutdown interrupted it, and `on_lost` is `abandon`.
    CutOffByShutdown,
    /// Too many runs in a row have failed; the fact is their number.
    FailuresInARow,
}

impl ReasonCode {
    /// All codes.
    pub const ALL: [Self; 31] = [
        Self::BeforeActivation,
        Self::OlderThanCatchUpWindow,
        Self::NoFireAndNoCatchUp,
        Self::NoFireInTime,
        Self::Superseded,
        Self::ScheduleChangedBeforeRun,
        Self::PausedBeforeRun,
        Self::ArchivedBeforeRun,
        Self::Paused,
        Self::Frozen,
        Self::Restored,
        Self::PreviousRunNotEnded,
        Self::PredecessorNotStarted,
        Self::QueueFull,
        Self::RunAlreadyQueued,
        Self::ReplacedBeforeStart,
        Self::ReplacedByLaterRun,
        Self::WorkflowArchived,
        Self::CancelledOnRequest,
        Self::InstanceLostAfterCancel,
        Self::TimedOut,
        Self::StuckAfterTimeout,
        Self::InstanceLostWorkflowArchived,
        Self::InstanceLostOnLostAbandon,
        Self::InstanceLostTooOften,
        Self::InstanceLostTooOld,
        Self::HandedOverNotTaken,
        Self::SlotWaitTooLong,
        Self::NotStartedInTime,
        Self::CutOffByShutdown,
        Self::FailuresInARow,
    ];

    /// The code in a row, in an answer and in docs/errors.md.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeActivation => "before_activation",
            Self::OlderThanCatchUpWindow => "older_than_catch_up_window",
            Self::NoFireAndNoCatchUp => "no_fire_and_no_catch_up",
            Self::NoFireInTime => "no_fire_in_time",
            Self::Superseded => "superseded",
            Self::ScheduleChangedBeforeRun => "schedule_changed_before_run",
            Self::PausedBeforeRun => "paused_before_run",
            Self::ArchivedBeforeRun => "archived_before_run",
            Self::Paused => "paused",
            Self::Frozen => "frozen",
            Self::Restored => "restored",
            Self::PreviousRunNotEnded => "previous_run_not_ended",
            Self::PredecessorNotStarted => "predecessor_not_started",
            Self::QueueFull => "queue_full",
            Self::RunAlreadyQueued => "run_already_queued",
            Self::ReplacedBeforeStart => "replaced_before_start",
            Self::ReplacedByLaterRun => "replaced_by_later_run",
            Self::WorkflowArchived => "workflow_archived",
            Self::CancelledOnRequest => "cancelled_on_request",
            Self::InstanceLostAfterCancel => "instance_lost_after_cancel",
            Self::TimedOut => "timed_out",
            Self::StuckAfterTimeout => "stuck_after_timeout",
            Self::InstanceLostWorkflowArchived => "instance_lost_workflow_archived",
            Self::InstanceLostOnLostAbandon => "instance_lost_on_lost_abandon",
            Self::InstanceLostTooOften => "instance_lost_too_often",
            Self::InstanceLostTooOld => "instance_lost_too_old",
            Self::HandedOverNotTaken => "handed_over_not_taken",
            Self::SlotWaitTooLong => "slot_wait_too_long",
            Self::NotStartedInTime => "not_started_in_time",
            Self::CutOffByShutdown => "cut_off_by_shutdown",
            Self::FailuresInARow => "failures_in_a_row",
        }
    }

    /// The sentence, with `{}` in the place of the fact.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::BeforeActivation => "the time is before the last activation of the schedule",
            Self::OlderThanCatchUpWindow => "the time is older than the catch-up window",
            Self::NoFireAndNoCatchUp => "no fire arrived in time, and the catch-up policy is none",
            Self::NoFireInTime => "no fire arrived in time",
            Self::Superseded => "a later time ran or was due, and the catch-up policy runs only the newest",
            Self::ScheduleChangedBeforeRun => "the schedule was changed before the time ran",
            Self::PausedBeforeRun => "the workflow was paused before the time ran",
            Self::ArchivedBeforeRun => "the workflow was archived before the time ran",
            Self::Paused => "the workflow was paused",
            Self::Frozen => "the schedules were frozen: {}",
            Self::Restored => "the database was restored, so it is unknown whether it ran",
            Self::PreviousRunNotEnded => "the previous run has not ended",
            Self::PredecessorNotStarted => "the previous run had not started, and a newer time took its place",
            Self::QueueFull => "the queue of the workflow is full",
            Self::RunAlreadyQueued => "another run of the workflow already waits",
            Self::ReplacedBeforeStart => "a newer time replaced the run before it started",
            Self::ReplacedByLaterRun => "a later run replaced it",
            Self::WorkflowArchived => "the workflow was archived",
            Self::CancelledOnRequest => "a caller cancelled the run",
            Self::InstanceLostAfterCancel => "its cancellation was requested ({}), and its instance was lost",
            Self::TimedOut => "the action did not end within {} s",
            Self::StuckAfterTimeout => "the run did not stop at its timeout, so another instance ended it",
            Self::InstanceLostWorkflowArchived => "its instance was lost, and its workflow is archived",
            Self::InstanceLostOnLostAbandon => "its instance was lost, and on_lost is abandon",
            Self::InstanceLostTooOften => "its instance was lost, and it was already recovered {} times",
            Self::InstanceLostTooOld => "its instance was lost, and it was accepted more than {} s ago",
            Self::HandedOverNotTaken => "its instance shut down, and no executor continued the run in time",
            Self::SlotWaitTooLong => "the run waited for a slot longer than the catch-up window",
            Self::NotStartedInTime => "no executor started the run within the catch-up window",
            Self::CutOffByShutdown => "a shutdown interrupted the run, and on_lost is abandon",
            Self::FailuresInARow => "cronbox paused the workflow, because {} runs in a row failed",
        }
    }

    /// Whether the decision `skipped_paused` may have this reason, besides the text of a person.
    #[must_use]
    pub fn is_of_a_pause(self) -> bool {
        matches!(self, Self::PausedBeforeRun | Self::ArchivedBeforeRun | Self::Frozen | Self::FailuresInARow)
    }

    /// Whether its sentence has a fact.
    #[must_use]
    pub fn has_fact(self) -> bool {
        self.sentence().contains("{}")
    }
}
