//! Step 7 of 7: evaluates one page: due times against decisions, decisions against runs.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::read::{Decided, Run, Workflow};
use super::{Difference, Findings, Kind, Position, Span, Unjudged};
use crate::due_times;
use crate::freezes::Freezes;
use crate::occurrences::Decision;
use crate::runs::{RunState, Trigger};
use crate::versions::{DueCheck, Version};

/// How many due times one page compares, plus those of its last workflow.
const TIMES: usize = 20_000;

/// The result of a page, and where its slice continues; `None`: the slice is complete.
pub(super) struct Evaluated {
    pub(super) findings: Findings,
    pub(super) next: Option<Position>,
    /// Whether the answer has no room for the next time.
    pub(super) is_cut: bool,
}

/// The due times of the first workflows of a page, as many as one page compares.
pub(super) struct Due {
    workflows: Vec<DueWorkflow>,
    /// The next workflow, which this page leaves out.
    next: Option<i64>,
}

struct DueWorkflow {
    id: i64,
    team_id: i64,
    ledger_since: Option<DateTime<Utc>>,
    decided_through: Option<DateTime<Utc>>,
    has_unended_pause: bool,
    versions: Vec<Version>,
    times: Vec<DateTime<Utc>>,
    /// Revisions whose due times cannot be computed.
    unjudged: Vec<i64>,
}

/// One page, read in one snapshot.
pub(super) struct Page {
    pub(super) due: Due,
    pub(super) decisions: Vec<Decided>,
    pub(super) runs: Vec<Run>,
    pub(super) freezes: Freezes,
    pub(super) runs_pruned_before: Option<DateTime<Utc>>,
}

/// What is known about one time.
#[derive(Default)]
struct Entry {
    is_due: bool,
    decided: Option<Decided>,
    runs: Vec<Run>,
}

impl Due {
    pub(super) fn of_workflows(
        workflows: Vec<Workflow>,
        mut versions: HashMap<i64, Vec<Version>>,
        slice: Span,
        at: Position,
    ) -> Self {
        let mut due = Self { workflows: Vec::new(), next: workflows.last().map(|last| last.id.saturating_add(1)) };
        let mut times = 0;
        for workflow in workflows {
            let Workflow { id, team_id, ledger_since, decided_through, has_unended_pause, .. } = workflow;
            if times >= TIMES {
                due.next = Some(id);
                break;
            }
            let versions = versions.remove(&id).unwrap_or_default();
            let compared = at.after.filter(|_| id == at.workflow).unwrap_or(DateTime::UNIX_EPOCH);
            let after = compared.max(just_before(slice.from));
            let due_times = due_times::list_due_times(&versions, after, just_before(slice.to).max(after), usize::MAX);
            times += due_times.times.len();
            let times = due_times.times.into_iter().map(|due| due.time).collect();
            let unjudged = due_times.unjudged;
            due.workflows.push(DueWorkflow {
                id,
                team_id,
                ledger_since,
                decided_through,
                has_unended_pause,
                versions,
                times,
                unjudged,
            });
        }
        due
    }

    /// They ascend.
    pub(super) fn workflow_ids(&self) -> impl Iterator<Item = i64> {
        self.workflows.iter().map(|workflow| workflow.id)
    }
}

impl Page {
    /// Adds the findings of the page, from a position on, until the answer is full.
    pub(super) fn evaluate_page(self, at: Position, mut findings: Findings) -> Evaluated {
        let Page { due, decisions, runs, freezes, runs_pruned_before } = self;
        let mut entries = HashMap::<i64, BTreeMap<DateTime<Utc>, Entry>>::new();
        for decided in decisions {
            let of_workflow = entries.entry(decided.workflow_id).or_default();
            of_workflow.entry(decided.scheduled_time).or_default().decided = Some(decided);
        }
        for run in runs {
            entries.entry(run.workflow_id).or_default().entry(run.scheduled_time).or_default().runs.push(run);
        }
        for workflow in &due.workflows {
            let mut entries = entries.remove(&workflow.id).unwrap_or_default();
            for time in &workflow.times {
                entries.entry(*time).or_default().is_due = true;
            }
            let compared = at.after.filter(|_| workflow.id == at.workflow);
            if let Err(through) = workflow.evaluate(&entries, compared, (&freezes, runs_pruned_before), &mut findings) {
                let next = Some(Position { workflow: workflow.id, after: through, ..at });
                return Evaluated { findings, next, is_cut: true };
            }
        }
        let next = due.next.map(|workflow| Position { workflow, after: None, ..at });
        Evaluated { findings, next, is_cut: false }
    }
}

impl DueWorkflow {
    /// Compares the times after `compared`; an error contains the last compared time, because the answer is full.
    fn evaluate(
        &self,
        entries: &BTreeMap<DateTime<Utc>, Entry>,
        compared: Option<DateTime<Utc>>,
        (freezes, runs_pruned_before): (&Freezes, Option<DateTime<Utc>>),
        findings: &mut Findings,
    ) -> Result<(), Option<DateTime<Utc>>> {
        if compared.is_none() {
            let is_undecided =
                self.has_unended_pause || entries.iter().any(|(time, entry)| self.is_undecided(*time, entry));
            if !findings.has_room_for(self.unjudged.len().min(1) + usize::from(is_undecided)) {
                return Err(None);
            }
            findings.undecided_workflows.extend(is_undecided.then_some(self.id));
            // Report one for all of a day, because an edit every minute would fill the page.
            let unjudged = self.unjudged.first().map(|revision| Unjudged { workflow_id: self.id, revision: *revision });
            findings.unjudged_workflows.extend(unjudged);
        }
        let mut through = compared;
        for (time, entry) in entries {
            let is_compared = compared.is_some_and(|compared| *time <= compared);
            if is_compared || self.ledger_since.is_some_and(|since| *time <= since) {
                continue;
            }
            let is_unjudged = !entry.is_due && self.is_unjudged(*time);
            let is_undecided = self.is_undecided(*time, entry);
            let kinds = [
                entry.against_the_schedule(is_unjudged).filter(|_| !is_undecided).map(|kind| (kind, None)),
                entry.against_the_runs(runs_pruned_before),
                entry.against_the_freezes(self.team_id, *time, freezes),
            ];
            let kinds: Vec<_> = kinds.into_iter().flatten().collect();
            if !findings.has_room_for(kinds.len()) {
                return Err(through);
            }
            findings.due += u64::from(entry.is_due);
            findings.decided += u64::from(entry.decided.is_some());
            findings.unjudged += u64::from(is_unjudged && entry.decided.is_some());
            findings.differences.extend(kinds.into_iter().map(|(kind, run_id)| Difference {
                workflow_id: self.id,
                scheduled_time: *time,
                kind,
                decision: entry.decided.map(|decided| decided.decision),
                run_id,
            }));
            through = Some(*time);
        }
        Ok(())
    }

    /// Whether a time has no decision because the watchdog cannot process the workflow.
    fn is_undecided(&self, time: DateTime<Utc>, entry: &Entry) -> bool {
        entry.is_due && entry.decided.is_none() && self.decided_through.is_some_and(|through| time > through)
    }

    /// Whether the version in force at a time cannot be evaluated at it.
    fn is_unjudged(&self, time: DateTime<Utc>) -> bool {
        let in_force = self.versions.iter().rfind(|version| version.valid_from <= time);
        in_force.is_some_and(|version| version.check_due(time) == DueCheck::Unjudged)
    }
}

impl Entry {
    fn against_the_schedule(&self, is_unjudged: bool) -> Option<Kind> {
        match self.decided {
            None => self.is_due.then_some(Kind::Missing),
            Some(_) if self.is_due || is_unjudged => None,
            Some(decided) => (!decided.may_be_undue(&self.runs)).then_some(Kind::NotDue),
        }
    }

    /// Whether the time ran by the schedule although a freeze had stopped it.
    fn against_the_freezes(&self, team: i64, time: DateTime<Utc>, freezes: &Freezes) -> Option<(Kind, Option<Uuid>)> {
        let decided = self.decided?;
        let ran = matches!(decided.decision, Decision::Fired | Decision::CaughtUp);
        (ran && freezes.must_have_seen(team, time, decided.decided_on)).then_some((Kind::RanFrozen, decided.run_id))
    }

    /// Returns how the decision and its runs differ, and the run concerned.
    fn against_the_runs(&self, pruned_before: Option<DateTime<Utc>>) -> Option<(Kind, Option<Uuid>)> {
        let named = self.decided.and_then(|decided| decided.run_id);
        let automatic: Vec<&Run> = self.runs.iter().filter(|run| run.is_automatic()).collect();
        let unnamed = automatic.iter().find(|run| Some(run.id) != named).map(|run| run.id);
        if automatic.len() > 1 {
            return Some((Kind::TwoRuns, unnamed));
        }
        let Some(decided) = self.decided else { return unnamed.map(|run| (Kind::RunWithoutDecision, Some(run))) };
        let contradicted = |run| Some((Kind::Contradicted, run));
        if !decided.says_that_it_ran() {
            let ran = automatic.iter().find(|run| !decided.permits(run)).map(|run| run.id);
            let names_a_run = named.filter(|_| decided.decision != Decision::SkippedOverlap);
            return ran.or(names_a_run).and_then(|run| contradicted(Some(run)));
        }
        match self.runs.iter().find(|run| Some(run.id) == named) {
            Some(run) if !decided.agrees_with(run) => contradicted(named),
            Some(_) => unnamed.map(|run| (Kind::RunWithoutDecision, Some(run))),
            // A run ends after its decision, so the run of a decision before the mark may have been pruned.
            None if named.is_some() && pruned_before.is_some_and(|pruned| decided.decided_on < pruned) => None,
            None => Some((Kind::NoRun, named)),
        }
    }
}

impl Decided {
    /// Whether a time that was not due may have this decision.
    fn may_be_undue(&self, runs: &[Run]) -> bool {
        match self.decision {
            // A backfill may select times by another timing than the one in force at them.
            Decision::SkippedPaused | Decision::Backfilled => true,
            // Its run may have been a backfill's; if the run is pruned, that is unknown.
            Decision::Abandoned => {
                let own = runs.iter().find(|run| Some(run.id) == self.run_id);
                self.is_early || own.is_none_or(|run| run.trigger == Trigger::Backfill)
            }
            // A decision before its time followed the timing in force then; a later edit cannot change it.
            Decision::Fired | Decision::CaughtUp | Decision::SkippedOverlap | Decision::Missed => self.is_early,
        }
    }

    fn says_that_it_ran(&self) -> bool {
        match self.decision {
            Decision::Fired | Decision::CaughtUp | Decision::Backfilled | Decision::Abandoned => true,
            Decision::SkippedOverlap | Decision::SkippedPaused | Decision::Missed => false,
        }
    }

    /// Whether an automatic run may exist although the decision says that the time did not run.
    fn permits(&self, run: &Run) -> bool {
        // A newer fire replaced the run before it started.
        self.decision == Decision::SkippedOverlap && run.state == RunState::Cancelled && run.never_started
    }

    /// Whether the trigger and the state of the named run match the decision.
    fn agrees_with(&self, run: &Run) -> bool {
        let is_of_its_kind = match self.decision {
            // A late fire is deferred, and so is one after which a later time became due.
            Decision::Fired => run.is_automatic(),
            Decision::CaughtUp => run.trigger == Trigger::CatchUp,
            Decision::Backfilled => run.trigger == Trigger::Backfill,
            _ => true,
        };
        is_of_its_kind && (self.decision == Decision::Abandoned) == (run.state == RunState::Abandoned)
    }
}

impl Run {
    fn is_automatic(&self) -> bool {
        matches!(self.trigger, Trigger::Schedule | Trigger::CatchUp)
    }
}

fn just_before(time: DateTime<Utc>) -> DateTime<Utc> {
    time - TimeDelta::microseconds(1)
}
