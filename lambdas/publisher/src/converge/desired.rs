//! Step 4 of 7: which schedule a workflow's row requires.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Compiled, Cron, ScheduleName, WorkflowState, WorkflowStateError, ZoneHistory};
use sha2::{Digest, Sha256};

use crate::claim::workflows::{Removal, Row, Workflow};
use crate::config::Config;
use crate::scheduler::spec::{Input, Spec, State};

/// The hash for "no schedule".
pub(crate) const NONE: &str = "none";

/// How long before the end of a pause EventBridge enables the schedule again. The app refuses fires before the end.
const WAKES_BEFORE: TimeDelta = TimeDelta::minutes(2);

/// The schedule that EventBridge should have.
#[derive(Debug)]
pub(crate) enum Desired {
    /// No schedule.
    Nothing,
    /// This one.
    Schedule(Box<Spec>),
}

/// Why the row does not determine a schedule; the last valid schedule is kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecided {
    /// The stored cron or timezone cannot be parsed any more.
    #[error("the stored {field} cannot be read: {reason}; the last valid schedule is kept")]
    Unreadable {
        /// `cron` or `timezone`.
        field: &'static str,
        reason: String,
    },
    /// There is no row, and no delete event: a partial restore, or a deletion without the app.
    #[error("the workflow's row is missing and no edit deleted it; its schedule is kept")]
    Vanished,
}

/// Returns what the row requires at the business time `now`.
pub(crate) fn desired_schedule(
    workflow: &Workflow,
    traceparent: Option<&str>,
    config: &Config,
    now: DateTime<Utc>,
) -> Result<Desired, Undecided> {
    let Some(row) = &workflow.row else {
        return Ok(match workflow.removal {
            Removal::Requested => Desired::Nothing,
            Removal::NotRequested => return Err(Undecided::Vanished),
        });
    };
    let Some(cron) = &row.cron else { return Ok(Desired::Nothing) };
    let state: WorkflowState = row.state.parse().map_err(|error: WorkflowStateError| Undecided::Unreadable {
        field: "state",
        reason: format!("{} is {error}", row.state),
    })?;
    if state == WorkflowState::Archived || row.ends_at.is_some_and(|end| end <= now) {
        return Ok(Desired::Nothing);
    }
    let compiled = compile(cron, row.timezone.as_deref())?;
    Ok(Desired::Schedule(Box::new(Spec {
        name: ScheduleName::new(workflow.id, &config.env),
        group: config.schedule_group.clone(),
        state: row.wanted(state, now),
        expression: compiled.expression,
        timezone: compiled.timezone.name().to_owned(),
        starts_at: row.starts_at,
        ends_at: row.ends_at,
        target_arn: config.runner_lambda_arn.clone(),
        role_arn: config.scheduler_role_arn.clone(),
        dlq_arn: config.schedule_dlq_arn.clone(),
        input: Input::new(workflow.id, row.revision, traceparent),
        identity: workflow.identity,
    })))
}

/// Whether a schedule with this hash is what the row required by other zone data of its environment: new data may change the
/// minutes of a cron in UTC.
pub(crate) fn is_of_other_zones(row: &Row, spec: &Spec, hash: &str) -> bool {
    let (Some(cron), Some(timezone)) = (&row.cron, &row.timezone) else { return false };
    let Ok(cron) = Cron::parse(cron) else { return false };
    ZoneHistory::installed().all_sets().filter_map(|set| set.find(timezone)).any(|timezone| {
        let Compiled { expression, timezone, .. } = schedule::compile_cron(&cron, timezone);
        Spec { expression, timezone: timezone.name().to_owned(), ..spec.clone() }.spec_hash() == hash
    })
}

/// Returns a hash of what a row requires, also if it requires no schedule or cannot be parsed.
pub(crate) fn wanted_hash(wanted: &Result<Desired, Undecided>) -> String {
    match wanted {
        Ok(Desired::Nothing) => NONE.to_owned(),
        Ok(Desired::Schedule(spec)) => spec.spec_hash(),
        Err(undecided) => const_hex::encode(Sha256::digest(undecided.to_string())),
    }
}

impl Row {
    /// Returns whether EventBridge should fire: during a pause with an end, already shortly before that end.
    fn wanted(&self, state: WorkflowState, now: DateTime<Utc>) -> State {
        match state {
            WorkflowState::Active => State::Enabled,
            WorkflowState::Paused if self.wakes_on().is_some_and(|wakes_on| wakes_on <= now) => State::Enabled,
            WorkflowState::Paused | WorkflowState::Archived => State::Disabled,
        }
    }

    /// Returns when the schedule of a pause with an end is enabled again.
    fn wakes_on(&self) -> Option<DateTime<Utc>> {
        self.pause_until.map(|until| until - WAKES_BEFORE)
    }

    /// Returns the next moment at which the row requires something else without an edit, if it lies in the future.
    ///
    /// The publisher checks the workflow again a minute after it.
    pub(crate) fn changes_on(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let ends_at = self.ends_at.filter(|end| *end > now);
        let wakes_on = self.wakes_on().filter(|wakes_on| *wakes_on > now);
        // A minute early, because the publisher checks a minute later, and the first time after the pause must fire.
        [ends_at, wakes_on.map(|wakes_on| wakes_on - TimeDelta::seconds(60))].into_iter().flatten().min()
    }
}

fn compile(cron: &str, timezone: Option<&str>) -> Result<Compiled, Undecided> {
    let cron = Cron::parse(cron).map_err(|error| Undecided::Unreadable { field: "cron", reason: error.to_string() })?;
    let timezone = schedule::parse_timezone(timezone.unwrap_or("UTC"))
        .map_err(|error| Undecided::Unreadable { field: "timezone", reason: error.to_string() })?;
    Ok(schedule::compile_cron(&cron, timezone))
}
