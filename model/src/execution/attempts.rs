//! Claims, renewals, ends and recoveries: what instances do with runs.

use super::state::{Action, Decision, Execution, Fence, Instance, Lease, Owner, Remedy, Run, RunState, State};

impl Execution {
    /// What an instance may do next, and what may happen to it.
    pub(super) fn actions_of_instance(&self, state: &State, instance: usize, actions: &mut Vec<Action>) {
        let known = &state.instances[instance];
        if known.has_unknown_claims {
            // It claims nothing before it has handed these over. A run that it takes over soon is none of them.
            if known.starting.is_empty() || self.lacks(Remedy::WaitForStarts) {
                actions.push(Action::HandOverUnknown { instance });
            }
        } else {
            for run in state.claimable_runs(instance) {
                actions.push(Action::ClaimDueRuns { instance, run });
                if state.faults > 0 {
                    actions.push(Action::LoseClaimReply { instance, run });
                }
            }
        }
        for &fence in &known.starting {
            actions.push(Action::TakeOver { instance, fence });
            if state.faults > 0 {
                actions.push(Action::LoseTakeOver { instance, fence });
            }
        }
        if self.renewal_changes(state, instance) {
            actions.push(Action::RenewLeases { instance });
        }
        if !known.stopped.is_empty() {
            actions.push(Action::ReleaseAttempts { instance });
        }
        for &fence in &known.under_way {
            actions.push(Action::FinishRun { instance, fence });
            if state.faults > 0 {
                actions.push(Action::StopAttempt { instance, fence });
                actions.extend([true, false].map(|is_sent| Action::HandOver { instance, fence, is_sent }));
                if state.has(instance, fence) {
                    actions.push(Action::LoseFinishReply { instance, fence });
                }
            }
        }
        let owns = state.runs.iter().any(|run| run.owner == Owner::Instance(instance));
        if state.faults > 0 && (owns || !known.known_attempts().is_empty()) {
            actions.push(Action::KillInstance { instance });
        }
    }

    /// Whether a heartbeat keeps the lease of a run alive, or will soon, because its attempt is about to begin.
    pub(super) fn is_renewed(&self, state: &State, run: usize) -> bool {
        let Owner::Instance(instance) = state.runs[run].owner else { return false };
        let fence = Fence { run, attempt: state.runs[run].attempt };
        let known = &state.instances[instance];
        self.renews_by_instance() || known.under_way.contains(&fence) || known.starting.contains(&fence)
    }

    fn renewal_changes(&self, state: &State, instance: usize) -> bool {
        let known = &state.instances[instance];
        known.under_way.iter().any(|fence| !state.has(instance, *fence) || state.runs[fence.run].lease == Lease::Ended)
    }

    pub(super) fn lose_claim_reply(&self, state: &mut State, instance: usize, run: usize) {
        state.faults -= 1;
        state.claim(instance, run);
        state.instances[instance].has_unknown_claims = self.hands_unknown_over();
    }

    pub(super) fn decide_and_start(&self, state: &mut State, instance: usize, fire: usize) {
        let fence = self.start_run(state, instance, fire);
        let starting = &mut state.instances[instance].starting;
        starting.push(fence);
        starting.sort_unstable();
    }

    pub(super) fn lose_start_reply(&self, state: &mut State, instance: usize, fire: usize) {
        state.faults -= 1;
        self.start_run(state, instance, fire);
        state.instances[instance].has_unknown_claims = self.hands_unknown_over();
    }

    pub(super) fn lose_take_over(&self, state: &mut State, instance: usize, fence: Fence) {
        state.faults -= 1;
        let known = &mut state.instances[instance];
        known.starting.retain(|other| *other != fence);
        known.has_unknown_claims = self.hands_unknown_over();
    }

    /// Attempts that it does not find have lost their runs, and stop.
    pub(super) fn renew_leases(&self, state: &mut State, instance: usize) {
        for fence in state.instances[instance].under_way.clone() {
            if state.has(instance, fence) {
                state.runs[fence.run].lease = Lease::Live;
            } else {
                state.instances[instance].stop(fence);
            }
        }
    }

    pub(super) fn finish_run(&self, state: &mut State, instance: usize, fence: Fence) {
        let is_ours = state.has(instance, fence);
        let run = &mut state.runs[fence.run];
        let may_finish = match self.without {
            Some(Remedy::RunningState) => true,
            Some(Remedy::AttemptFence) => run.state == RunState::Running,
            _ => is_ours,
        };
        if may_finish {
            run.end(RunState::Succeeded);
            run.ends += 1;
            run.ended_by = fence.attempt;
        } else if !(run.attempt == fence.attempt && run.state == RunState::Succeeded) {
            // Otherwise the row has the outcome already, because only the reply to the commit was lost.
            run.has_late_result = true;
        }
    }

    pub(super) fn end_lease(&self, state: &mut State, run: usize) {
        if self.is_renewed(state, run) {
            state.faults -= 1;
        }
        state.runs[run].lease = Lease::Ended;
    }

    pub(super) fn is_lost(&self, run: &Run) -> bool {
        run.state == RunState::Running && (run.lease == Lease::Ended || self.lacks(Remedy::LeaseEnd))
    }

    /// Continues lost runs, or abandons those that were lost too often.
    pub(super) fn recover_lost_runs(&self, state: &mut State) {
        for nth in 0..state.runs.len() {
            let run = &mut state.runs[nth];
            if !self.is_lost(run) {
                continue;
            }
            if run.recoveries < self.recoveries {
                run.end(RunState::Accepted);
                run.recoveries += 1;
                continue;
            }
            run.end(RunState::Abandoned);
            let occurrence = &mut state.occurrences[run.fire];
            if occurrence.run == Some(nth) {
                occurrence.decision = Some(Decision::Abandoned);
            }
        }
    }
}

impl Run {
    /// Ends its attempt.
    fn end(&mut self, state: RunState) {
        (self.state, self.owner, self.lease) = (state, Owner::None, Lease::None);
    }
}

impl Instance {
    /// `AttemptsInFlight::known_attempts`.
    #[must_use]
    pub fn known_attempts(&self) -> Vec<Fence> {
        self.under_way.iter().chain(&self.stopped).copied().collect()
    }

    /// `AttemptsInFlight::register_attempt` stops another attempt of the run.
    pub(super) fn take_over(&mut self, fence: Fence) {
        self.starting.retain(|other| *other != fence);
        let replaced = self.under_way.iter().find(|other| other.run == fence.run).copied();
        if let Some(replaced) = replaced {
            self.stop(replaced);
        }
        self.under_way.push(fence);
        self.under_way.sort_unstable();
    }

    pub(super) fn forget(&mut self, fence: Fence) {
        self.under_way.retain(|other| *other != fence);
    }

    pub(super) fn stop(&mut self, fence: Fence) {
        self.forget(fence);
        self.stopped.push(fence);
        self.stopped.sort_unstable();
    }
}

impl State {
    /// Whether a run still has this attempt of this instance.
    pub(super) fn has(&self, instance: usize, fence: Fence) -> bool {
        let run = &self.runs[fence.run];
        run.state == RunState::Running && run.owner == Owner::Instance(instance) && run.attempt == fence.attempt
    }

    /// Accepted runs, without those of which this instance knows an attempt.
    fn claimable_runs(&self, instance: usize) -> impl Iterator<Item = usize> {
        let known = self.instances[instance].known_attempts();
        let is_free = move |run: usize| !known.iter().any(|fence| fence.run == run);
        let accepted = |run: &usize| self.runs[*run].state == RunState::Accepted;
        (0..self.runs.len()).filter(accepted).filter(move |run| is_free(*run))
    }

    pub(super) fn claim(&mut self, instance: usize, nth: usize) -> Fence {
        let run = &mut self.runs[nth];
        run.state = RunState::Running;
        run.attempt += 1;
        run.owner = Owner::Instance(instance);
        run.lease = Lease::Live;
        Fence { run: nth, attempt: run.attempt }
    }

    pub(super) fn claim_due_runs(&mut self, instance: usize, run: usize) {
        let fence = self.claim(instance, run);
        let under_way = &mut self.instances[instance].under_way;
        under_way.push(fence);
        under_way.sort_unstable();
    }

    pub(super) fn hand_over_unknown(&mut self, instance: usize) {
        let known = self.instances[instance].known_attempts();
        for (nth, run) in self.runs.iter_mut().enumerate() {
            let fence = Fence { run: nth, attempt: run.attempt };
            if run.state == RunState::Running && run.owner == Owner::Instance(instance) && !known.contains(&fence) {
                run.end(RunState::Accepted);
                run.handed_over += 1;
            }
        }
        self.instances[instance].has_unknown_claims = false;
    }

    pub(super) fn release_attempts(&mut self, instance: usize) {
        for fence in std::mem::take(&mut self.instances[instance].stopped) {
            if self.has(instance, fence) {
                let run = &mut self.runs[fence.run];
                (run.owner, run.lease) = (Owner::Released, Lease::Ended);
            }
        }
    }

    pub(super) fn hand_over(&mut self, instance: usize, fence: Fence, is_sent: bool) {
        self.faults -= 1;
        if self.has(instance, fence) {
            let run = &mut self.runs[fence.run];
            run.end(RunState::Accepted);
            run.handed_over += 1;
            run.cut_off += u8::from(is_sent);
        }
        self.instances[instance].forget(fence);
    }

    pub(super) fn kill_instance(&mut self, instance: usize) {
        self.faults -= 1;
        self.instances[instance] = Instance { reading: self.instances[instance].reading, ..Instance::default() };
        for run in self.runs.iter_mut().filter(|run| run.owner == Owner::Instance(instance)) {
            run.owner = Owner::Killed;
        }
    }
}
