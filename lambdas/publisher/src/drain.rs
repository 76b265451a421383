//! Steps 3 and 4 of 7: one drain, a pipeline of claimed batches.
//!
//! Nothing is spawned: all that is in flight lives in the drain's own future and is awaited before
//! it returns, so that no frozen Lambda wakes up minutes later with a request to sign.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use sqlx::error::DatabaseError;

use crate::Publisher;
use crate::converge::converge;
use crate::inject::Point;
use crate::lease::{Lease, RENEW_AFTER, Renewal, Span};
use crate::outbox::{self, Batch, Choice, Claim};
use crate::report::Report;
use crate::settle::{Waiting, settle};
use crate::settlement::Settlement;
use crate::sharers;
use crate::workflows::{self, Workflow};

/// While one batch waits for EventBridge, another is settled and the next claimed. No more, or the
/// first publisher to come would hold what the others could work on.
const BATCHES_IN_FLIGHT: usize = 2;
/// A settle that is lost costs a lease and a verify pass, so it is worth a few tries.
const SETTLE_TRIES: u32 = 4;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// Postgres's codes for a name that it does not know.
const UNDEFINED_TABLE: &str = "42P01";
const UNDEFINED_FUNCTION: &str = "42883";

/// What a drain did, and why it ended.
pub(crate) struct Drained {
    pub(crate) report: Report,
    pub(crate) ending: Ending,
}

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing was due any more, or the time was up.
    Done,
    /// EventBridge refused everybody; what was not called is still due.
    Stopped,
}

impl Publisher {
    /// Works until nothing is due, or until shortly before `deadline`.
    ///
    /// # Errors
    /// The database's; what was claimed and could not be settled is taken over when its lease lapses.
    pub async fn drain(&self, deadline: Instant) -> anyhow::Result<Report> {
        Ok(self.drain_for(&Span::until(deadline, Renewal::Off, self.injector().stopwatch())).await?.report)
    }

    pub(crate) async fn drain_for(&self, span: &Span) -> anyhow::Result<Drained> {
        let span = span.afresh();
        self.injector().at(Point::P0).await;
        let mut report =
            self.pipeline(&span, Choice::Usual, self.injector().batches_in_flight(BATCHES_IN_FLIGHT)).await?;
        // One by one, and last: whichever of them kills the process takes nobody with it.
        report.add(self.pipeline(&span, Choice::Suspects, 1).await?);
        sharers::leave(self.pool(), &self.claimant().owner).await?;
        report.remaining = outbox::count_remaining(self.pool()).await?;
        self.metrics().drained(report);
        self.injector().at(Point::P12).await;
        Ok(Drained { report, ending: if span.is_stopped() { Ending::Stopped } else { Ending::Done } })
    }

    /// Claims while there is room, works on what is claimed, ends when a claim comes back empty.
    async fn pipeline(&self, span: &Span, choice: Choice, room: usize) -> anyhow::Result<Report> {
        let mut done = Done::default();
        let mut is_dry = false;
        let mut flight = FuturesUnordered::new();
        loop {
            if is_dry || done.is_broken() || flight.len() >= room || !span.may_claim() {
                let Some(worked) = flight.next().await else { return done.finish() };
                // What was settled may be due again at once: an edit came meanwhile.
                is_dry = false;
                done.take(worked);
                continue;
            }
            let mut claiming = pin!(outbox::claim(self.pool(), self.claimant(), choice, span, self.injector()));
            let mut was_settled = false;
            let claimed = loop {
                tokio::select! {
                    claimed = &mut claiming => break claimed,
                    Some(worked) = flight.next() => {
                        was_settled = true;
                        done.take(worked);
                    }
                }
            };
            match claimed {
                // A claim that overlapped a settle has not seen what that made due.
                Ok(batch) if batch.claims.is_empty() => is_dry = !was_settled,
                Ok(batch) => {
                    self.rate().share(batch.sharers);
                    flight.push(self.work(batch, span.renewal()));
                }
                Err(error) => done.take(Err(in_words(error))),
            }
        }
    }

    /// Takes a claimed batch from reading to settling.
    async fn work(&self, batch: Batch, renewal: Renewal) -> anyhow::Result<Report> {
        let Batch { claims, lease, .. } = batch;
        let keys: Vec<(i64, i64)> = claims.iter().map(|claim| (claim.workflow_id.0, claim.epoch)).collect();
        let settlements = tokio::select! {
            settlements = self.converge_all(claims, &lease) => settlements?,
            never = self.keep(&keys, &lease), if renewal == Renewal::On => match never {},
        };
        self.settle(settlements).await
    }

    async fn converge_all(&self, claims: Vec<Claim>, lease: &Lease) -> anyhow::Result<Vec<Settlement>> {
        let ids: Vec<i64> = claims.iter().map(|claim| claim.workflow_id.0).collect();
        let read = workflows::read(self.pool(), &ids).await?;
        self.injector().at(Point::P5).await;
        let mut workflows: HashMap<_, Workflow> = read.into_iter().map(|workflow| (workflow.id, workflow)).collect();
        let work = claims.into_iter().filter_map(|claim| workflows.remove(&claim.workflow_id).map(|is| (claim, is)));
        let work: Vec<_> = work.collect();
        let together = work.len().max(1);
        let converging = work.into_iter().map(|(claim, workflow)| async move {
            self.injector().at(Point::P11).await;
            converge(self, claim, &workflow, lease).await
        });
        Ok(stream::iter(converging).buffer_unordered(together).collect().await)
    }

    /// Renews the leases of a batch for as long as it is worked on.
    async fn keep(&self, keys: &[(i64, i64)], lease: &Lease) -> Infallible {
        loop {
            tokio::time::sleep(RENEW_AFTER).await;
            let sent = lease.now();
            match outbox::renew(self.pool(), keys).await {
                Ok(true) => lease.renewed(sent),
                Ok(false) => tracing::warn!("a lease has lapsed while its workflow was worked on"),
                Err(error) => tracing::warn!(%error, "leases could not be renewed"),
            }
        }
    }

    /// Settles a batch: first all that nobody holds, then the rest, each on its own.
    async fn settle(&self, settlements: Vec<Settlement>) -> anyhow::Result<Report> {
        let (settled, mut report) = self.settle_some(&settlements, Waiting::Skip).await?;
        for settlement in settlements {
            if !settled.contains(&settlement.claim.workflow_id.0) {
                report.add(self.settle_some(&[settlement], Waiting::Wait).await?.1);
            }
        }
        Ok(report)
    }

    async fn settle_some(&self, some: &[Settlement], waiting: Waiting) -> anyhow::Result<(HashSet<i64>, Report)> {
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

/// A claim is the first that an empty or foreign database hears of.
fn in_words(error: sqlx::Error) -> anyhow::Error {
    match error.as_database_error().and_then(DatabaseError::code).as_deref() {
        Some(UNDEFINED_TABLE | UNDEFINED_FUNCTION) => anyhow!("the database has no outbox: run `app migrate` on it"),
        _ => anyhow::Error::from(error).context("the outbox cannot be read"),
    }
}

/// What the batches of a pipeline came to.
#[derive(Default)]
struct Done {
    report: Report,
    error: Option<anyhow::Error>,
}

impl Done {
    fn take(&mut self, worked: anyhow::Result<Report>) {
        match worked {
            Ok(report) => self.report.add(report),
            // The first one tells most; the batches still in flight are finished nonetheless.
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    fn is_broken(&self) -> bool {
        self.error.is_some()
    }

    fn finish(self) -> anyhow::Result<Report> {
        self.error.map_or(Ok(self.report), Err)
    }
}
