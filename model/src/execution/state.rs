//! The rows, the instances, and the steps of the model.

/// How many due times there are.
pub const FIRES: usize = 3;
/// How many instances there are.
pub const INSTANCES: usize = 2;

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    /// How often each time is fired.
    pub deliveries: u8,
    /// How many faults there are: kills, lost replies, attempts that stop, leases that end too early, shutdowns.
    pub faults: u8,
    /// How often a lost run continues.
    pub recoveries: u8,
    /// Whether the decision of a fire may start its run.
    pub has_starts: bool,
    /// The remedy that is taken away.
    pub without: Option<Remedy>,
}

/// A remedy of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A fire is decided under the workflow's lock.
    WorkflowLock,
    /// The same, and the constraint that a time has one decision and an occurrence one automatic run.
    UniqueDecision,
    /// An attempt ends its run only while the run has this attempt and this owner.
    AttemptFence,
    /// The same, and only while the run is `running`.
    RunningState,
    /// A renewal names run and attempt.
    RenewalByAttempt,
    /// Runs that the instance claimed but does not know are handed over.
    HandOverOfUnknown,
    /// Both of these.
    RenewalAndHandOver,
    /// Only a run whose lease has ended is recovered.
    LeaseEnd,
    /// The fire that waits is replaced by a newer one only, and its run is cancelled.
    WaitingPlace,
    /// Unknown runs are handed over only while no fire has a slot without an attempt.
    WaitForStarts,
}

/// A state of the database and of the instances.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The rows of `occurrences`, by due time.
    pub occurrences: [Occurrence; FIRES],
    /// The rows of `runs`, in the order of their creation.
    pub runs: Vec<Run>,
    /// How often each time will still be fired.
    pub deliveries: [u8; FIRES],
    /// Whether the grace of all times is over.
    pub is_grace_over: bool,
    /// What each instance knows.
    pub instances: [Instance; INSTANCES],
    /// How many faults may still happen.
    pub faults: u8,
}

/// The decision about a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Occurrence {
    /// Its decision; `None` = there is no row.
    pub decision: Option<Decision>,
    /// How many rows there are; one, if it is UNIQUE.
    pub rows: u8,
    /// `run_id`, as an index of the runs.
    pub run: Option<usize>,
}

/// `occurrences.decision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It ran.
    Fired,
    /// The previous run had not ended.
    SkippedOverlap,
    /// No fire arrived in time.
    Missed,
    /// Its run was abandoned.
    Abandoned,
}

/// `runs.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// It waits for a slot.
    Queued,
    /// It waits for an executor.
    Accepted,
    /// An attempt executes it.
    Running,
    /// It has ended.
    Succeeded,
    /// A newer fire has replaced it.
    Cancelled,
    /// Its instances were lost too often.
    Abandoned,
}

/// A row of `runs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Its due time.
    pub fire: usize,
    /// Its state.
    pub state: RunState,
    /// How often it was claimed.
    pub attempt: u8,
    /// `locked_by`.
    pub owner: Owner,
    /// `lease_until`.
    pub lease: Lease,
    /// How often it continued after its instance was lost.
    pub recoveries: u8,
    /// How often an instance handed it over.
    pub handed_over: u8,
    /// How often it was handed over after its request may have been sent.
    pub cut_off: u8,
    /// How often an attempt has ended it.
    pub ends: u8,
    /// Which attempt has ended it, 0 = none.
    pub ended_by: u8,
    /// Whether an attempt that had lost it left a late result.
    pub has_late_result: bool,
}

/// `runs.locked_by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// NULL.
    None,
    /// An instance that lives.
    Instance(usize),
    /// An instance that was killed.
    Killed,
    /// The instance released it, because its attempt stopped.
    Released,
}

/// The lease of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// There is none.
    None,
    /// It has not ended.
    Live,
    /// It has ended.
    Ended,
}

/// One attempt of one run: `executor::claim::Fence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The run, as an index.
    pub run: usize,
    /// The attempt.
    pub attempt: u8,
}

/// What an instance knows: `executor::attempts_in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The attempts in progress, in order.
    pub under_way: Vec<Fence>,
    /// The attempts that stopped, and are not released in the database yet, in order.
    pub stopped: Vec<Fence>,
    /// The attempts of runs that its decisions have started, and that it has not taken over yet, in order.
    pub starting: Vec<Fence>,
    /// Whether a claim or a start whose reply was lost may have been committed.
    pub has_unknown_claims: bool,
    /// Without the lock only: a fire that it has read and not decided.
    pub reading: Option<(usize, Verdict)>,
}

/// The outcome of a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The time was decided before.
    Decided,
    /// Its run starts.
    Start,
    /// Its run waits.
    Wait,
    /// The previous run has not ended.
    Skip,
    /// It is too late.
    Miss,
}

/// One step.
#[expect(missing_docs, reason = "the fields of a variant have the names of what they are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `ledger::invoke::FireDecider::decide_fire`.
    DecideFire { fire: usize },
    /// The same, and it takes a slot of the instance: `ledger::invoke::record::record_fires` with a lease.
    DecideAndStart { instance: usize, fire: usize },
    /// The same, and its reply is lost after the commit.
    LoseStartReply { instance: usize, fire: usize },
    /// `executor::claim::read_started_runs`, and the attempt begins.
    TakeOver { instance: usize, fence: Fence },
    /// Its reply is lost, or the instance shuts down before the attempt begins.
    LoseTakeOver { instance: usize, fence: Fence },
    /// Without the lock only: the first half of it.
    ReadFire { instance: usize, fire: usize },
    /// Without the lock only: the second half.
    WriteFire { instance: usize },
    /// The grace of all times passes.
    EndGrace,
    /// `ledger::watchdog::decide_overdue_times`.
    DecideOverdueTimes,
    /// `executor::claim::claim_due_runs`.
    ClaimDueRuns { instance: usize, run: usize },
    /// The same, and its reply is lost after the commit.
    LoseClaimReply { instance: usize, run: usize },
    /// `executor::claim::find_unknown` and `executor::claim::hand_over_unknown`.
    HandOverUnknown { instance: usize },
    /// `executor::claim::renew_leases`.
    RenewLeases { instance: usize },
    /// An attempt stops without an outcome: a panic, or a lease that was not renewed for two thirds of its length.
    StopAttempt { instance: usize, fence: Fence },
    /// `executor::claim::release_attempts`.
    ReleaseAttempts { instance: usize },
    /// `executor::claim::finish_run`.
    FinishRun { instance: usize, fence: Fence },
    /// The same, and its reply is lost after the commit, so the instance repeats it.
    LoseFinishReply { instance: usize, fence: Fence },
    /// `executor::hand_over::hand_over`, at a shutdown; `is_sent` if the request may have been sent.
    HandOver { instance: usize, fence: Fence, is_sent: bool },
    /// A lease ends.
    EndLease { run: usize },
    /// The process is killed; another one takes its place.
    KillInstance { instance: usize },
    /// `executor::recovery::recover_lost_runs`, without the queue that it advances.
    RecoverLostRuns,
    /// `ledger::admission::queue::advance_workflow`.
    AdvanceWorkflow,
}

impl Execution {
    pub(super) fn lacks(&self, remedy: Remedy) -> bool {
        self.without == Some(remedy)
    }

    /// Whether a heartbeat renews all leases of its instance.
    pub(super) fn renews_by_instance(&self) -> bool {
        self.lacks(Remedy::RenewalByAttempt) || self.lacks(Remedy::RenewalAndHandOver)
    }

    /// Whether an instance hands over the runs that it does not know.
    pub(super) fn hands_unknown_over(&self) -> bool {
        !self.lacks(Remedy::HandOverOfUnknown) && !self.lacks(Remedy::RenewalAndHandOver)
    }

    /// Whether the transaction of a fire is two actions.
    pub(super) fn lacks_lock(&self) -> bool {
        self.lacks(Remedy::WorkflowLock) || self.lacks(Remedy::UniqueDecision)
    }
}
