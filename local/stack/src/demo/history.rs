//! What the app would have decided: each due time of the past with its decision, and its run.

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use uuid::{Builder, Uuid};
use workflows::definition::policies::CatchUp;

use super::definitions::{AUTO_PAUSED, DemoWorkflow, FAILURES, OVERLAPPING, Timing};
use super::span::Span;

/// The outage: no fire arrived in the night of twenty days ago, from 22:00 UTC on.
const OUTAGE_DAYS_AGO: i64 = 20;
const OUTAGE_FROM_HOUR: i64 = 22;
const OUTAGE_HOURS: i64 = 7;
/// The freeze of the first team, thirty days ago.
const FREEZE_DAYS_AGO: i64 = 30;
const FREEZE_HOURS: i64 = 30;
/// Why the first team was frozen.
pub(super) const FREEZE_REASON: &str = "year-end close of the ledger";

/// All decisions and runs.
#[derive(Default)]
pub(super) struct History {
    pub(super) occurrences: Vec<Occurrence>,
    pub(super) runs: Vec<Run>,
}

/// A decided time.
pub(super) struct Occurrence {
    pub(super) id: Uuid,
    pub(super) workflow_id: i64,
    pub(super) time: DateTime<Utc>,
    pub(super) decision: &'static str,
    pub(super) reason: Option<String>,
    pub(super) revision: i64,
    pub(super) run_id: Option<Uuid>,
    pub(super) decided_on: DateTime<Utc>,
}

/// An ended run.
pub(super) struct Run {
    pub(super) id: Uuid,
    pub(super) workflow_id: i64,
    pub(super) team_id: i64,
    pub(super) occurrence_id: Uuid,
    pub(super) trigger: &'static str,
    pub(super) state: &'static str,
    pub(super) time: DateTime<Utc>,
    pub(super) started_on: DateTime<Utc>,
    pub(super) finished_on: DateTime<Utc>,
    pub(super) error: Option<&'static str>,
}

/// When the fires did not arrive.
pub(super) fn outage_of(span: Span) -> (DateTime<Utc>, DateTime<Utc>) {
    let day = span.days_ago(OUTAGE_DAYS_AGO).date_naive().and_time(NaiveTime::MIN).and_utc();
    let begin = day + TimeDelta::hours(OUTAGE_FROM_HOUR);
    (begin, begin + TimeDelta::hours(OUTAGE_HOURS))
}

/// When the first team was frozen.
pub(super) fn freeze_of(span: Span) -> (DateTime<Utc>, DateTime<Utc>) {
    let begin = span.days_ago(FREEZE_DAYS_AGO);
    (begin, begin + TimeDelta::hours(FREEZE_HOURS))
}

impl History {
    /// Decides every due time of these workflows.
    pub(super) fn of_workflows(workflows: &[DemoWorkflow], span: Span) -> Self {
        let mut history = History::default();
        // The team of the first workflow is the frozen one.
        let frozen_team = workflows.first().map(|workflow| workflow.team_id);
        for workflow in workflows {
            let due = due_times(workflow, span);
            let caught_up = last_of_outage(&due, span);
            for (time, timing) in &due {
                let is_frozen = Some(workflow.team_id) == frozen_team && is_within(*time, freeze_of(span));
                history.decide_time(workflow, (*time, timing), is_frozen, caught_up, span);
            }
        }
        history
    }

    fn decide_time(
        &mut self,
        workflow: &DemoWorkflow,
        (time, timing): (DateTime<Utc>, &Timing),
        is_frozen: bool,
        caught_up: Option<DateTime<Utc>>,
        span: Span,
    ) {
        let chance = Chance::of_time(workflow.id, time);
        let outage = outage_of(span);
        let soon = time + TimeDelta::milliseconds(200 + i64::try_from(chance.number(1, 900)).unwrap_or(0));
        let after_outage = outage.1 + TimeDelta::seconds(40);
        let (decision, reason, decided_on) = if !timing.is_active {
            ("skipped_paused", Some("paused".to_owned()), soon)
        } else if is_frozen {
            ("skipped_paused", Some(format!("frozen:{FREEZE_REASON}")), soon)
        } else if is_within(time, outage) {
            match workflow.catch_up {
                CatchUp::None => ("missed", Some("no_fire_and_no_catch_up".to_owned()), time + TimeDelta::seconds(330)),
                CatchUp::Skip if caught_up != Some(time) => ("missed", Some("superseded".to_owned()), after_outage),
                CatchUp::Skip | CatchUp::RunAll => ("caught_up", Some("no_fire_in_time".to_owned()), after_outage),
            }
        } else if workflow.name == OVERLAPPING && chance.number(2, 10) == 0 {
            ("skipped_overlap", Some("previous_run_not_ended".to_owned()), soon)
        } else {
            ("fired", None, soon)
        };
        let id = chance.uuid(3, decided_on);
        let trigger = match decision {
            "fired" => Some("schedule"),
            "caught_up" => Some("catch_up"),
            _ => None,
        };
        let run = trigger.map(|trigger| run_of(workflow, time, id, trigger, decided_on, &chance));
        self.occurrences.push(Occurrence {
            id,
            workflow_id: workflow.id,
            time,
            decision,
            reason,
            revision: timing.revision,
            run_id: run.as_ref().map(|run| run.id),
            decided_on,
        });
        self.runs.extend(run);
    }
}

/// The due times of all timings, also of a pause, which are decided too.
fn due_times(workflow: &DemoWorkflow, span: Span) -> Vec<(DateTime<Utc>, &Timing)> {
    let mut due = Vec::new();
    for (nth, timing) in workflow.timings.iter().enumerate() {
        let until = workflow.timings.get(nth + 1).map_or(span.end + TimeDelta::seconds(1), |next| next.since);
        // A time at the very beginning of a timing is due by it.
        let mut at = timing.since - TimeDelta::microseconds(1);
        while let Some(time) = timing.cron.next_after(at, timing.timezone).filter(|time| *time < until) {
            due.push((time, timing));
            at = time;
        }
    }
    due
}

/// The newest time of the outage, if no later one was due before the outage ended.
fn last_of_outage(due: &[(DateTime<Utc>, &Timing)], span: Span) -> Option<DateTime<Utc>> {
    due.iter().map(|(time, _)| *time).filter(|time| is_within(*time, outage_of(span))).max()
}

fn is_within(time: DateTime<Utc>, (begin, end): (DateTime<Utc>, DateTime<Utc>)) -> bool {
    begin <= time && time < end
}

fn run_of(
    workflow: &DemoWorkflow,
    time: DateTime<Utc>,
    occurrence_id: Uuid,
    trigger: &'static str,
    accepted_on: DateTime<Utc>,
    chance: &Chance,
) -> Run {
    // The import that always fails worked until the last days before its pause.
    let failures = match workflow.name {
        AUTO_PAUSED => {
            let paused_on = workflow.timings.last().map_or(time, |timing| timing.since);
            let last = paused_on - TimeDelta::hours(i64::from(FAILURES));
            if time >= last { 1_000 } else { 5 }
        }
        _ => workflow.failures_of_1000,
    };
    let fails = chance.number(4, 1_000) < failures;
    let (state, error) = match (fails, chance.number(5, 6)) {
        (false, _) => ("succeeded", None),
        (true, 0) => ("timed_out", Some("timed_out")),
        (true, 1 | 2) => ("failed", Some("the receiver answered 503 Service Unavailable")),
        (true, _) => ("failed", Some("the receiver answered 500 Internal Server Error")),
    };
    let started_on = accepted_on + TimeDelta::milliseconds(30);
    // From 70 % to 130 % of what is usual, and four times as long if it timed out.
    let usual = workflow.seconds * 1_000;
    let took = match state {
        "timed_out" => (usual * 4).max(30_000),
        _ => usual * 7 / 10 + chance.number(6, usual * 6 / 10 + 1),
    };
    let finished_on = started_on + TimeDelta::milliseconds(i64::try_from(took).unwrap_or(0));
    Run {
        id: chance.uuid(7, accepted_on),
        workflow_id: workflow.id,
        team_id: workflow.team_id,
        occurrence_id,
        trigger,
        state,
        time,
        started_on,
        finished_on,
        error,
    }
}

/// Numbers that look random and depend only on a workflow and a time.
struct Chance(u64);

impl Chance {
    fn of_time(workflow: i64, time: DateTime<Utc>) -> Self {
        Chance(mix(workflow.unsigned_abs()) ^ time.timestamp().unsigned_abs())
    }

    /// The `nth` number, below `limit`.
    fn number(&self, nth: u64, limit: u64) -> u64 {
        mix(self.0 ^ mix(nth)) % limit.max(1)
    }

    /// An id of version 7 with this time.
    fn uuid(&self, nth: u64, at: DateTime<Utc>) -> Uuid {
        let [a, b] = [mix(self.0 ^ mix(nth)), mix(self.0 ^ mix(nth + 100))].map(u64::to_be_bytes);
        let mut random = [0; 10];
        random[..8].copy_from_slice(&a);
        random[8..].copy_from_slice(&b[..2]);
        Builder::from_unix_timestamp_millis(at.timestamp_millis().unsigned_abs(), &random).into_uuid()
    }
}

/// One step of `SplitMix64`.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
