//! Steps 1 to 4 as a model: edits, and two publishers that copy them to EventBridge.
//!
//! What is left out, because it changes no order of events: the batch (a claim takes one workflow), renewals (a lease
//! that is renewed does not end), sweeps, and permanent failures. A read before a delete, and before the update that
//! follows a refused create, is one with the request that it precedes: it has no effect. A third failure in a row that an
//! edit superseded waits for a backoff; here it does not, because each failure is a fault, and the checked models have two.
//!
//! Time has two grains. [`state::Action::EndLeases`] is a minute: leases and backoffs end.
//! [`state::Action::PassSignature`] is eight minutes: a signature is valid for 15, so a request can arrive in the eight
//! minutes in which it was signed and in the next ones; a verify pass, which waits for at least 16, is due after
//! two of them.

mod calls;
mod claims;
pub mod properties;
pub mod state;

use stateright::{Model, Property};

use self::state::{Action, CONTENTS, Due, Lease, PUBLISHERS, Publishing, Stage, State, Workflow};

impl<const W: usize> Model for Publishing<W> {
    type State = State<W>;
    type Action = Action;

    /// Each workflow was created just now, and nothing is published.
    fn init_states(&self) -> Vec<State<W>> {
        let created = Workflow {
            content: 1,
            desired: 1,
            applied: 0,
            lease: Lease::None,
            spec_hash: None,
            is_named: false,
            verify: None,
            due: Due::Now,
            rows: 1,
            processed: 0,
            scheduled: 0,
        };
        let publishers = [Stage::Idle; PUBLISHERS];
        vec![State { workflows: [created; W], publishers, late: Vec::new(), edits: self.edits, faults: self.faults }]
    }

    fn actions(&self, state: &State<W>, actions: &mut Vec<Action>) {
        if state.edits > 0 {
            for (workflow, row) in state.workflows.iter().enumerate() {
                let others = (0..CONTENTS).filter(|content| *content != row.content);
                actions.extend(others.map(|content| Action::SaveWorkflow { workflow, content }));
            }
        }
        for publisher in 0..PUBLISHERS {
            self.actions_of(state, publisher, actions);
        }
        // Of equal requests one is enough.
        let is_first = |nth: &usize| *nth == 0 || state.late[*nth] != state.late[*nth - 1];
        actions.extend((0..state.late.len()).filter(is_first).map(|nth| Action::ExecuteLate { nth }));
        let is_owned = state.is_a_live_lease_owned();
        if !is_owned || state.faults > 0 {
            let ends = |row: &Workflow| row.lease == Lease::Live || row.due == Due::AfterBackoff;
            if state.workflows.iter().any(ends) {
                actions.push(Action::EndLeases);
            }
            let is_open = |stage: &Stage| stage.open_request().is_some();
            let waits = |row: &Workflow| row.verify.is_some_and(|left| left > 0);
            if state.workflows.iter().any(waits) || !state.late.is_empty() || state.publishers.iter().any(is_open) {
                actions.push(Action::PassSignature);
            }
        }
    }

    fn next_state(&self, last: &State<W>, action: Action) -> Option<State<W>> {
        let mut state = last.clone();
        match action {
            Action::SaveWorkflow { workflow, content } => state.save_workflow(workflow, content),
            Action::ClaimDue { publisher, workflow } => self.claim_due(&mut state, publisher, workflow),
            Action::ReadWorkflow { publisher } => state.read_workflow(publisher),
            Action::SignRequest { publisher } => self.sign_request(&mut state, publisher),
            Action::ExecuteRequest { publisher } => state.execute_request(publisher),
            Action::RefuseRequest { publisher } => state.refuse_request(publisher),
            Action::ReceiveAnswer { publisher } => state.receive_answer(publisher),
            Action::MissAnswer { publisher } => self.miss_answer(&mut state, publisher),
            Action::RepeatRequest { publisher } => self.repeat_request(&mut state, publisher),
            Action::SettleClaim { publisher } => self.settle_claim(&mut state, publisher),
            Action::ExecuteLate { nth } => state.execute_late(nth),
            Action::KillPublisher { publisher } => state.kill_publisher(publisher),
            Action::EndLeases => state.end_leases(),
            Action::PassSignature => state.pass_signature(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::list()
    }
}
