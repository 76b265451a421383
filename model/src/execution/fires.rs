//! Fires, the watchdog and the queue: what is decided under the workflow's lock.

use super::state::{
    Action, Decision, Execution, FIRES, Fence, INSTANCES, Lease, Owner, Remedy, Run, RunState, State, Verdict,
};

impl Execution {
    pub(super) fn actions_of_fires(&self, state: &State, actions: &mut Vec<Action>) {
        let waiting: Vec<usize> = (0..FIRES).filter(|fire| state.deliveries[*fire] > 0).collect();
        if self.lacks_lock() {
            for instance in 0..INSTANCES {
                match state.instances[instance].reading {
                    Some(_) => actions.push(Action::WriteFire { instance }),
                    None => actions.extend(waiting.iter().map(|&fire| Action::ReadFire { instance, fire })),
                }
            }
        } else {
            actions.extend(waiting.iter().map(|&fire| Action::DecideFire { fire }));
            if self.has_starts {
                actions_of_starts(state, &waiting, actions);
            }
        }
        if !state.is_grace_over {
            actions.push(Action::EndGrace);
        } else if state.occurrences.iter().any(|occurrence| occurrence.rows == 0) {
            actions.push(Action::DecideOverdueTimes);
        }
    }

    pub(super) fn decide_fire(&self, state: &mut State, fire: usize) {
        state.deliveries[fire] -= 1;
        let verdict = state.evaluate_fire(fire);
        self.record(state, fire, verdict);
    }

    /// As a decision and a claim, with nothing in between.
    pub(super) fn start_run(&self, state: &mut State, instance: usize, fire: usize) -> Fence {
        self.decide_fire(state, fire);
        let run = state.runs.len() - 1;
        state.claim(instance, run)
    }

    pub(super) fn read_fire(&self, state: &mut State, instance: usize, fire: usize) {
        state.deliveries[fire] -= 1;
        state.instances[instance].reading = Some((fire, state.evaluate_fire(fire)));
    }

    pub(super) fn write_fire(&self, state: &mut State, instance: usize) {
        let Some((fire, verdict)) = state.instances[instance].reading.take() else { return };
        self.record(state, fire, verdict);
    }

    /// `record_occurrence` and `accept_run`.
    fn record(&self, state: &mut State, fire: usize, verdict: Verdict) {
        match verdict {
            Verdict::Decided => {}
            Verdict::Start => self.accept_run(state, fire, RunState::Accepted),
            Verdict::Wait => self.take_waiting_place(state, fire),
            Verdict::Skip => self.decline(state, fire, Decision::SkippedOverlap),
            Verdict::Miss => self.decline(state, fire, Decision::Missed),
        }
    }

    /// Of the fires that wait only the newest one stays.
    fn take_waiting_place(&self, state: &mut State, fire: usize) {
        let waits = |run: &Run| run.state == RunState::Queued && run.never_started();
        if state.runs.iter().any(|run| waits(run) && run.fire > fire) {
            return self.decline(state, fire, Decision::SkippedOverlap);
        }
        if !self.lacks(Remedy::WaitingPlace) {
            for run in state.runs.iter_mut().filter(|run| waits(run)) {
                run.state = RunState::Cancelled;
                let replaced = &mut state.occurrences[run.fire];
                replaced.decision = Some(Decision::SkippedOverlap);
                replaced.run = None;
            }
        }
        self.accept_run(state, fire, RunState::Queued);
    }

    fn accept_run(&self, state: &mut State, fire: usize, run_state: RunState) {
        let occurrence = &mut state.occurrences[fire];
        let may_run = matches!(occurrence.decision, None | Some(Decision::Missed));
        if !may_run && !self.lacks(Remedy::UniqueDecision) {
            return;
        }
        if occurrence.rows == 0 || !may_run {
            occurrence.rows += 1;
        }
        occurrence.decision = Some(Decision::Fired);
        occurrence.run = Some(state.runs.len());
        state.runs.push(Run {
            fire,
            state: run_state,
            attempt: 0,
            owner: Owner::None,
            lease: Lease::None,
            recoveries: 0,
            handed_over: 0,
            cut_off: 0,
            ends: 0,
            ended_by: 0,
            has_late_result: false,
        });
    }

    fn decline(&self, state: &mut State, fire: usize, decision: Decision) {
        let occurrence = &mut state.occurrences[fire];
        if occurrence.rows == 0 {
            occurrence.decision = Some(decision);
            occurrence.rows = 1;
        } else if self.lacks(Remedy::UniqueDecision) {
            occurrence.rows += 1;
        }
    }
}

/// The fires whose runs may start in the decision: each in a slot of any instance.
fn actions_of_starts(state: &State, waiting: &[usize], actions: &mut Vec<Action>) {
    let starts = |fire: &usize| state.clone().evaluate_fire(*fire) == Verdict::Start;
    for fire in waiting.iter().copied().filter(starts) {
        for instance in 0..INSTANCES {
            actions.push(Action::DecideAndStart { instance, fire });
            if state.faults > 0 {
                actions.push(Action::LoseStartReply { instance, fire });
            }
        }
    }
}

impl Run {
    /// `run_never_started`: each of its attempts was handed over before it had sent anything.
    #[must_use]
    pub fn never_started(&self) -> bool {
        self.attempt == self.handed_over - self.cut_off
    }

    /// Whether it uses the slot of its workflow.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.state, RunState::Accepted | RunState::Running)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, RunState::Succeeded | RunState::Cancelled | RunState::Abandoned)
    }
}

impl State {
    /// `ledger::invoke::cases` and `ledger::admission::verdict`, under the overlap policy `skip`.
    fn evaluate_fire(&mut self, fire: usize) -> Verdict {
        let occurrence = self.occurrences[fire];
        if occurrence.run.is_some() || !matches!(occurrence.decision, None | Some(Decision::Missed)) {
            return Verdict::Decided;
        }
        if self.is_grace_over {
            return Verdict::Miss;
        }
        self.promote_queued_runs();
        let is_waiting = |run: &&Run| run.state == RunState::Queued;
        let started = self.runs.iter().any(|run| !run.has_ended() && !run.never_started());
        let waits_unstarted = self.runs.iter().filter(is_waiting).any(Run::never_started);
        if !self.runs.iter().any(|run| !run.has_ended()) {
            Verdict::Start
        } else if !started || waits_unstarted {
            Verdict::Wait
        } else {
            Verdict::Skip
        }
    }

    /// `out_of_reach`: under the catch-up policy `none` a late time does not run.
    pub(super) fn decide_overdue_times(&mut self) {
        for occurrence in self.occurrences.iter_mut().filter(|occurrence| occurrence.rows == 0) {
            occurrence.decision = Some(Decision::Missed);
            occurrence.rows = 1;
        }
    }

    /// The queued run that may start now.
    pub(super) fn first_to_promote(&self) -> Option<usize> {
        let is_free = !self.runs.iter().any(Run::is_busy);
        self.runs.iter().position(|run| is_free && run.state == RunState::Queued)
    }

    /// `ledger::admission::promote::promote_queued_runs`.
    pub(super) fn promote_queued_runs(&mut self) {
        if let Some(first) = self.first_to_promote() {
            self.runs[first].state = RunState::Accepted;
        }
    }
}
