//! Step 7 as a model: repeated fires of one workflow, and two instances that execute its runs.
//!
//! The workflow has three due times, the overlap policy `skip` and the catch-up policy `none`. Each is fired twice,
//! in any order; a time whose fires come after the grace was not fired in time. What is left out, because it changes no
//! order of events: teams and slots (an instance claims one run at a time), retries of failed actions, cancellations,
//! pauses, and the cache of `:invoke`, which only repeats committed answers.
//!
//! A decision is one transaction under the workflow's lock, so it is one action. Without the lock it is two: a
//! transaction reads, and writes later. A decision may start its run in a slot of its instance; until the instance has
//! read what the attempt needs, it executes none.

mod attempts;
mod fires;
pub mod properties;
pub mod state;

use stateright::{Model, Property};

use self::state::{Action, Execution, FIRES, INSTANCES, Instance, Lease, Occurrence, State};

impl Model for Execution {
    type State = State;
    type Action = Action;

    /// All times are due, and none is decided.
    fn init_states(&self) -> Vec<State> {
        let undecided = Occurrence { decision: None, rows: 0, run: None };
        vec![State {
            occurrences: [undecided; FIRES],
            runs: Vec::new(),
            deliveries: [self.deliveries; FIRES],
            is_grace_over: false,
            instances: [Instance::default(), Instance::default()],
            faults: self.faults,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.actions_of_fires(state, actions);
        for instance in 0..INSTANCES {
            self.actions_of_instance(state, instance, actions);
        }
        for (nth, run) in state.runs.iter().enumerate() {
            if run.lease == Lease::Live && (state.faults > 0 || !self.is_renewed(state, nth)) {
                actions.push(Action::EndLease { run: nth });
            }
        }
        if state.runs.iter().any(|run| self.is_lost(run)) {
            actions.push(Action::RecoverLostRuns);
        }
        if state.first_to_promote().is_some() {
            actions.push(Action::AdvanceWorkflow);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::DecideFire { fire } => self.decide_fire(&mut state, fire),
            Action::DecideAndStart { instance, fire } => self.decide_and_start(&mut state, instance, fire),
            Action::LoseStartReply { instance, fire } => self.lose_start_reply(&mut state, instance, fire),
            Action::TakeOver { instance, fence } => state.instances[instance].take_over(fence),
            Action::LoseTakeOver { instance, fence } => self.lose_take_over(&mut state, instance, fence),
            Action::ReadFire { instance, fire } => self.read_fire(&mut state, instance, fire),
            Action::WriteFire { instance } => self.write_fire(&mut state, instance),
            Action::EndGrace => state.is_grace_over = true,
            Action::DecideOverdueTimes => state.decide_overdue_times(),
            Action::ClaimDueRuns { instance, run } => state.claim_due_runs(instance, run),
            Action::LoseClaimReply { instance, run } => self.lose_claim_reply(&mut state, instance, run),
            Action::HandOverUnknown { instance } => state.hand_over_unknown(instance),
            Action::RenewLeases { instance } => self.renew_leases(&mut state, instance),
            Action::StopAttempt { instance, fence } => {
                state.faults -= 1;
                state.instances[instance].stop(fence);
            }
            Action::ReleaseAttempts { instance } => state.release_attempts(instance),
            Action::FinishRun { instance, fence } => {
                self.finish_run(&mut state, instance, fence);
                state.instances[instance].forget(fence);
            }
            Action::LoseFinishReply { instance, fence } => {
                state.faults -= 1;
                self.finish_run(&mut state, instance, fence);
            }
            Action::HandOver { instance, fence, is_sent } => state.hand_over(instance, fence, is_sent),
            Action::EndLease { run } => self.end_lease(&mut state, run),
            Action::KillInstance { instance } => state.kill_instance(instance),
            Action::RecoverLostRuns => self.recover_lost_runs(&mut state),
            Action::AdvanceWorkflow => state.promote_queued_runs(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::list()
    }
}
