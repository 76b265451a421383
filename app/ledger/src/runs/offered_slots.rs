//! Step 7 of 7: the free slots of this instance's executor, which the fires that it decides may take.
//!
//! A fire that takes a slot needs no claim: the statement that decides it inserts its run as `running`, with a lease of
//! this instance, and the executor starts the run after the commit. The executor counts its own runs here, too, so both
//! together keep to the slots of the instance and to the share of each team.
//!
//! While a fire has a slot, it is not known whether its run was committed. A slot that is given back without a run says
//! so: then the executor hands over the runs of the instance that it does not know, as after a claim without a reply.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use chrono::{DateTime, Utc};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc};
use uuid::Uuid;

/// How many runs of fires may have a slot and no attempt yet: by so many their documents may exceed the memory for runs.
const STARTING_AT_MOST: usize = 128;

/// The slots of one instance; clones are the same slots.
#[derive(Clone, Default)]
pub struct OfferedSlots(Arc<Shared>);

#[derive(Default)]
struct Shared {
    book: Mutex<Book>,
    /// Locked for reading while fires have slots.
    starts: Arc<RwLock<()>>,
}

/// How an executor offers its slots.
#[derive(Clone, Copy, Debug)]
pub struct SlotOffer {
    /// How many slots it has.
    pub slots: usize,
    /// How many of them the runs of one team may use.
    pub of_a_team: usize,
    /// The owner of the leases.
    pub instance: Uuid,
    /// How many seconds a lease lasts from the decision, by the database's clock.
    pub lease_secs: f64,
}

#[derive(Default)]
struct Book {
    /// `None` = fires take no slot, and their runs are accepted.
    offer: Option<SlotOffer>,
    /// The executor, which starts the runs.
    executor: Option<mpsc::UnboundedSender<StartedRuns>>,
    /// How many slots each team uses.
    used: HashMap<i64, usize>,
    /// How many slots all teams use.
    all: usize,
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
    pub requested: Instant,
    /// Their slots.
    pub slots: TakenSlots,
}

impl OfferedSlots {
    /// The executor that starts the runs receives them here, until it withdraws its slots.
    #[must_use]
    pub fn receive_starts(&self) -> mpsc::UnboundedReceiver<StartedRuns> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut book = self.book();
        book.executor = Some(sender);
        book.is_withdrawn = false;
        receiver
    }

    /// Returns how many of `slots` are free, and how many each team uses. Until [`Self::end_claim`], a claim may fill
    /// `most` of them, of whichever team.
    #[must_use]
    pub fn begin_claim(&self, slots: usize, most: usize) -> (usize, Vec<(i64, usize)>) {
        let mut book = self.book();
        let free = slots.saturating_sub(book.all);
        book.claiming = free.min(most);
        (free, book.used.iter().map(|(team, used)| (*team, *used)).collect())
    }

    /// Ends a claim, and offers the slots to fires; `None` offers none. Returns whether the claim may have left runs that
    /// wait for a slot.
    pub fn end_claim(&self, slots: usize, of_a_team: usize, offer: Option<SlotOffer>) -> bool {
        let mut book = self.book();
        book.claiming = 0;
        book.offer = offer.filter(|_| !book.is_withdrawn);
        book.was_scarce = book.all + kept_back(slots) >= slots;
        let full = book.used.iter().filter(|(_, used)| **used >= of_a_team).map(|(team, _)| *team).collect();
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

    /// Counts a slot that a claimed run uses.
    pub fn use_slot(&self, team_id: i64) {
        self.book().use_slot(team_id);
    }

    /// Counts the begin of an attempt whose slot a fire has taken.
    pub fn begin_attempt(&self) {
        let mut book = self.book();
        book.starting = book.starting.saturating_sub(1);
    }

    /// Frees a slot.
    pub fn free_slot(&self, team_id: i64) {
        self.book().free_slot(team_id);
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
        let Some(offer) = self.offer else { return Taken::Not };
        let used = self.used.get(&team_id).copied().unwrap_or_default();
        let has_room =
            self.all + self.claiming + kept_back(offer.slots) < offer.slots && self.starting < STARTING_AT_MOST;
        if !has_room || self.was_scarce || used + self.claiming >= offer.of_a_team || self.full_teams.contains(&team_id)
        {
            return Taken::Not;
        }
        self.use_slot(team_id);
        self.starting += 1;
        Taken::Slot
    }

    fn use_slot(&mut self, team_id: i64) {
        *self.used.entry(team_id).or_default() += 1;
        self.all += 1;
    }

    fn free_slot(&mut self, team_id: i64) {
        let Some(used) = self.used.get_mut(&team_id) else { return };
        *used -= 1;
        if *used == 0 {
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
            book.free_slot(*team);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(slots: usize, of_a_team: usize) -> (OfferedSlots, SlotOffer) {
        let offered = OfferedSlots::default();
        let offer = SlotOffer { slots, of_a_team, instance: Uuid::nil(), lease_secs: 60.0 };
        offered.end_claim(slots, of_a_team, Some(offer));
        (offered, offer)
    }

    fn take(taken: &mut TakenSlots, team: i64, times: usize) -> usize {
        (0..times).filter(|_| taken.take_slot(team) == Taken::Slot).count()
    }

    /// Two teams have more fires than slots: each gets its share at most, and the last fifth stays free.
    #[test]
    fn fires_take_no_more_than_their_share() {
        let (offered, _) = offer(20, 10);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!((take(&mut taken, 1, 30), take(&mut taken, 2, 30)), (10, 6));
        assert_eq!(offered.count_used(), 16);
    }

    /// The executor waits for the database, and more fires come than it may have documents of.
    #[test]
    fn fires_wait_for_attempts_to_begin() {
        let (offered, _) = offer(1_000, 750);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 300), STARTING_AT_MOST);
        taken.pass_slot(1);
        assert_eq!(take(&mut taken, 1, 300), 0, "it has been passed on, and has not begun");
        offered.begin_attempt();
        assert_eq!(take(&mut taken, 1, 300), 1);
        drop(taken);
        assert_eq!(take(&mut offered.begin_start().unwrap(), 1, 300), STARTING_AT_MOST, "and all are free again");
    }

    /// A claim in progress may fill slots of any team, and a fire takes none of these.
    #[test]
    fn fires_leave_slots_to_a_claim() {
        let (offered, offer) = offer(20, 10);
        assert_eq!(offered.begin_claim(20, 8), (20, Vec::new()));
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 30), 2, "the claim may fill eight of this team's ten");
        assert!(!offered.end_claim(20, 10, Some(offer)), "no team and no slot is missing");
        assert_eq!(take(&mut taken, 1, 30), 8);
    }

    /// A team had no room at the last claim, so its runs may wait: a fire does not pass them.
    #[test]
    fn fires_wait_behind_waiting_runs() {
        let (offered, offer) = offer(20, 2);
        for team in [1, 1, 2] {
            offered.use_slot(team);
        }
        assert!(offered.end_claim(20, 2, Some(offer)), "runs may be left");
        offered.free_slot(1);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!((take(&mut taken, 1, 1), take(&mut taken, 2, 1)), (0, 1));
        assert!(!offered.end_claim(20, 3, Some(offer)), "the next claim found room for all");
        assert_eq!(take(&mut taken, 1, 1), 1);
    }

    /// A claim ends while the instance shuts down.
    #[test]
    fn withdrawn_slots_are_never_offered_again() {
        let (offered, offer) = offer(20, 10);
        offered.withdraw();
        offered.end_claim(20, 10, Some(offer));
        assert!(offered.begin_start().is_none());
    }

    #[test]
    fn few_slots_are_only_for_claims() {
        let (offered, _) = offer(1, 1);
        assert_eq!(take(&mut offered.begin_start().unwrap(), 1, 1), 0);
        assert!(OfferedSlots::default().begin_start().is_none(), "no executor has offered any");
    }

    /// The commit of a batch has no answer: its slots are free again, and its runs unknown.
    #[tokio::test]
    async fn slots_without_attempts_leave_unknown_runs() {
        let (offered, _) = offer(20, 10);
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
        offered.free_slot(1);
        assert_eq!(offered.begin_claim(20, 8), (20, Vec::new()));
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
        let (offered, _) = offer(20, 10);
        let mut taken = offered.begin_start().unwrap();
        assert_eq!(take(&mut taken, 1, 1), 1);
        taken.pass_slot(1);
        drop(taken);
        assert_eq!((offered.count_used(), offered.has_unknown_runs()), (1, false));
    }
}
