//! Step 7 of 7: the free slots of this instance's executor, which the fires that it decides may take.
//!
//! A fire that takes a slot needs no claim: the statement that decides it inserts its run as `running`, with a lease of
//! this instance, and the executor starts the run after the commit. The executor counts its own runs here, too, so both
//! together keep to the slots of the instance and to the share of each team.
//!
//! A run uses memory beside its slot, and both are shared by the same rules: a team that uses a third of the memory
//! counts as if it used a third of the slots, if its runs use fewer.
//!
//! While a fire has a slot, it is not known whether its run was committed. A slot that is given back without a run says
//! so: then the executor hands over the runs of the instance that it does not know, as after a claim without a reply.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use schedule::Moment;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc};
use uuid::Uuid;

/// How many runs of fires may have a slot and no attempt yet.
const STARTING_AT_MOST: usize = 128;

/// The memory for a run whose size is not known yet. Most take a thousandth of it; 256 KiB of small numbers take 4 MiB.
const UNKNOWN_RUN: usize = 2 << 20;

/// The slots of one instance; clones are the same slots.
#[derive(Clone, Default)]
pub struct OfferedSlots(Arc<Shared>);

/// What the executor of an instance has for its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// How many runs it executes at once.
    pub slots: usize,
    /// How many of them may be runs of one team. They use the same part of the memory at most.
    pub slots_of_a_team: usize,
    /// How much memory the actions and inputs of these runs may take. The last claim and the last fires may exceed it, if
    /// their runs take more than 2 MiB each.
    pub bytes: usize,
}

impl Capacity {
    /// Memory as slots: as large a part of the slots as it is of the memory.
    fn as_slots(self, bytes: usize) -> usize {
        bytes.saturating_mul(self.slots) / self.bytes.max(1)
    }

    /// How much memory the runs of one team may take.
    fn bytes_of_a_team(self) -> usize {
        self.bytes.saturating_mul(self.slots_of_a_team) / self.slots.max(1)
    }
}

#[derive(Default)]
struct Shared {
    book: Mutex<Book>,
    /// Locked for reading while fires have slots.
    starts: Arc<RwLock<()>>,
}

/// What a claim may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// How many slots are free.
    pub free: usize,
    /// How many runs it takes at most.
    pub most: usize,
    /// How many slots each team uses.
    pub used: Vec<(i64, usize)>,
}

/// How an executor offers its slots.
#[derive(Clone, Copy, Debug)]
pub struct SlotOffer {
    /// The owner of the leases.
    pub instance: Uuid,
    /// How many seconds a lease lasts from the decision, by the database's clock.
    pub lease_secs: f64,
}

/// What the runs of a team use.
#[derive(Clone, Copy, Debug, Default)]
struct TeamUse {
    slots: usize,
    bytes: usize,
}

#[derive(Default)]
struct Book {
    capacity: Capacity,
    /// `None` = fires take no slot, and their runs are accepted.
    offer: Option<SlotOffer>,
    /// The executor, which starts the runs.
    executor: Option<mpsc::UnboundedSender<StartedRuns>>,
    /// What each team uses.
    used: HashMap<i64, TeamUse>,
    /// How many slots all teams use.
    all: usize,
    /// How much memory all teams use. No team counts with more than its share: the size of a run is known after its claim,
    /// and what a team uses beyond its share must not stop the others.
    bytes: usize,
    /// How many slots fires have taken whose attempts have not begun.
    starting: usize,
    /// How many slots a claim in progress may fill, of whichever team.
    claiming: usize,
    /// Teams that had no room at the last claim: their runs may wait for a claim, and come before a new fire.
    full_teams: HashSet<i64>,
    /// Whether all teams may have waiting runs, because few slots were free at the last claim.
    was_scarce: bool,
    /// Whether a run may be committed that no executor knows.
    has_unknown: bool,
    /// Whether the executor shuts down.
    is_withdrawn: bool,
}

/// The slots that the fires of one batch have taken. Dropping it frees those that were not passed on with a run.
pub struct TakenSlots {
    offered: OfferedSlots,
    offer: SlotOffer,
    /// The team of each slot.
    teams: Vec<i64>,
    /// Until it is dropped, the executor hands over no unknown run.
    _starts: OwnedRwLockReadGuard<()>,
}

/// A run that was decided and started by one statement.
#[derive(Clone, Debug)]
pub struct StartedRun {
    /// The run; its attempt is the first.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The time of its fire.
    pub scheduled_time: DateTime<Utc>,
    /// As the run's.
    pub traceparent: Option<String>,
}

/// The started runs of one batch, which are committed.
pub struct StartedRuns {
    /// The runs.
    pub runs: Vec<StartedRun>,
    /// Their leases began no earlier than this.
    pub requested: Moment,
    /// Their slots.
    pub slots: TakenSlots,
}

impl OfferedSlots {
    /// The slots of an executor that uses none yet.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        let book = Mutex::new(Book { capacity, ..Book::default() });
        Self(Arc::new(Shared { book, ..Shared::default() }))
    }

    /// The executor that starts the runs receives them here, until it withdraws its slots.
    #[must_use]
    pub fn receive_starts(&self) -> mpsc::UnboundedReceiver<StartedRuns> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut book = self.book();
        book.executor = Some(sender);
        book.is_withdrawn = false;
        receiver
    }

    /// Whether a further run may start: a slot is free, and the documents of the others are within their limit.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let book = self.book();
        book.count_all() < book.capacity.slots
    }

    /// Returns what a claim of `most` runs may take. Until [`Self::end_claim`], it may fill so many slots, of whichever
    /// team.
    #[must_use]
    pub fn begin_claim(&self, most: usize) -> Claimable {
        let mut book = self.book();
        let free = book.capacity.slots.saturating_sub(book.count_all());
        let most = most.min(book.count_startable());
        book.claiming = free.min(most);
        let used = book.used.iter().map(|(team, used)| (*team, book.count(*used))).collect();
        Claimable { free, most, used }
    }

    /// Ends a claim, and offers the slots to fires; `None` offers none. Returns whether the claim may have left runs that
    /// wait for a slot.
    pub fn end_claim(&self, offer: Option<SlotOffer>) -> bool {
        let mut book = self.book();
        let Capacity { slots, slots_of_a_team, .. } = book.capacity;
        book.claiming = 0;
        book.offer = offer.filter(|_| !book.is_withdrawn);
        book.was_scarce = book.count_all() + kept_back(slots) >= slots;
        let is_full = |used: &TeamUse| book.count(*used) >= slots_of_a_team;
        let full = book.used.iter().filter(|(_, used)| is_full(used)).map(|(team, _)| *team).collect();
        book.full_teams = full;
        offer.is_none() || book.was_scarce || !book.full_teams.is_empty()
    }

    /// Offers no slot until the end of the next claim. A fire that has taken one keeps it.
    pub fn close(&self) {
        self.book().offer = None;
    }

    /// Offers no slot any more, because the executor shuts down.
    pub fn withdraw(&self) {
        let mut book = self.book();
        book.offer = None;
        book.is_withdrawn = true;
    }

    /// Counts what a claimed run uses.
    pub fn use_slot(&self, team_id: i64, bytes: usize) {
        let mut book = self.book();
        book.use_slot(team_id);
        book.use_bytes(team_id, bytes);
    }

    /// Counts the begin of an attempt whose slot a fire has taken, and the memory of its run.
    pub fn begin_attempt(&self, team_id: i64, bytes: usize) {
        let mut book = self.book();
        book.starting = book.starting.saturating_sub(1);
        book.use_bytes(team_id, bytes);
    }

    /// Frees a slot, and the memory of its run.
    pub fn free_slot(&self, team_id: i64, bytes: usize) {
        self.book().free_slot(team_id, bytes);
    }

    /// How many slots are used.
    #[must_use]
    pub fn count_used(&self) -> usize {
        self.book().all
    }

    /// Waits until no fire has a slot; while the result exists, none takes one.
    pub async fn stop_starts(&self) -> OwnedRwLockWriteGuard<()> {
        self.0.starts.clone().write_owned().await
    }

    /// Whether a run may be committed that no executor knows.
    #[must_use]
    pub fn has_unknown_runs(&self) -> bool {
        self.book().has_unknown
    }

    /// Forgets that, because the executor has handed over what it does not know. No fire may have a slot meanwhile.
    pub fn forget_unknown_runs(&self, _stopped: &OwnedRwLockWriteGuard<()>) {
        self.book().has_unknown = false;
    }

    /// Begins to take slots for a batch; `None` if none is offered.
    pub(crate) fn begin_start(&self) -> Option<TakenSlots> {
        let offer = self.book().offer?;
        let starts = self.0.starts.clone().try_read_owned().ok()?;
        Some(TakenSlots { offered: self.clone(), offer, teams: Vec::new(), _starts: starts })
    }

    /// Passes committed runs to the executor. If it has ended, their leases expire.
    pub(crate) fn pass_started(&self, started: StartedRuns) {
        let executor = self.book().executor.clone();
        // Runs that nothing receives are dropped with their slots, and so become unknown runs.
        if let Some(executor) = executor {
            drop(executor.send(started));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last fifth of the slots is only for claims, which know which teams wait, and give it to those that use least.
fn kept_back(slots: usize) -> usize {
    (slots / 5).max(1)
}

impl Book {
    /// Takes a slot for a fire, unless a claim may need it.
    fn take_slot(&mut self, team_id: i64) -> Taken {
        let Capacity { slots, slots_of_a_team, .. } = self.capacity;
        let used = self.count(self.used.get(&team_id).copied().unwrap_or_default());
        let is_offered = self.offer.is_some() && !self.was_scarce;
        let has_room = self.count_all() + self.claiming + kept_back(slots) < slots
            && self.starting < STARTING_AT_MOST.min(self.count_startable());
        let is_full = used + self.claiming >= slots_of_a_team || self.full_teams.contains(&team_id);
        if !is_offered || !has_room || is_full {
            return Taken::Not;
        }
        self.use_slot(team_id);
        self.starting += 1;
        Taken::Slot
    }

    /// What a team uses, in slots: of its slots and its memory what is more.
    fn count(&self, used: TeamUse) -> usize {
        used.slots.max(self.capacity.as_slots(used.bytes))
    }

    /// The same for all teams.
    fn count_all(&self) -> usize {
        self.all.max(self.capacity.as_slots(self.bytes))
    }

    /// How many runs of unknown size fit into the free memory: at least one, because each team counts with its share only.
    fn count_startable(&self) -> usize {
        (self.capacity.bytes.saturating_sub(self.bytes) / UNKNOWN_RUN).max(1)
    }

    fn use_slot(&mut self, team_id: i64) {
        self.used.entry(team_id).or_default().slots += 1;
        self.all += 1;
    }

    /// Counts the memory of a run that has a slot.
    fn use_bytes(&mut self, team_id: i64, bytes: usize) {
        let share = self.capacity.bytes_of_a_team();
        let Some(used) = self.used.get_mut(&team_id) else { return };
        let before = used.bytes;
        used.bytes += bytes;
        self.bytes += used.bytes.min(share) - before.min(share);
    }

    fn free_slot(&mut self, team_id: i64, bytes: usize) {
        let share = self.capacity.bytes_of_a_team();
        let Some(used) = self.used.get_mut(&team_id) else { return };
        let before = used.bytes;
        used.bytes = before.saturating_sub(bytes);
        self.bytes -= before.min(share) - used.bytes.min(share);
        used.slots -= 1;
        if used.slots == 0 {
            self.used.remove(&team_id);
        }
        self.all -= 1;
    }
}

/// Whether a fire got a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It did.
    Slot,
    /// Its run is accepted, and waits for a claim.
    Not,
}

impl TakenSlots {
    /// The leases of the runs that use these slots: their owner, and how many seconds they last.
    pub(crate) fn lease(&self) -> (Uuid, f64) {
        (self.offer.instance, self.offer.lease_secs)
    }

    /// Takes a slot for the run of a fire.
    pub(crate) fn take_slot(&mut self, team_id: i64) -> Taken {
        let taken = self.offered.book().take_slot(team_id);
        if taken == Taken::Slot {
            self.teams.push(team_id);
        }
        taken
    }

    /// Passes the slot of a run on to its attempt, which frees it.
    pub fn pass_slot(&mut self, team_id: i64) {
        if let Some(nth) = self.teams.iter().position(|team| *team == team_id) {
            self.teams.swap_remove(nth);
        }
    }

    /// Whether some slots have no attempt yet.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        !self.teams.is_empty()
    }
}

impl Drop for TakenSlots {
    fn drop(&mut self) {
        let mut book = self.offered.book();
        // Before the lock of `starts` is released.
        book.has_unknown |= !self.teams.is_empty();
        book.starting = book.starting.saturating_sub(self.teams.len());
        for team in &self.teams {
            book.free_slot(*team, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: SlotOffer = SlotOffer { instance: Uuid::nil(), lease_secs: 60.0 };

    const MEBIBYTE: usize = 1 << 20;

    /// Slots that are offered, with 256 MiB of memory.
    fn offer(slots: usize, slots_of_a_team: usize) -> OfferedSlots {
        let offered = OfferedSlots::new(Capacity { slots, slots_of_a_team, bytes: 256 * MEBIBYTE });
        offered.end_claim(Some(OFFER));
        offered
    }

    fn take(taken: &mut TakenSlots, team: i64, times: usize) -> usize {
        (0..times).filter(|_| taken.take_slot(team) == Taken::Slot).count()
    }

    /// Two teams have more fires than slots: each gets its share at most, and the last fifth stays free.
    #[test]
    fn fires_take_no_more_than_their_share() {
        let offered = offer(20, 10);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!((take(&mut taken, 1, 30), take(&mut taken, 2, 30)), (10, 6));
        assert_eq!(offered.count_used(), 16);
    }

    /// The executor waits for the database, and more fires come than it may have documents of.
    #[test]
    fn fires_wait_for_attempts_to_begin() {
        let offered = offer(1_000, 750);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 300), STARTING_AT_MOST);
        taken.pass_slot(1);
        assert_eq!(take(&mut taken, 1, 300), 0, "it has been passed on, and has not begun");
        offered.begin_attempt(1, 0);
        assert_eq!(take(&mut taken, 1, 300), 1);
        drop(taken);
        assert_eq!(take(&mut offered.begin_start().unwrap(), 1, 300), STARTING_AT_MOST, "and all are free again");
    }

    /// A claim in progress may fill slots of any team, and a fire takes none of these.
    #[test]
    fn fires_leave_slots_to_a_claim() {
        let offered = offer(20, 10);
        assert_eq!(offered.begin_claim(8), Claimable { free: 20, most: 8, used: Vec::new() });
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 30), 2, "the claim may fill eight of this team's ten");
        assert!(!offered.end_claim(Some(OFFER)), "no team and no slot is missing");
        assert_eq!(take(&mut taken, 1, 30), 8);
    }

    /// A team had no room at the last claim, so its runs may wait: a fire does not pass them.
    #[test]
    fn fires_wait_behind_waiting_runs() {
        let offered = offer(20, 3);
        for team in [1, 1, 1, 2] {
            offered.use_slot(team, 0);
        }
        assert!(offered.end_claim(Some(OFFER)), "runs may be left");
        offered.free_slot(1, 0);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!((take(&mut taken, 1, 1), take(&mut taken, 2, 1)), (0, 1));
        assert!(!offered.end_claim(Some(OFFER)), "the next claim found room for all");
        assert_eq!(take(&mut taken, 1, 1), 1);
    }

    /// The runs of one team take more memory than its share: claims and fires of the others have the rest.
    #[test]
    fn memory_is_shared_like_slots() {
        let offered = offer(100, 75);
        for _ in 0..3 {
            offered.use_slot(1, 75 * MEBIBYTE);
        }
        offered.use_slot(2, 16 * MEBIBYTE);
        assert!(offered.has_room());
        let mut claimable = offered.begin_claim(64);
        claimable.used.sort_unstable();
        let used = vec![(1, 87), (2, 6)];
        assert_eq!(claimable, Claimable { free: 19, most: 24, used }, "75 and 6 of 100 are used, by four runs");
        assert!(offered.end_claim(Some(OFFER)), "runs of the first team may be left");

        offered.free_slot(1, 75 * MEBIBYTE);
        assert_eq!(offered.begin_claim(64).free, 36, "150 and 16 of 256 MiB are used");
        assert!(!offered.end_claim(Some(OFFER)));
        let mut taken = offered.begin_start().unwrap();
        assert_eq!((take(&mut taken, 1, 1), take(&mut taken, 2, 1)), (1, 1));
        taken.pass_slot(1);
        taken.pass_slot(2);
        offered.begin_attempt(1, 50 * MEBIBYTE);
        offered.begin_attempt(2, 0);
        assert_eq!((take(&mut taken, 1, 1), take(&mut taken, 2, 1)), (0, 0), "the last fifth is only for claims");

        for bytes in [75, 75, 50] {
            offered.free_slot(1, bytes * MEBIBYTE);
        }
        for bytes in [16, 0] {
            offered.free_slot(2, bytes * MEBIBYTE);
        }
        assert_eq!(offered.begin_claim(64), Claimable { free: 100, most: 64, used: Vec::new() }, "nothing is left");
    }

    /// No team fills the memory, however large the runs are that it has started at once.
    #[test]
    fn one_team_leaves_memory_to_others() {
        let offered = offer(100, 75);
        for _ in 0..64 {
            offered.use_slot(1, 8 * MEBIBYTE);
        }
        assert!(offered.has_room());
        assert_eq!(offered.begin_claim(64).free, 25, "a quarter");
        offered.use_slot(2, 64 * MEBIBYTE);
        assert!(!offered.has_room(), "two teams can");
        for _ in 0..64 {
            offered.free_slot(1, 8 * MEBIBYTE);
        }
        assert_eq!(offered.begin_claim(64), Claimable { free: 75, most: 64, used: vec![(2, 25)] });
    }

    /// The size of a run is known when its attempt begins, so few may begin at once when little memory is left.
    #[test]
    fn runs_of_unknown_size_fit_into_the_memory() {
        let offered = offer(1_000, 750);
        for team in 1..=4 {
            offered.use_slot(team, 45 * MEBIBYTE);
        }
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 5, 300), 38, "76 MiB are left");
        assert_eq!(offered.begin_claim(64).most, 38);
    }

    /// A claim ends while the instance shuts down.
    #[test]
    fn withdrawn_slots_are_never_offered_again() {
        let offered = offer(20, 10);
        offered.withdraw();
        offered.end_claim(Some(OFFER));
        assert!(offered.begin_start().is_none());
    }

    #[test]
    fn few_slots_are_only_for_claims() {
        let offered = offer(1, 1);
        assert_eq!(take(&mut offered.begin_start().unwrap(), 1, 1), 0);
        assert!(OfferedSlots::default().begin_start().is_none(), "no executor has offered any");
    }

    /// The commit of a batch has no answer: its slots are free again, and its runs unknown.
    #[tokio::test]
    async fn slots_without_attempts_leave_unknown_runs() {
        let offered = offer(20, 10);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 3), 3);
        taken.pass_slot(1);
        let mut stopped = Box::pin(offered.stop_starts());
        assert!(poll_once(&mut stopped).is_none(), "a fire has slots");
        assert!(offered.begin_start().is_none(), "and no other takes one, because the executor waits");
        drop(taken);
        let stopped = stopped.await;
        assert_eq!((offered.count_used(), offered.has_unknown_runs()), (1, true));
        offered.forget_unknown_runs(&stopped);
        drop(stopped);
        assert!(!offered.has_unknown_runs());
        offered.free_slot(1, 0);
        assert_eq!(offered.begin_claim(8), Claimable { free: 20, most: 8, used: Vec::new() });
    }

    /// The result of a future that need not wait.
    fn poll_once<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(result) => Some(result),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn fires_with_attempts_leave_nothing_unknown() {
        let offered = offer(20, 10);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 1), 1);
        taken.pass_slot(1);
        drop(taken);
        assert_eq!((offered.count_used(), offered.has_unknown_runs()), (1, false));
    }
}
