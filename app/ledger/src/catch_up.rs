//! Step 7 of 7: decides whether a due time without a run within its grace may still run.
//!
//! The watchdog, which finds such times, and `:invoke`, to which EventBridge may deliver one late, share this rule. So
//! the outcome does not depend on which of them comes first.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::delivery::GRACE;
use workflows::Workflow;
use workflows::definition::policies::{CatchUp, Policies};
use workflows::reasons::{Reason, ReasonCode};

use crate::due_times::{self, DueTime};
use crate::freezes::{Freezes, read_freezes};
use crate::ledger_cursor;
use crate::occurrences::{Decision, span};
use crate::versions::EndedBy;

/// What the policy decides about a late time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Late {
    /// It runs.
    Runs,
    /// The time does not run: `missed` or `skipped_paused`, for this reason.
    NotRun(Decision, Reason),
}

/// The age up to which a time may run.
#[must_use]
pub fn late_run_window(policies: &Policies) -> TimeDelta {
    match policies.catch_up {
        CatchUp::None => GRACE,
        CatchUp::Skip | CatchUp::RunAll => TimeDelta::seconds(policies.catch_up_window_secs.into()),
    }
}

/// Decides one late time that has not run; the caller has locked the workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn decide_late_time(
    tx: &mut PgConnection,
    workflow: &Workflow,
    due: &DueTime,
    now: DateTime<Utc>,
) -> sqlx::Result<Late> {
    let activated_on = ledger_cursor::find_cursor(tx, workflow.id).await?.and_then(|ledger| ledger.activated_on);
    let freezes = read_freezes(tx, due.time.min(now), now).await?;
    let Workflow { team_id, spec, .. } = workflow;
    match out_of_reach(&spec.policies, due, activated_on, (*team_id, &freezes), now) {
        Some(not_run) => Ok(not_run),
        None => is_wanted(tx, workflow, due, now).await,
    }
}

/// Returns why a late time cannot run, if this does not depend on other due times; with the team and the freezes of the
/// time between the due time and `now`.
#[must_use]
pub fn out_of_reach(
    policies: &Policies,
    due: &DueTime,
    activated_on: Option<DateTime<Utc>>,
    (team_id, freezes): (i64, &Freezes),
    now: DateTime<Utc>,
) -> Option<Late> {
    let missed = |reason: ReasonCode| Some(Late::NotRun(Decision::Missed, reason.into()));
    let paused = |reason: ReasonCode| Some(Late::NotRun(Decision::SkippedPaused, reason.into()));
    if let Some(text) = freezes.reason_over(team_id, due.time, now) {
        return Some(Late::NotRun(Decision::SkippedPaused, Reason::of_freeze(text)));
    }
    match due.ended_by {
        Some(EndedBy::Pause) => return paused(ReasonCode::PausedBeforeRun),
        Some(EndedBy::Archive) => return paused(ReasonCode::ArchivedBeforeRun),
        Some(EndedBy::Edit) => return missed(ReasonCode::ScheduleChangedBeforeRun),
        None => {}
    }
    if activated_on.is_some_and(|activated_on| due.time < activated_on) {
        return missed(ReasonCode::BeforeActivation);
    }
    if policies.catch_up == CatchUp::None {
        return missed(ReasonCode::NoFireAndNoCatchUp);
    }
    if now - due.time > late_run_window(policies) {
        return missed(ReasonCode::OlderThanCatchUpWindow);
    }
    None
}

/// Decides whether the policy runs a late time for which [`out_of_reach`] found no obstacle.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn is_wanted(
    tx: &mut PgConnection,
    workflow: &Workflow,
    due: &DueTime,
    now: DateTime<Utc>,
) -> sqlx::Result<Late> {
    let overtaken = Late::NotRun(Decision::Missed, ReasonCode::Superseded.into());
    match workflow.spec.policies.catch_up {
        CatchUp::RunAll => Ok(Late::Runs),
        CatchUp::Skip if is_newest(tx, workflow, due.time, now).await? => Ok(Late::Runs),
        CatchUp::Skip | CatchUp::None => Ok(overtaken),
    }
}

/// Whether no later time has run, and no later time has been due for longer than the grace.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn is_newest(
    tx: &mut PgConnection,
    workflow: &Workflow,
    time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<bool> {
    let later = due_times::read_due_times(tx, workflow.id, time, now - GRACE, 1).await?;
    Ok(later.times.is_empty() && !span::has_run_after(tx, workflow.id, time).await?)
}
