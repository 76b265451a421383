//! Step 7 of 7: whether a time that nobody ran within its grace may still run.
//!
//! One rule for the watchdog, which finds such times, and for `:invoke`, to which EventBridge may
//! deliver one late: so the outcome does not depend on who comes first.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::delivery::GRACE;

use crate::occurrences::{Decision, span};
use crate::owed::{self, Owed};
use crate::policies::CatchUp;
use crate::versions::EndedBy;
use crate::workflows::{self, Workflow};

/// What the policy makes of a late time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It runs.
    Runs,
    /// It does not: `missed` or `skipped_paused`, for this reason.
    Unrun(Decision, &'static str),
}

/// The age up to which a time may run at all.
#[must_use]
pub fn window(workflow: &Workflow) -> TimeDelta {
    match workflow.spec.policies.catch_up {
        CatchUp::None => GRACE,
        CatchUp::Skip | CatchUp::RunAll => TimeDelta::seconds(workflow.spec.policies.catch_up_window_secs.into()),
    }
}

/// Judges one late time, which nobody has run; the workflow is locked.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn judge(tx: &mut PgConnection, workflow: &Workflow, owed: &Owed, now: DateTime<Utc>) -> sqlx::Result<Late> {
    let activated_on = workflows::ledger::read(tx, workflow.id).await?.activated_on;
    match out_of_reach(workflow, owed, activated_on, now) {
        Some(unrun) => Ok(unrun),
        None => is_wanted(tx, workflow, owed, now).await,
    }
}

/// Why a late time cannot run whatever else was owed, if it cannot.
#[must_use]
pub fn out_of_reach(
    workflow: &Workflow,
    owed: &Owed,
    activated_on: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Option<Late> {
    let missed = |reason| Some(Late::Unrun(Decision::Missed, reason));
    match owed.ended_by {
        Some(EndedBy::Pause) => {
            return Some(Late::Unrun(Decision::SkippedPaused, "the workflow was paused before it had run"));
        }
        Some(EndedBy::Archive) => {
            return Some(Late::Unrun(Decision::SkippedPaused, "the workflow was archived before it had run"));
        }
        Some(EndedBy::Edit) => return missed("the schedule was changed before it had run"),
        None => {}
    }
    if activated_on.is_some_and(|activated_on| owed.time < activated_on) {
        return missed("it lies before the schedule's last activation");
    }
    if workflow.spec.policies.catch_up == CatchUp::None {
        return missed("nobody asked in time, and the workflow does not catch up");
    }
    if now - owed.time > window(workflow) {
        return missed("older than the catch-up window");
    }
    None
}

/// Whether the policy wants a late time that is within reach.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn is_wanted(
    tx: &mut PgConnection,
    workflow: &Workflow,
    owed: &Owed,
    now: DateTime<Utc>,
) -> sqlx::Result<Late> {
    let overtaken = Late::Unrun(Decision::Missed, SUPERSEDED);
    match workflow.spec.policies.catch_up {
        CatchUp::RunAll => Ok(Late::Runs),
        CatchUp::Skip if is_newest(tx, workflow, owed.time, now).await? => Ok(Late::Runs),
        CatchUp::Skip | CatchUp::None => Ok(overtaken),
    }
}

/// Why, under `skip`, a time does not run that another one has overtaken.
pub const SUPERSEDED: &str = "a later time has run or was owed, and the workflow catches up the newest alone";

/// Whether no later time has run, nor was owed for so long that it is late too.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn is_newest(
    tx: &mut PgConnection,
    workflow: &Workflow,
    time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<bool> {
    let later = owed::between(tx, workflow.id, time, now - GRACE, 1).await?;
    Ok(later.times.is_empty() && !span::has_run_after(tx, workflow.id, time).await?)
}
