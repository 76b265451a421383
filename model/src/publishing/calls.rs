//! Reads, requests and answers: what happens between a claim and its settle, without a transaction.

use super::state::{
    Answer, Claim, Content, Late, Outcome, Publishing, Remedy, Request, SIGNATURE, Stage, State, Wanted, Workflow,
};

impl<const W: usize> Publishing<W> {
    /// After the lease nothing is sent, however long ago the publisher decided to send it.
    pub(super) fn sign_request(&self, state: &mut State<W>, publisher: usize) {
        let Stage::Ready { claim, wanted, request, is_repeated } = state.publishers[publisher] else { return };
        let may_sign = state.has_live_lease(publisher) || self.lacks(Remedy::SignWithinLease);
        state.publishers[publisher] = if may_sign {
            Stage::Waiting { claim, wanted, request, is_repeated, age: 0, answer: None }
        } else {
            Stage::Done { claim, wanted, outcome: Outcome::NotCalled }
        };
    }

    /// A write without an answer leaves doubt; a read has no effect.
    pub(super) fn miss_answer(&self, state: &mut State<W>, publisher: usize) {
        state.faults -= 1;
        let stage = state.publishers[publisher];
        state.keep_late(stage.open_request());
        let Stage::Waiting { mut claim, wanted, request, .. } = stage else { return };
        claim.is_in_doubt |= request != Request::Get && !self.lacks(Remedy::VerifyAfterDoubt);
        state.publishers[publisher] = Stage::Done { claim, wanted, outcome: Outcome::Retry };
    }

    /// The connection broke: the first request may still arrive, so it leaves doubt whatever the second one does.
    pub(super) fn repeat_request(&self, state: &mut State<W>, publisher: usize) {
        state.faults -= 1;
        let stage = state.publishers[publisher];
        state.keep_late(stage.open_request());
        let Stage::Waiting { mut claim, wanted, request, .. } = stage else { return };
        claim.is_in_doubt |= !self.lacks(Remedy::VerifyAfterDoubt);
        state.publishers[publisher] = Stage::Ready { claim, wanted, request, is_repeated: true };
    }
}

impl<const W: usize> State<W> {
    /// Reads the row; what the claim believes decides the first request.
    pub(super) fn read_workflow(&mut self, publisher: usize) {
        let Stage::Claimed(claim) = self.publishers[publisher] else { return };
        let row = &self.workflows[claim.workflow];
        let wanted = Wanted { content: row.content, revision: row.desired };
        self.publishers[publisher] = if claim.is_verify_due {
            Stage::Ready { claim, wanted, request: Request::Get, is_repeated: false }
        } else {
            first_call(claim, wanted, Belief::of(&claim))
        };
    }

    pub(super) fn execute_request(&mut self, publisher: usize) {
        let Stage::Waiting { claim, wanted, request, answer, .. } = &mut self.publishers[publisher] else { return };
        *answer = Some(self.workflows[claim.workflow].execute(*request, wanted.content));
    }

    /// A refusal is a fault, unless the signature has expired.
    pub(super) fn refuse_request(&mut self, publisher: usize) {
        let Stage::Waiting { answer, age, .. } = &mut self.publishers[publisher] else { return };
        if *age <= SIGNATURE {
            self.faults -= 1;
        }
        *answer = Some(Answer::Refused);
    }

    pub(super) fn receive_answer(&mut self, publisher: usize) {
        let stage = self.publishers[publisher];
        let Stage::Waiting { claim, wanted, answer: Some(answer), .. } = stage else { return };
        let done = |outcome| Stage::Done { claim, wanted, outcome };
        let other = |request| {
            let claim = Claim { is_second_call: true, ..claim };
            Stage::Ready { claim, wanted, request, is_repeated: false }
        };
        self.publishers[publisher] = match (answer, claim.is_second_call) {
            (Answer::Read(found), _) => {
                let claim = Claim { is_read: true, ..claim };
                let belief = match found {
                    0 => Belief::Nothing,
                    found if found == wanted.content => Belief::Hash(found),
                    _ => Belief::Something,
                };
                first_call(claim, wanted, belief)
            }
            (Answer::Done, _) => done(Outcome::Applied),
            // A create that failed is followed by an update, and the reverse; each once.
            (Answer::Conflict, false) => other(Request::Update),
            (Answer::NotFound, false) => other(Request::Create),
            (Answer::Conflict | Answer::NotFound | Answer::Refused, _) => done(Outcome::Retry),
        };
    }

    pub(super) fn execute_late(&mut self, nth: usize) {
        let Late { workflow, request, content, .. } = self.late.remove(nth);
        self.workflows[workflow].execute(request, content);
    }

    /// A late read has no effect, so it is forgotten.
    pub(super) fn keep_late(&mut self, request: Option<Late>) {
        self.late.extend(request.filter(|late| late.request != Request::Get));
        self.late.sort_unstable();
    }
}

impl Workflow {
    /// What EventBridge does.
    fn execute(&mut self, request: Request, content: Content) -> Answer {
        match (request, self.scheduled) {
            (Request::Get, scheduled) => return Answer::Read(scheduled),
            (Request::Create, scheduled) if scheduled != 0 => return Answer::Conflict,
            (Request::Update, 0) => return Answer::NotFound,
            (Request::Create | Request::Update, _) => self.scheduled = content,
            (Request::Delete, _) => self.scheduled = 0,
        }
        Answer::Done
    }
}

/// What the publisher believes that EventBridge has: `publisher::converge::Belief`.
#[derive(Clone, Copy)]
enum Belief {
    Nothing,
    Hash(Content),
    Something,
    Unknown,
}

impl Belief {
    fn of(claim: &Claim) -> Self {
        match claim.spec_hash {
            Some(0) => Self::Nothing,
            Some(hash) => Self::Hash(hash),
            None if claim.is_named => Self::Something,
            None => Self::Unknown,
        }
    }
}

/// `Convergence::call`: the first request, or none if EventBridge has what is wanted.
fn first_call(claim: Claim, wanted: Wanted, belief: Belief) -> Stage {
    let request = match (wanted.content, belief) {
        (0, Belief::Nothing) => None,
        (0, _) => Some(Request::Delete),
        (content, Belief::Hash(hash)) if content == hash => None,
        (_, Belief::Hash(_) | Belief::Something) => Some(Request::Update),
        (_, Belief::Nothing | Belief::Unknown) => Some(Request::Create),
    };
    match request {
        Some(request) => Stage::Ready { claim, wanted, request, is_repeated: false },
        None => Stage::Done { claim, wanted, outcome: Outcome::Applied },
    }
}
