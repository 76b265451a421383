//! The rows, the publishers, the requests, and the steps of the model.

/// How many publishers there are.
pub const PUBLISHERS: usize = 2;
/// How many steps of eight minutes a signature outlives the one in which it was made.
pub(super) const SIGNATURE: u8 = 1;
/// After how many steps of eight minutes a verify pass is due.
pub(super) const VERIFY: u8 = 2;
/// The contents that an edit chooses from; 0 is "no schedule".
pub(super) const CONTENTS: u8 = 3;

/// The protocol with `W` workflows.
#[derive(Clone, Copy, Debug)]
pub struct Publishing<const W: usize> {
    /// How many edits there are, in all.
    pub edits: u8,
    /// How many faults there are: kills, lost answers, publishers slower than their lease, refusals.
    pub faults: u8,
    /// Whether connections break, so that the publisher repeats a request at once.
    pub has_broken_connections: bool,
    /// The remedy that is taken away.
    pub without: Option<Remedy>,
}

/// A remedy of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A settle changes only the publication whose epoch its claim has.
    EpochFence,
    /// A takeover requests a verify pass.
    VerifyAfterTakeover,
    /// A request without an answer makes the state unknown, and requests a verify pass.
    VerifyAfterDoubt,
    /// The verify pass of a takeover waits until no earlier signature is valid.
    WaitForSignatures,
    /// A settle finds the edits that were made since the claim.
    RecheckOfEdits,
    /// Nothing is sent after the lease.
    SignWithinLease,
}

/// What a schedule contains; 0 is "no schedule".
pub type Content = u8;

/// A state of database, publishers and EventBridge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const W: usize> {
    /// The workflows, each with its publication, its outbox and its schedule.
    pub workflows: [Workflow; W],
    /// What each publisher does.
    pub publishers: [Stage; PUBLISHERS],
    /// Requests whose publisher does not wait for an answer any more, in order.
    pub late: Vec<Late>,
    /// How many edits may still be made.
    pub edits: u8,
    /// How many faults may still happen.
    pub faults: u8,
}

/// A workflow with its rows and its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Workflow {
    /// What its row requires.
    pub content: Content,
    /// `desired_revision`, which is the workflow's.
    pub desired: u8,
    /// `applied_revision`, 0 = NULL.
    pub applied: u8,
    /// `lease_owner` and `lease_until`.
    pub lease: Lease,
    /// `spec_hash`: what EventBridge has, as far as it is known.
    pub spec_hash: Option<Content>,
    /// Whether `schedule_name` is set.
    pub is_named: bool,
    /// `verify_at`: in how many steps of eight minutes.
    pub verify: Option<u8>,
    /// `due_at`.
    pub due: Due,
    /// How many outbox rows there are.
    pub rows: u8,
    /// How many of them are processed; always the first ones.
    pub processed: u8,
    /// What EventBridge has.
    pub scheduled: Content,
}

/// The lease of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// There is none.
    None,
    /// It has not ended.
    Live,
    /// It has ended, and its owner has not settled.
    Ended,
}

/// When a publication is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// Never.
    Never,
    /// Now.
    Now,
    /// After a backoff, which ends within a minute.
    AfterBackoff,
    /// When its verify pass is.
    AtVerify,
}

/// A claim, as its publisher knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The workflow.
    pub workflow: usize,
    /// Whether the publication still has the epoch of this claim; a later claim changes it.
    pub is_current: bool,
    /// `seen`: the newest outbox row that it covers, 0 = none.
    pub seen: u8,
    /// `spec_hash` after the claim.
    pub spec_hash: Option<Content>,
    /// Whether `schedule_name` was set.
    pub is_named: bool,
    /// Whether a verify pass is to be done.
    pub is_verify_due: bool,
    /// Whether the verify pass has read the schedule.
    pub is_read: bool,
    /// Whether a request may still arrive although a later one was answered.
    pub is_in_doubt: bool,
    /// Whether a refused create was followed by an update, or the reverse.
    pub is_second_call: bool,
}

/// What the publisher wants to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The content of the workflow's row when it was read.
    pub content: Content,
    /// The revision of that row.
    pub revision: u8,
}

/// A request to EventBridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// `GetSchedule` of a verify pass.
    Get,
    /// `CreateSchedule`.
    Create,
    /// `UpdateSchedule`.
    Update,
    /// `DeleteSchedule`.
    Delete,
}

/// An answer of EventBridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// What the schedule contains.
    Read(Content),
    /// The request was executed.
    Done,
    /// A create of a schedule that exists.
    Conflict,
    /// An update of a schedule that does not exist.
    NotFound,
    /// Refused for a reason that passes: throttled, or the signature has expired.
    Refused,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// EventBridge has what was wanted.
    Applied,
    /// To be tried again.
    Retry,
    /// The lease had ended before a request was signed.
    NotCalled,
}

/// What a publisher does.
#[expect(missing_docs, reason = "the fields of a variant have the names of what they are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It has no claim.
    Idle,
    /// It has claimed, and not read.
    Claimed(Claim),
    /// It is about to sign a request; `is_repeated` if the connection of the first one broke.
    Ready { claim: Claim, wanted: Wanted, request: Request, is_repeated: bool },
    /// Its request is on the way, signed `age` steps of eight minutes ago, or executed and answered.
    Waiting { claim: Claim, wanted: Wanted, request: Request, is_repeated: bool, age: u8, answer: Option<Answer> },
    /// It is about to settle.
    Done { claim: Claim, wanted: Wanted, outcome: Outcome },
}

/// A request whose publisher does not wait for an answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Late {
    /// The workflow.
    pub workflow: usize,
    /// The request.
    pub request: Request,
    /// What it writes.
    pub content: Content,
    /// How many steps of eight minutes ago it was signed.
    pub age: u8,
}

/// One step.
#[expect(missing_docs, reason = "the fields of a variant have the names of what they are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `workflows::save_workflow`: the row, the publication and the outbox row commit together.
    SaveWorkflow { workflow: usize, content: Content },
    /// `publisher::claim::claim_due_workflows`.
    ClaimDue { publisher: usize, workflow: usize },
    /// `publisher::claim::workflows::read_workflows`.
    ReadWorkflow { publisher: usize },
    /// `SignWithinLease` of `publisher::scheduler::lease`: the request is signed, or not if the lease has ended.
    SignRequest { publisher: usize },
    /// EventBridge executes the request of a publisher that waits.
    ExecuteRequest { publisher: usize },
    /// EventBridge refuses it without an effect.
    RefuseRequest { publisher: usize },
    /// The publisher gets the answer: `publisher::converge`.
    ReceiveAnswer { publisher: usize },
    /// The publisher waits no longer: the request may arrive later, or has been executed.
    MissAnswer { publisher: usize },
    /// The same, and the publisher repeats the request at once: `Convergence::make`.
    RepeatRequest { publisher: usize },
    /// `publisher::settle::settle_claims`.
    SettleClaim { publisher: usize },
    /// A late request is executed.
    ExecuteLate { nth: usize },
    /// The process is killed; its request may still arrive.
    KillPublisher { publisher: usize },
    /// A minute passes.
    EndLeases,
    /// Eight minutes pass.
    PassSignature,
}

impl<const W: usize> Publishing<W> {
    pub(super) fn lacks(&self, remedy: Remedy) -> bool {
        self.without == Some(remedy)
    }
}

impl Stage {
    /// The claim of the publisher; `None` if it has none.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Idle => None,
            Self::Claimed(claim)
            | Self::Ready { claim, .. }
            | Self::Waiting { claim, .. }
            | Self::Done { claim, .. } => Some(claim),
        }
    }

    pub(super) fn claim_mut(&mut self) -> Option<&mut Claim> {
        match self {
            Self::Idle => None,
            Self::Claimed(claim)
            | Self::Ready { claim, .. }
            | Self::Waiting { claim, .. }
            | Self::Done { claim, .. } => Some(claim),
        }
    }

    /// Its request, if EventBridge may still execute it.
    pub(super) fn open_request(&self) -> Option<Late> {
        match *self {
            Self::Waiting { claim, wanted, request, age, answer: None, .. } if age <= SIGNATURE => {
                Some(Late { workflow: claim.workflow, request, content: wanted.content, age })
            }
            _ => None,
        }
    }
}
