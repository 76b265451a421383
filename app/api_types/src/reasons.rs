//! The codes of reasons. docs/errors.md lists them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The code of a reason: stable, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
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
