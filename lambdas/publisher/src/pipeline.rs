//! Steps 3 and 4 of 7: claims, calls and settles, all under way at once.
//!
//! A call waits for a place and for its slot, never for the database, nor for the slowest of its
//! batch: the next batch is claimed while half a batch still waits for its calls, and whatever
//! has been answered is settled together.

use std::collections::{HashSet, VecDeque};
use std::pin::pin;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::Publisher;
use crate::drain::in_words;
use crate::lease::Span;
use crate::outbox::{self, Choice};
use crate::report::Report;
use crate::settle::{Waiting, settle};
use crate::settlement::Settlement;

/// How long an answer waits for others to be settled with; a batch that is answered waits for none.
const GATHER: Duration = Duration::from_millis(20);
/// A settle that is lost costs a lease and a verify pass, so it is worth a few tries.
const SETTLE_TRIES: u32 = 4;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// How much may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flight {
    /// One batch, from its claim to its settle.
    Single,
    /// While one batch is in the air, the next is claimed and the last is settled.
    Overlapping,
}

impl Publisher {
    /// Claims while there is room, works on what is claimed, ends when a claim comes back empty.
    pub(crate) async fn pipeline(&self, span: &Span, choice: Choice, flight: Flight) -> anyhow::Result<Report> {
        let (answers, mut answered) = unbounded_channel();
        let mut hand = Hand::new(flight, usize::from(self.claimant().batch_size));
        let mut working = FuturesUnordered::new();
        let mut claiming = pin!(Fuse::terminated());
        let mut settling = pin!(Fuse::terminated());
        let mut waiting = pin!(Fuse::terminated());
        loop {
            if claiming.is_terminated() && hand.may_claim() && span.may_claim() {
                hand.was_settled = false;
                claiming.set(outbox::claim(self.pool(), self.claimant(), choice, span, self.injector()).fuse());
            }
            if settling.is_terminated()
                && let Some(some) = hand.ripe(working.is_empty() && answered.is_empty())
            {
                settling.set(self.settle_free(some).fuse());
            }
            if waiting.is_terminated()
                && let Some(one) = hand.held_up.pop_front()
            {
                waiting.set(self.settle_held_up(one).fuse());
            }
            let is_idle = claiming.is_terminated() && settling.is_terminated() && waiting.is_terminated();
            if is_idle && working.is_empty() && answered.is_empty() {
                return hand.finish();
            }
            let ripening = hand.ripens_at.unwrap_or_else(Instant::now);
            tokio::select! {
                claimed = &mut claiming => match claimed {
                    Ok(batch) => {
                        hand.claimed(batch.claims.len());
                        if let Some(sharers) = batch.sharers {
                            self.rate().share(sharers);
                            working.push(self.work(batch, span.renewal(), &answers));
                        }
                    }
                    Err(error) => hand.broke(in_words(error)),
                },
                Some(worked) = working.next() => if let Err(error) = worked { hand.broke(error) },
                Some(settlement) = answered.recv() => hand.answered(settlement),
                settled = &mut settling => hand.settled(settled),
                settled = &mut waiting => hand.settled(settled),
                () = tokio::time::sleep_until(ripening), if hand.ripens_at.is_some() && settling.is_terminated() => {}
            }
        }
    }

    /// Settles all that nobody holds; the rest comes back.
    async fn settle_free(&self, some: Vec<Settlement>) -> anyhow::Result<Settled> {
        let (settled, report) = self.settle(&some, Waiting::Skip).await?;
        let held_up = some.into_iter().filter(|one| !settled.contains(&one.claim.workflow_id.0)).collect();
        Ok(Settled { report, count: settled.len(), held_up })
    }

    /// Settles one as soon as the edit that holds it ends; its own is all that it holds up.
    async fn settle_held_up(&self, one: Settlement) -> anyhow::Result<Settled> {
        let (_, report) = self.settle(&[one], Waiting::Wait).await?;
        Ok(Settled { report, count: 1, held_up: Vec::new() })
    }

    async fn settle(&self, some: &[Settlement], waiting: Waiting) -> anyhow::Result<(HashSet<i64>, Report)> {
        let mut tries = 1;
        loop {
            match settle(self.pool(), some, waiting, self.injector()).await {
                Err(error) if tries < SETTLE_TRIES => {
                    tracing::warn!(%error, "{} workflows could not be settled yet", some.len());
                    tokio::time::sleep(SETTLE_PAUSE * tries).await;
                    tries += 1;
                }
                settled => return Ok(settled?),
            }
        }
    }
}

/// What one settle came to.
struct Settled {
    report: Report,
    count: usize,
    held_up: Vec<Settlement>,
}

/// What a pipeline holds, and what it has come to.
struct Hand {
    flight: Flight,
    batch: usize,
    /// Claimed and not settled.
    unsettled: usize,
    /// Claimed and not answered.
    unanswered: usize,
    answered: Vec<Settlement>,
    /// Answered, and held by an edit's open transaction.
    held_up: VecDeque<Settlement>,
    ripens_at: Option<Instant>,
    /// Whether anything was settled since the last claim began.
    was_settled: bool,
    is_dry: bool,
    report: Report,
    error: Option<anyhow::Error>,
}

impl Hand {
    fn new(flight: Flight, batch: usize) -> Self {
        Hand {
            flight,
            batch,
            unsettled: 0,
            unanswered: 0,
            answered: Vec::new(),
            held_up: VecDeque::new(),
            ripens_at: None,
            was_settled: false,
            is_dry: false,
            report: Report::default(),
            error: None,
        }
    }

    /// Whether another batch has room: half a batch before the places run empty, because a claim takes
    /// its time. Were it more, the first publisher to come would hold what the others could work on.
    fn may_claim(&self) -> bool {
        let has_room = match self.flight {
            Flight::Single => self.unsettled == 0,
            Flight::Overlapping => self.unanswered <= self.batch + self.batch / 2 && self.unsettled <= 4 * self.batch,
        };
        has_room && !self.is_dry && self.error.is_none()
    }

    fn claimed(&mut self, count: usize) {
        // A claim that overlapped a settle has not seen what that made due.
        self.is_dry = count == 0 && !self.was_settled;
        self.unsettled += count;
        self.unanswered += count;
    }

    fn answered(&mut self, settlement: Settlement) {
        self.unanswered -= 1;
        self.answered.push(settlement);
        if self.flight == Flight::Overlapping {
            self.ripens_at.get_or_insert_with(|| Instant::now() + GATHER);
        }
    }

    /// What is to be settled now: all that is answered, if nothing is in the air, or enough of it.
    fn ripe(&mut self, is_all_answered: bool) -> Option<Vec<Settlement>> {
        let is_worth_it = self.ripens_at.is_some_and(|at| at <= Instant::now() || self.answered.len() >= self.batch);
        if self.answered.is_empty() || !(is_all_answered || is_worth_it) {
            return None;
        }
        self.ripens_at = None;
        Some(std::mem::take(&mut self.answered))
    }

    fn settled(&mut self, settled: anyhow::Result<Settled>) {
        // What was settled may be due again at once: an edit came meanwhile.
        self.is_dry = false;
        self.was_settled = true;
        match settled {
            Ok(settled) => {
                self.unsettled -= settled.count;
                self.report.add(settled.report);
                self.held_up.extend(settled.held_up);
            }
            Err(error) => self.broke(error),
        }
    }

    /// The first error tells most; what is under way is finished nonetheless.
    fn broke(&mut self, error: anyhow::Error) {
        self.error.get_or_insert(error);
    }

    fn finish(self) -> anyhow::Result<Report> {
        self.error.map_or(Ok(self.report), Err)
    }
}
