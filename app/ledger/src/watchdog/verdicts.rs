//! Step 7 of 7: what becomes of the undecided times of a batch, by the same rules as for one workflow.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use db::PgConnection;
use workflows::State;
use workflows::definition::policies::CatchUp;
use workflows::reasons::ReasonCode;

use super::member::{Instants, Member};
use crate::admission::load::{self, Load};
use crate::catch_up::{self, Late};
use crate::due_times::DueTime;
use crate::freezes::{Freezes, read_freezes};
use crate::occurrences::Decision;
use crate::occurrences::span::{self, NotRun};
use crate::runs::{RunState, Trigger};

/// How many times of one workflow a batch runs late; a workflow with more is processed on its own.
const RUNS: usize = 100;

/// The decisions of a batch.
#[derive(Default)]
pub(super) struct Verdicts {
    /// The times that do not run, each with its workflow.
    pub(super) not_run: Vec<(i64, NotRun)>,
    /// The times that run late.
    pub(super) caught_up: Vec<CaughtUp>,
    /// The workflows that must be processed on their own.
    pub(super) singly: HashSet<i64>,
}

/// A time that runs late.
pub(super) struct CaughtUp {
    pub(super) workflow_id: i64,
    pub(super) team_id: i64,
    pub(super) time: DateTime<Utc>,
    pub(super) revision: i64,
    /// Accepted, or queued behind other runs.
    pub(super) state: RunState,
}

/// Decides the undecided times of the members.
pub(super) async fn decide_members(
    tx: &mut PgConnection,
    members: &[Member],
    undecided: &HashSet<(i64, DateTime<Utc>)>,
    instants: Instants,
) -> sqlx::Result<Verdicts> {
    let mut verdicts = Verdicts::default();
    let oldest = undecided.iter().map(|(_, time)| *time).min().unwrap_or(instants.now);
    let freezes = &read_freezes(tx, oldest, instants.now).await?;
    let candidates: Vec<_> =
        members.iter().filter_map(|member| newest_candidate(member, undecided, freezes, instants)).collect();
    let ran_later = span::list_run_after(tx, &candidates).await?;
    let mut running = Vec::new();
    for member in members {
        let mut runs = Vec::new();
        for due in member.due_times.iter().filter(|due| undecided.contains(&(member.id, due.time))) {
            match decide_due_time(member, due, ran_later.contains(&member.id), freezes, instants) {
                Late::NotRun(decision, reason) => {
                    let not_run = NotRun { time: due.time, revision: due.revision, decision, reason };
                    verdicts.not_run.push((member.id, not_run));
                }
                Late::Runs => runs.push(*due),
            }
        }
        if !runs.is_empty() {
            running.push((member, runs));
        }
    }
    admit(tx, running, &mut verdicts).await?;
    let singly = &verdicts.singly;
    verdicts.not_run.retain(|(workflow, _)| !singly.contains(workflow));
    Ok(verdicts)
}

/// The time of a member that may run under `skip`: the newest of its due times, if it can run late at all.
fn newest_candidate(
    member: &Member,
    undecided: &HashSet<(i64, DateTime<Utc>)>,
    freezes: &Freezes,
    instants: Instants,
) -> Option<(i64, DateTime<Utc>)> {
    let newest = member.due_times.last()?;
    let may_run = member.policies.catch_up == CatchUp::Skip
        && undecided.contains(&(member.id, newest.time))
        && out_of_reach(member, newest, freezes, instants).is_none();
    may_run.then_some((member.id, newest.time))
}

/// As [`catch_up::decide_late_time`], for a workflow whose due times are all known.
fn decide_due_time(member: &Member, due: &DueTime, has_run_later: bool, freezes: &Freezes, instants: Instants) -> Late {
    if let Some(not_run) = out_of_reach(member, due, freezes, instants) {
        return not_run;
    }
    let is_newest = member.due_times.last().is_some_and(|last| last.time == due.time) && !has_run_later;
    match member.policies.catch_up {
        CatchUp::RunAll => Late::Runs,
        CatchUp::Skip if is_newest => Late::Runs,
        CatchUp::Skip | CatchUp::None => Late::NotRun(Decision::Missed, ReasonCode::Superseded.into()),
    }
}

fn out_of_reach(member: &Member, due: &DueTime, freezes: &Freezes, instants: Instants) -> Option<Late> {
    let frozen = (member.team_id, freezes);
    catch_up::out_of_reach(&member.policies, due, member.ledger.activated_on, frozen, instants.now)
}

/// Decides which of the late runs start, and which wait.
async fn admit(
    tx: &mut PgConnection,
    running: Vec<(&Member, Vec<DueTime>)>,
    verdicts: &mut Verdicts,
) -> sqlx::Result<()> {
    if running.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = running.iter().map(|(member, _)| member.id).collect();
    let loads: HashMap<i64, Load> = load::read_loads(tx, &ids).await?;
    for (member, runs) in running {
        let mut load = loads.get(&member.id).copied().unwrap_or_default();
        if member.state != State::Active || runs.len() > RUNS || load.needs_promotion(&member.policies) {
            verdicts.singly.insert(member.id);
            continue;
        }
        for due in runs {
            let verdict = load.evaluate(&member.policies, Trigger::CatchUp);
            // A deferred run is never refused: it waits.
            let state = verdict.initial_state().unwrap_or(RunState::Queued);
            load = load.with_deferred(state);
            let (workflow_id, team_id) = (member.id, member.team_id);
            verdicts.caught_up.push(CaughtUp { workflow_id, team_id, time: due.time, revision: due.revision, state });
        }
    }
    Ok(())
}
