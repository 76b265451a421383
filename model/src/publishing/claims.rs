//! Edits, claims and settles: the transactions of the protocol, and the passage of time.

use super::state::{
    Action, Claim, Due, Lease, Outcome, PUBLISHERS, Publishing, Remedy, Request, SIGNATURE, Stage, State, VERIFY,
    Wanted, Workflow,
};

impl<const W: usize> Publishing<W> {
    /// What a publisher may do next, and what may happen to it.
    pub(super) fn actions_of(&self, state: &State<W>, publisher: usize, actions: &mut Vec<Action>) {
        match &state.publishers[publisher] {
            Stage::Idle => {
                let is_claimable = |row: &Workflow| row.due == Due::Now && row.lease != Lease::Live;
                let due = (0..W).filter(|workflow| is_claimable(&state.workflows[*workflow]));
                actions.extend(due.map(|workflow| Action::ClaimDue { publisher, workflow }));
                return;
            }
            Stage::Claimed(_) => actions.push(Action::ReadWorkflow { publisher }),
            Stage::Ready { .. } => actions.push(Action::SignRequest { publisher }),
            Stage::Waiting { answer: Some(_), .. } => actions.push(Action::ReceiveAnswer { publisher }),
            Stage::Waiting { age, .. } if *age > SIGNATURE => actions.push(Action::RefuseRequest { publisher }),
            Stage::Waiting { .. } => {
                actions.push(Action::ExecuteRequest { publisher });
                if state.faults > 0 {
                    actions.push(Action::RefuseRequest { publisher });
                }
            }
            Stage::Done { .. } => actions.push(Action::SettleClaim { publisher }),
        }
        if state.faults > 0 {
            actions.push(Action::KillPublisher { publisher });
            if let Stage::Waiting { request, is_repeated, .. } = state.publishers[publisher] {
                actions.push(Action::MissAnswer { publisher });
                if self.has_broken_connections && request != Request::Get && !is_repeated {
                    actions.push(Action::RepeatRequest { publisher });
                }
            }
        }
    }

    /// A takeover makes the schedule unknown, and a verify pass necessary.
    pub(super) fn claim_due(&self, state: &mut State<W>, publisher: usize, workflow: usize) {
        for stage in &mut state.publishers {
            if let Some(claim) = stage.claim_mut().filter(|claim| claim.workflow == workflow) {
                claim.is_current = false;
            }
        }
        let row = &mut state.workflows[workflow];
        let is_takeover = row.lease == Lease::Ended;
        let is_verify_due = row.verify == Some(0) && !is_takeover;
        row.lease = Lease::Live;
        if is_takeover {
            row.spec_hash = None;
            if self.lacks(Remedy::WaitForSignatures) {
                row.verify = Some(0);
            } else if !self.lacks(Remedy::VerifyAfterTakeover) {
                row.verify = Some(VERIFY);
            }
        }
        let seen = if row.rows > row.processed { row.rows } else { 0 };
        let (spec_hash, is_named) = (row.spec_hash, row.is_named);
        state.publishers[publisher] = Stage::Claimed(Claim {
            workflow,
            is_current: true,
            seen,
            spec_hash,
            is_named,
            is_verify_due,
            is_read: false,
            is_in_doubt: false,
            is_second_call: false,
        });
    }

    /// Fenced by the epoch: a claim that another one has replaced changes nothing.
    pub(super) fn settle_claim(&self, state: &mut State<W>, publisher: usize) {
        let settled = std::mem::replace(&mut state.publishers[publisher], Stage::Idle);
        let Stage::Done { claim, wanted, outcome } = settled else { return };
        let row = &mut state.workflows[claim.workflow];
        let is_ours = claim.is_current && row.lease != Lease::None;
        if !is_ours && !self.lacks(Remedy::EpochFence) {
            return;
        }
        let is_superseded = row.rows > claim.seen.max(row.processed) && !self.lacks(Remedy::RecheckOfEdits);
        row.lease = Lease::None;
        let has_verified = claim.is_verify_due && claim.is_read;
        row.verify = match row.verify {
            _ if claim.is_in_doubt => Some(VERIFY),
            _ if has_verified => None,
            before => before,
        };
        match outcome {
            Outcome::Applied => row.settle_published(&claim, wanted, is_superseded),
            Outcome::Retry => row.settle_unpublished(&claim, has_verified, is_superseded, Due::AfterBackoff),
            Outcome::NotCalled => {
                let as_before = row.due;
                row.settle_unpublished(&claim, has_verified, is_superseded, as_before);
            }
        }
    }
}

impl Workflow {
    /// `publisher::settle::published`.
    fn settle_published(&mut self, claim: &Claim, wanted: Wanted, is_superseded: bool) {
        self.processed = self.processed.max(claim.seen);
        self.applied = wanted.revision;
        self.spec_hash = Some(wanted.content);
        self.is_named = wanted.content != 0;
        self.due = match self.verify {
            _ if is_superseded => Due::Now,
            None => Due::Never,
            Some(0) => Due::Now,
            Some(_) => Due::AtVerify,
        };
    }

    /// `publisher::settle::unpublished`.
    fn settle_unpublished(&mut self, claim: &Claim, has_verified: bool, is_superseded: bool, due: Due) {
        if claim.is_in_doubt || has_verified {
            self.spec_hash = None;
        }
        self.due = if is_superseded { Due::Now } else { due };
    }
}

impl<const W: usize> State<W> {
    pub(super) fn save_workflow(&mut self, workflow: usize, content: u8) {
        self.edits -= 1;
        let row = &mut self.workflows[workflow];
        row.content = content;
        row.desired += 1;
        row.rows += 1;
        row.due = Due::Now;
    }

    pub(super) fn kill_publisher(&mut self, publisher: usize) {
        self.faults -= 1;
        let killed = std::mem::replace(&mut self.publishers[publisher], Stage::Idle);
        self.keep_late(killed.open_request());
    }

    /// A lease that ends although its owner lives is a fault: the owner was slower than a minute.
    pub(super) fn end_leases(&mut self) {
        self.count_slowness();
        self.end_leases_and_backoffs();
    }

    pub(super) fn pass_signature(&mut self) {
        self.count_slowness();
        self.end_leases_and_backoffs();
        for row in &mut self.workflows {
            row.verify = row.verify.map(|left| left.saturating_sub(1));
            if row.verify == Some(0) && row.due == Due::AtVerify {
                row.due = Due::Now;
            }
        }
        for stage in &mut self.publishers {
            if let Stage::Waiting { age, answer: None, .. } = stage {
                *age = (*age + 1).min(SIGNATURE + 1);
            }
        }
        self.late.retain_mut(|late| {
            late.age += 1;
            late.age <= SIGNATURE
        });
    }

    /// Whether a publisher has a claim whose lease has not ended.
    pub(super) fn is_a_live_lease_owned(&self) -> bool {
        (0..PUBLISHERS).any(|publisher| self.has_live_lease(publisher))
    }

    /// Whether the lease of a publisher's claim has not ended.
    pub(super) fn has_live_lease(&self, publisher: usize) -> bool {
        let claim = self.publishers[publisher].claim();
        claim.is_some_and(|claim| claim.is_current && self.workflows[claim.workflow].lease == Lease::Live)
    }

    fn count_slowness(&mut self) {
        if self.is_a_live_lease_owned() {
            self.faults -= 1;
        }
    }

    fn end_leases_and_backoffs(&mut self) {
        for row in &mut self.workflows {
            if row.lease == Lease::Live {
                row.lease = Lease::Ended;
            }
            if row.due == Due::AfterBackoff {
                row.due = Due::Now;
            }
        }
    }
}
