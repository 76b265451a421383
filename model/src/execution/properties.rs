//! What must hold of decisions and runs.

use stateright::Property;

use super::state::{Decision, Execution, Instance, Lease, Occurrence, Owner, Run, RunState, State};

/// The promise, first half.
pub const ONE_DECISION: &str = "a due time has at most one decision";
/// The promise, second half.
pub const ONE_RUN: &str = "an occurrence has at most one automatic run";
/// A decision and its run commit together.
pub const FIRED: &str = "a fired time has its run, and no other time has one";
/// S8 of the torture.
pub const OVERLAP: &str = "no more runs start than the overlap policy permits";
/// At most one fire waits.
pub const ONE_WAITS: &str = "at most one fire waits";
/// The fence.
pub const NEWEST_ATTEMPT: &str = "only the newest attempt ends a run";
/// The end of a run is final.
pub const ENDS_ONCE: &str = "no two attempts of one run both finish";
/// S14 of the torture.
pub const NO_NEEDLESS_ATTEMPT: &str = "without a fault each run has one attempt";
/// An owner without a lease would never be recovered.
pub const LEASED: &str = "a running run has a lease";
/// Otherwise a newer fire could replace it, or another instance execute it again without a word of recovery.
pub const COUNTS_AS_STARTED: &str = "a run that is executed counts as started";
/// Liveness: decisions, runs.
pub const ALL_ENDS: &str = "each due time is decided at last, and each run ends";
/// Shows that the model has the races for which the fences exist.
pub const LATE_RESULT: &str = "an attempt that had lost its run leaves a late result";
/// Shows that the hand-over of unknown runs may have to wait, if fires start runs.
pub const STARTS_BESIDE_UNKNOWN: &str = "a fire starts a run on an instance that has an unknown one";
/// Shows that a fire that waits is replaced.
pub const REPLACED: &str = "a newer fire replaces one that waits";

pub(super) fn list() -> Vec<Property<Execution>> {
    vec![
        Property::always(ONE_DECISION, |_, state: &State| state.occurrences.iter().all(|time| time.rows <= 1)),
        Property::always(ONE_RUN, |_, state: &State| {
            let is_of = |fire: usize| state.runs.iter().filter(|run| run.fire == fire && !run.is_replaced()).count();
            (0..state.occurrences.len()).all(|fire| is_of(fire) <= 1)
        }),
        Property::always(FIRED, |_, state: &State| {
            state.occurrences.iter().enumerate().all(|(fire, time)| time.has_what_it_says(fire, &state.runs))
        }),
        Property::always(OVERLAP, |_, state: &State| state.runs.iter().filter(|run| run.is_busy()).count() <= 1),
        Property::always(ONE_WAITS, |_, state: &State| {
            state.runs.iter().filter(|run| run.state == RunState::Queued).count() <= 1
        }),
        Property::always(NEWEST_ATTEMPT, |_, state: &State| {
            state.runs.iter().all(|run| run.ended_by == 0 || run.ended_by == run.attempt)
        }),
        Property::always(ENDS_ONCE, |_, state: &State| state.runs.iter().all(|run| run.ends <= 1)),
        Property::always(NO_NEEDLESS_ATTEMPT, |model, state: &State| {
            state.faults < model.faults || state.runs.iter().all(|run| run.attempt <= 1)
        }),
        Property::always(LEASED, |_, state: &State| {
            let is_owned = |run: &Run| run.lease != Lease::None && run.owner != Owner::None;
            state.runs.iter().all(|run| is_owned(run) == (run.state == RunState::Running))
        }),
        Property::always(COUNTS_AS_STARTED, |_, state: &State| {
            let mut executed = state.instances.iter().flat_map(|instance| &instance.under_way);
            executed.all(|fence| !state.runs[fence.run].never_started())
        }),
        Property::eventually(ALL_ENDS, |_, state: &State| state.is_finished()),
        Property::sometimes(LATE_RESULT, |_, state: &State| state.runs.iter().any(|run| run.has_late_result)),
        Property::sometimes(STARTS_BESIDE_UNKNOWN, |model: &Execution, state: &State| {
            let is_beside = |instance: &Instance| instance.has_unknown_claims && !instance.starting.is_empty();
            !model.has_starts || state.instances.iter().any(is_beside)
        }),
        Property::sometimes(REPLACED, |_, state: &State| state.runs.iter().any(Run::is_replaced)),
    ]
}

impl Run {
    /// Whether a newer fire took its place before it started.
    fn is_replaced(&self) -> bool {
        self.state == RunState::Cancelled
    }
}

impl Occurrence {
    fn has_what_it_says(&self, fire: usize, runs: &[Run]) -> bool {
        let run = self.run.map(|run| &runs[run]);
        match self.decision {
            Some(Decision::Fired) => run
                .is_some_and(|run| run.fire == fire && !matches!(run.state, RunState::Cancelled | RunState::Abandoned)),
            Some(Decision::Abandoned) => run.is_some_and(|run| run.state == RunState::Abandoned),
            Some(Decision::SkippedOverlap | Decision::Missed) | None => run.is_none(),
        }
    }
}

impl State {
    /// Whether nothing can happen any more, and all is as it must be.
    fn is_finished(&self) -> bool {
        let is_idle = self.instances.iter().all(|instance| {
            let knows_none = instance.known_attempts().is_empty() && instance.starting.is_empty();
            knows_none && !instance.has_unknown_claims && instance.reading.is_none()
        });
        let is_decided = self.occurrences.iter().all(|time| time.rows > 0);
        let has_fired = self.deliveries.iter().all(|left| *left == 0);
        is_idle && is_decided && has_fired && self.is_grace_over && self.runs.iter().all(Run::has_ended)
    }
}
