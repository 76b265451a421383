//! Steps 3 and 4 of 7: claims, calls and settles, all concurrent.
//!
//! A call waits for a place and for its slot, never for the database, nor for the slowest call of its batch: the next
//! batch is claimed while half a batch still waits for its calls, and answered calls are settled together, of a backlog
//! two batches at once. While calls are in flight, the publisher continues to claim what becomes due. A settle waits for
//! no row lock but is repeated, so a slow call or a locked publication delays only its own workflow. Neither locks nor a
//! constant stream of edits keep a pipeline open, because suspects, a rollout and the checks of the next drain come after
//! it.

use std::pin::pin;
use std::time::{Duration, Instant as StdInstant};

use futures::future::{Fuse, FusedFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::claim::{Choice, Lane, Wanted, claim_due_workflows};
use crate::database_error::in_words;
use crate::failpoint::Point;
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::Span;
use crate::settle::settlement::Settlement;
use crate::settle::{Settled, settle_claims};

/// How long an answer waits to be settled together with others; if the complete batch is answered, it does not wait.
const GATHER: Duration = Duration::from_millis(20);
/// How many calls may be in flight while an answer does not wait for others: so few edits gain nothing by a common settle.
const FEW_CALLS: usize = 4;
/// How many settles run at once, each of other workflows: while Postgres executes one, the next is prepared and sent.
const MOST_SETTLES: usize = 2;
/// A settle that is lost costs a lease and a verify pass, so it is repeated a few times.
const SETTLE_TRIES: u32 = 4;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// How often the settles of locked publications are repeated, all of them in one transaction.
pub(crate) const SETTLE_AGAIN: Duration = Duration::from_millis(100);
/// How long locked publications keep an otherwise idle pipeline open; then the next one tries again.
const LOCKED_PATIENCE: Duration = Duration::from_secs(1);
/// How long a pipeline claims before its claims pause, so that it ends and suspects and rollout follow.
const TURN: Duration = Duration::from_secs(30);
/// How long claims pause at most: a call that takes longer delays no other workflow.
const TURN_PAUSE: Duration = Duration::from_secs(3);
/// How often a claim is repeated while calls are in flight; a lost notification delays an edit no longer than this.
const CLAIM_AGAIN: Duration = Duration::from_millis(300);
/// The shortest time between two claims while calls are in flight and few workflows are due. Without it, each of 1,000
/// edits per second began a claim of one or two workflows, and the claims took processor time from the edits.
const CLAIM_PAUSE: Duration = Duration::from_millis(10);

/// How many batches may be in flight at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flight {
    /// One batch, from its claim to its settle.
    Single,
    /// While one batch waits for its calls, the next is claimed and the previous one is settled.
    Overlapping,
}

/// The result of a pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) report: Report,
    /// Workflows claimed.
    pub(crate) claimed: usize,
    /// Whether it ended because its turn was over, so that more may be due.
    pub(crate) is_cut: bool,
}

impl Progress {
    /// Adds the result of another pipeline.
    pub(crate) fn add_pipeline(&mut self, other: Progress) {
        self.report.add_part(other.report);
        self.claimed += other.claimed;
        self.is_cut |= other.is_cut;
    }
}

impl Publisher {
    /// Claims while there is room, processes the claims, and ends when a claim returns nothing or its turn is over.
    ///
    /// Publications that another transaction still has locked by then are kept for the next pipeline. Of the suspects
    /// only one is claimed; all other due workflows come before the next suspect.
    pub(crate) async fn run_pipeline(&self, span: &Span, choice: Choice, flight: Flight) -> anyhow::Result<Progress> {
        let (answers, mut answered) = unbounded_channel();
        // A suspect is processed without other workflows, so locked ones wait for the next pipeline.
        let locked = if choice == Choice::Usual { std::mem::take(&mut *self.locked_settlements()) } else { Vec::new() };
        let mut hand = Hand::new(choice, flight, usize::from(self.claimant().batch_size), locked, span.now());
        let most_repairs = self.most_repairs_in_flight();
        let mut batches = FuturesUnordered::new();
        let mut claiming = pin!(Fuse::terminated());
        let mut settling = FuturesUnordered::new();
        let mut retrying = pin!(Fuse::terminated());
        loop {
            let is_pausing = hand.pauses_claims(span.now());
            let may_claim = claiming.is_terminated() && !is_pausing && hand.may_claim() && span.may_claim();
            let may_claim_at = hand.may_claim_at();
            if may_claim && may_claim_at <= Instant::now() {
                let wanted = hand.next_claim(most_repairs, Instant::now());
                let low_water = self.low_water();
                claiming.set(
                    claim_due_workflows(self.pool(), self.claimant(), wanted, low_water, span, self.injector()).fuse(),
                );
            }
            if let Some(some) = hand.ripe(settling.len(), batches.is_empty() && answered.is_empty()) {
                settling.push(self.settle(some));
            }
            let is_idle = claiming.is_terminated() && settling.is_empty() && retrying.is_terminated();
            let is_over = is_idle && batches.is_empty() && answered.is_empty();
            if is_over && (hand.locked.is_empty() || hand.leaves_locked(span)) {
                self.locked_settlements().append(&mut hand.locked);
                return hand.finish(is_pausing);
            }
            if retrying.is_terminated() && !hand.locked.is_empty() {
                retrying.set(self.settle_locked(std::mem::take(&mut hand.locked), span).fuse());
            }
            let ripening = hand.ripens_at.unwrap_or_else(Instant::now);
            tokio::select! {
                claimed = &mut claiming => match claimed {
                    Ok(batch) => {
                        let repairs = batch.claims.iter().filter(|claim| claim.lane == Lane::Repair).count();
                        hand.claimed(batch.claims.len(), repairs);
                        if let Some(publishers) = batch.publishers {
                            self.rate().share_among(publishers);
                            batches.push(self.converge_batch(batch, span.renewal(), &answers));
                        }
                    }
                    Err(error) => hand.broke(in_words(error)),
                },
                Some(progress) = batches.next() => if let Err(error) = progress { hand.broke(error) },
                Some(settlement) = answered.recv() => hand.answered(settlement),
                Some(settled) = settling.next() => hand.settled(settled, span.now()),
                settled = &mut retrying => hand.settled_locked(settled),
                () = tokio::time::sleep_until(ripening), if hand.ripens_at.is_some() && settling.is_empty() => {}
                () = tokio::time::sleep_until(may_claim_at), if may_claim && claiming.is_terminated() => {}
                () = span.wait_for_notification(), if hand.claims_beside_calls() => hand.changed(),
                () = tokio::time::sleep_until(hand.claims_again_at),
                    if (hand.is_dry || is_pausing) && hand.claims_beside_calls() =>
                {
                    hand.claims_again_at = Instant::now() + CLAIM_AGAIN;
                    hand.changed();
                }
            }
        }
    }

    /// Settles all publications that no other transaction has locked; returns the rest.
    async fn settle(&self, some: Vec<Settlement>) -> anyhow::Result<Tried> {
        let mut tries = 1;
        loop {
            match settle_claims(self.pool(), &some, self.injector()).await {
                Ok(Settled { report, locked }) => {
                    self.metrics().count_settled(report);
                    let before = some.len();
                    let is_locked = |one: &Settlement| locked.contains(&one.claim.workflow_id.0);
                    let locked: Vec<Settlement> = some.into_iter().filter(is_locked).collect();
                    return Ok(Tried { report, done: before - locked.len(), locked });
                }
                Err(error) if tries < SETTLE_TRIES => {
                    tracing::warn!(%error, workflows = some.len(), "settle failed; trying again");
                    tokio::time::sleep(SETTLE_PAUSE * tries).await;
                    tries += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Settles locked publications after a pause; near the end of the span it leaves those that are still locked to
    /// their leases.
    async fn settle_locked(&self, some: Vec<Settlement>, span: &Span) -> anyhow::Result<Tried> {
        self.injector().pass_point(Point::P13).await;
        self.injector().wait_unless_hooked(SETTLE_AGAIN).await;
        let tried = self.settle(some).await?;
        Ok(if span.may_settle() { tried } else { tried.without_locked() })
    }
}

/// The result of one settle.
struct Tried {
    report: Report,
    /// Settled, or claimed by another owner meanwhile.
    done: usize,
    locked: Vec<Settlement>,
}

impl Tried {
    /// Leaves locked publications to their leases.
    fn without_locked(self) -> Self {
        let locked = self.locked.len();
        if locked > 0 {
            tracing::warn!(
                locked,
                "publications not settled, because they stayed locked; their next owner repeats the calls"
            );
        }
        Tried { done: self.done + locked, locked: Vec::new(), ..self }
    }
}

/// The state of a pipeline, and its results.
struct Hand {
    choice: Choice,
    flight: Flight,
    batch: usize,
    claimed: usize,
    /// How many workflows are claimed and not settled, except the locked ones.
    unsettled: usize,
    /// How many workflows are claimed and not answered.
    unanswered: usize,
    /// How many of these are repairs.
    unanswered_repairs: usize,
    /// How many claims were made.
    claims: u32,
    answered: Vec<Settlement>,
    /// Answered calls whose publications other transactions have locked.
    locked: Vec<Settlement>,
    /// How many publications are locked, including those whose settle is being repeated.
    locked_count: usize,
    /// Since when there have been locked publications, by the stopwatch.
    locked_since: Option<StdInstant>,
    /// When claims pause next, by the stopwatch.
    turn_ends_at: StdInstant,
    ripens_at: Option<Instant>,
    claims_again_at: Instant,
    /// When the last claim began.
    claim_began_at: Instant,
    /// Whether the last claim returned a full batch, so that more are due.
    was_full: bool,
    /// Whether a workflow may have become due since the last claim began.
    is_stale: bool,
    is_dry: bool,
    report: Report,
    error: Option<anyhow::Error>,
}

impl Hand {
    fn new(choice: Choice, flight: Flight, batch: usize, locked: Vec<Settlement>, now: StdInstant) -> Self {
        Hand {
            choice,
            flight,
            batch,
            claimed: 0,
            unsettled: 0,
            unanswered: 0,
            unanswered_repairs: 0,
            claims: 0,
            answered: Vec::new(),
            locked_count: locked.len(),
            locked_since: (!locked.is_empty()).then_some(now),
            locked,
            turn_ends_at: now + TURN,
            ripens_at: None,
            claims_again_at: Instant::now(),
            claim_began_at: Instant::now(),
            was_full: true,
            is_stale: false,
            is_dry: false,
            report: Report::default(),
            error: None,
        }
    }

    /// Whether there is room for another batch: half a batch before the places run empty, because a claim takes time.
    /// With more, the first publisher would claim what the other publishers could process.
    fn may_claim(&self) -> bool {
        let has_room = match self.flight {
            Flight::Single => self.unsettled == 0 && self.locked_count == 0,
            Flight::Overlapping => self.unanswered <= self.batch + self.batch / 2 && self.unsettled <= 4 * self.batch,
        };
        let is_wanted = self.choice == Choice::Usual || self.claimed == 0;
        has_room && is_wanted && !self.is_dry && self.error.is_none()
    }

    /// Returns when the next claim may begin: at once if no call is in flight, or if more workflows than a batch are due.
    fn may_claim_at(&self) -> Instant {
        let waits = self.unanswered > 0 && !self.was_full;
        self.claim_began_at + if waits { CLAIM_PAUSE } else { Duration::ZERO }
    }

    /// Returns what the next claim takes. Repairs are limited, because an edit waits for the slots of all calls before it;
    /// and none is taken before half of them are answered, because a claim of few costs as much as one of many.
    fn next_claim(&mut self, most_repairs: usize, now: Instant) -> Wanted {
        self.is_stale = false;
        self.claim_began_at = now;
        let number = self.claims;
        self.claims = number.wrapping_add(1);
        let room = most_repairs.saturating_sub(self.unanswered_repairs);
        Wanted::of_claim(number, self.choice, if room >= most_repairs / 2 { room } else { 0 }, self.was_full)
    }

    /// Whether claims pause, so that the pipeline ends with the calls in flight; if these are slow, claims continue.
    fn pauses_claims(&mut self, now: StdInstant) -> bool {
        if now >= self.turn_ends_at + TURN_PAUSE {
            self.turn_ends_at = now + TURN;
        }
        now >= self.turn_ends_at
    }

    /// Whether locked publications are left to the next pipeline. At the end of the span there is none, so they are
    /// tried until the end.
    fn leaves_locked(&self, span: &Span) -> bool {
        let waited = self.locked_since.map_or(Duration::ZERO, |since| span.now().saturating_duration_since(since));
        // A suspect's pipeline has no other workflows, so it ends instead of waiting for a locked publication.
        let has_waited = self.choice == Choice::Suspects || waited >= LOCKED_PATIENCE;
        has_waited && (span.may_claim() || span.is_stopped())
    }

    fn claims_beside_calls(&self) -> bool {
        self.flight == Flight::Overlapping && self.error.is_none()
    }

    /// Records that a workflow may have become due.
    fn changed(&mut self) {
        self.is_dry = false;
        self.is_stale = true;
    }

    fn claimed(&mut self, count: usize, repairs: usize) {
        // A claim that overlapped a settle or a notification may have missed what became due by it.
        self.is_dry = count == 0 && !self.is_stale;
        self.was_full = count >= self.batch;
        self.claims_again_at = Instant::now() + CLAIM_AGAIN;
        self.claimed += count;
        self.unsettled += count;
        self.unanswered += count;
        self.unanswered_repairs += repairs;
    }

    fn answered(&mut self, settlement: Settlement) {
        self.unanswered -= 1;
        self.unanswered_repairs -= usize::from(settlement.claim.lane == Lane::Repair);
        self.answered.push(settlement);
        if self.flight == Flight::Overlapping {
            self.ripens_at.get_or_insert_with(|| Instant::now() + GATHER);
        }
    }

    /// Returns what to settle now: all answers, if few calls are in flight, or if there are enough of them. While another
    /// settle runs, only a full batch is enough: a backlog keeps Postgres and the publisher busy at once, and single
    /// edits share the next settle.
    fn ripe(&mut self, settles: usize, is_all_answered: bool) -> Option<Vec<Settlement>> {
        let is_full = self.ripens_at.is_some() && self.answered.len() >= self.batch;
        let are_few_called = self.ripens_at.is_some() && self.unanswered <= FEW_CALLS;
        let has_waited = self.ripens_at.is_some_and(|at| at <= Instant::now());
        let is_ripe = match settles {
            0 => is_full || are_few_called || has_waited || is_all_answered,
            _ => is_full && settles < MOST_SETTLES,
        };
        if self.answered.is_empty() || !is_ripe {
            return None;
        }
        self.ripens_at = None;
        Some(std::mem::take(&mut self.answered))
    }

    fn settled(&mut self, tried: anyhow::Result<Tried>, now: StdInstant) {
        // A settled workflow may be due again at once, after an edit in the meantime.
        self.changed();
        match tried {
            Ok(Tried { report, done, locked }) => {
                self.unsettled -= done + locked.len();
                if !locked.is_empty() {
                    self.locked_since.get_or_insert(now);
                }
                self.locked_count += locked.len();
                self.locked.extend(locked);
                self.report.add_part(report);
            }
            Err(error) => self.broke(error),
        }
    }

    fn settled_locked(&mut self, tried: anyhow::Result<Tried>) {
        // After an error nothing is claimed any more, so the drain must end, however long a publication is locked.
        let tried = if self.error.is_some() { tried.map(Tried::without_locked) } else { tried };
        match tried {
            Ok(Tried { report, done, locked }) => {
                if done > 0 {
                    self.changed();
                }
                self.locked_count -= done;
                if self.locked_count == 0 {
                    self.locked_since = None;
                }
                self.locked.extend(locked);
                self.report.add_part(report);
            }
            Err(error) => self.broke(error),
        }
    }

    /// Keeps the first error, which says most; calls in flight are finished nevertheless.
    fn broke(&mut self, error: anyhow::Error) {
        self.error.get_or_insert(error);
    }

    fn finish(self, is_pausing: bool) -> anyhow::Result<Progress> {
        let Hand { report, claimed, is_dry, error, .. } = self;
        error.map_or(Ok(Progress { report, claimed, is_cut: is_pausing && !is_dry }), Err)
    }
}

#[cfg(test)]
mod tests {
    use schedule::WorkflowId;

    use super::*;
    use crate::claim::{Claim, Order, Verify};
    use crate::settle::settlement::Outcome;

    #[test]
    fn claims_pause_once_a_turn() {
        let began = StdInstant::now();
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 1, Vec::new(), began);
        let pauses = [0, 29, 30, 32, 33, 62, 63, 66].map(|secs| hand.pauses_claims(began + Duration::from_secs(secs)));
        assert_eq!(pauses, [false, false, true, true, false, false, true, false]);
    }

    #[test]
    fn small_claims_beside_calls_have_a_pause() {
        let began = Instant::now();
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 2, Vec::new(), StdInstant::now());
        hand.next_claim(2, began);
        hand.claimed(2, 0);
        assert_eq!(hand.may_claim_at(), began, "after a full batch more are due");
        hand.claimed(1, 0);
        assert_eq!(hand.may_claim_at(), began + CLAIM_PAUSE, "the next edits share a claim");
        hand.unanswered = 0;
        assert_eq!(hand.may_claim_at(), began, "no call is in flight");
    }

    /// Single edits share the next settle; only a backlog needs two at once.
    #[test]
    fn a_second_settle_takes_a_full_batch() {
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 2, Vec::new(), StdInstant::now());
        hand.claimed(3, 0);
        hand.answered(unchanged(1));
        assert!(hand.ripe(1, true).is_none(), "the first settle has not ended");
        assert_eq!(hand.ripe(0, true).map(|some| some.len()), Some(1));
        hand.answered(unchanged(2));
        hand.answered(unchanged(3));
        assert!(hand.ripe(MOST_SETTLES, true).is_none());
        assert_eq!(hand.ripe(1, false).map(|some| some.len()), Some(2));
    }

    #[test]
    fn answers_wait_for_others_only_if_many_calls_are_in_flight() {
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 100, Vec::new(), StdInstant::now());
        hand.claimed(FEW_CALLS + 2, 0);
        hand.answered(unchanged(1));
        assert!(hand.ripe(0, false).is_none());
        hand.answered(unchanged(2));
        assert_eq!(hand.ripe(0, false).map(|some| some.len()), Some(2));
    }

    fn unchanged(workflow: i64) -> Settlement {
        let claim = Claim {
            workflow_id: WorkflowId(workflow),
            epoch: 1,
            attempt: 1,
            failures: 0,
            repairs: 0,
            seen: 0,
            traceparent: None,
            spec_hash: None,
            schedule_name: None,
            verify: Verify::NotDue,
            lane: Lane::Edit,
        };
        let outcome = Outcome::NotCalled;
        Settlement { claim, outcome, changes_on: None, is_verified: false, is_in_doubt: false, refused_hash: None }
    }

    #[test]
    fn repairs_in_flight_are_limited() {
        let began = Instant::now();
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 100, Vec::new(), StdInstant::now());
        assert_eq!(hand.next_claim(10, began).repairs, 10);
        hand.claimed(10, 10);
        assert_eq!(hand.next_claim(10, began).repairs, 0);
        hand.unanswered_repairs = 6;
        assert_eq!(hand.next_claim(10, began).repairs, 0, "fewer than half are answered");
        hand.unanswered_repairs = 5;
        assert_eq!(hand.next_claim(10, began).repairs, 5);
    }

    /// A constant stream of edits fills each batch.
    #[test]
    fn repairs_come_first_in_every_tenth_claim() {
        let began = Instant::now();
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 100, Vec::new(), StdInstant::now());
        let first: Vec<Lane> = (0..20).map(|_| hand.next_claim(10, began).first).collect();
        assert_eq!(first.iter().filter(|lane| **lane == Lane::Repair).count(), 2);
        assert_eq!((first[0], first[8]), (Lane::Edit, Lane::Repair));
    }

    /// If a claim takes all that is due, the order does not matter, and no statement chooses.
    #[test]
    fn full_claims_are_followed_by_one_by_team() {
        let began = Instant::now();
        let mut hand = Hand::new(Choice::Usual, Flight::Overlapping, 2, Vec::new(), StdInstant::now());
        let mut orders = |taken| {
            let order = hand.next_claim(2, began).order;
            hand.claimed(taken, 0);
            order
        };
        let in_a_backlog: Vec<Order> = (0..12).map(|_| orders(2)).collect();
        let by_team: Vec<usize> = (0..12).filter(|nth| in_a_backlog[*nth] == Order::Team).collect();
        assert_eq!(by_team, [1, 3, 5, 7, 9, 11], "every other one, also where repairs come first");
        assert_eq!(orders(1), Order::Age);
        assert_eq!(orders(1), Order::Age, "the claim before took all that was due");
    }

    #[test]
    fn suspects_are_not_chosen_by_team() {
        let mut hand = Hand::new(Choice::Suspects, Flight::Single, 1, Vec::new(), StdInstant::now());
        assert!((0..10).all(|_| hand.next_claim(1, Instant::now()).order == Order::Age));
    }
}
