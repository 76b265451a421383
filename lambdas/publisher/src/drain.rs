//! Steps 3 and 4 of 7: one drain: when it begins and when it ends.
//!
//! Nothing is spawned: all calls in flight belong to the drain's own future, which awaits them before it returns. So a
//! Lambda that was frozen does not wake up minutes later with a request to sign.

mod batch;
pub(crate) mod pipeline;
mod revive;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use self::pipeline::{Flight, Progress};
use crate::claim::deployment::{ACCEPT, Admission, Rollout, admit_publisher};
use crate::claim::publishers::count_publishers;
use crate::claim::{self, BackoffRelease, Choice};
use crate::database_error::in_words;
use crate::failpoint::Point;
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::{Renewal, Span};

/// How long publishers that start at once may exceed the rate before they count each other.
const FIRST_COUNT: Duration = Duration::from_millis(50);
/// How often they count each other later; each claim counts, too.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// How long one drain rolls out a generation, so that a Lambda's tick has time left for its sweep.
const ROLLOUT: Duration = Duration::from_secs(20);

/// The result of a drain, and why it ended.
pub(crate) struct Drained {
    pub(crate) report: Report,
    pub(crate) ending: Ending,
}

impl Drained {
    /// Adds a later drain; its ending replaces the earlier one.
    pub(crate) fn add_drain(&mut self, later: Drained) {
        self.report.add_part(later.report);
        self.ending = later.ending;
    }
}

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing was due any more, or the deadline was reached.
    Done,
    /// EventBridge refused all workflows; those that were not called are still due.
    Stopped,
    /// A newer configuration has published: nothing was claimed.
    Outdated,
    /// The database was restored or cloned, and its ledger is not accepted: nothing was claimed.
    Held,
}

impl Publisher {
    /// Publishes until nothing is due, or until shortly before `deadline`.
    ///
    /// # Errors
    /// Fails if the database fails; claimed rows that were not settled can be claimed again when their lease expires.
    pub async fn drain_outbox(&self, deadline: Instant) -> anyhow::Result<Report> {
        Ok(self.drain_for(&self.new_span(Some(deadline), Renewal::Off)).await?.report)
    }

    pub(crate) async fn drain_for(&self, span: &Span) -> anyhow::Result<Drained> {
        let mut report = Report::default();
        let drained = loop {
            match self.drain_one_turn(span).await {
                Ok((turn, ending)) => {
                    report.add_part(turn);
                    if ending.is_some() || !span.may_claim() {
                        break Ok(Drained { report, ending: ending.unwrap_or(Ending::Done) });
                    }
                }
                Err(error) => {
                    // The next connection may be to another database with other epochs, so leave locked publications to
                    // their leases.
                    self.locked_settlements().clear();
                    break Err(error);
                }
            }
        };
        if let Ok(drained) = &drained {
            self.report_refusals(span, drained);
        }
        match claim::count_remaining(self.pool(), self.low_water().marks()).await {
            Ok(remaining) => {
                // The number is also set after an error, because operators need it first.
                self.metrics().set_remaining(remaining);
                drained.map(|Drained { report, ending }| Drained { report: Report { remaining, ..report }, ending })
            }
            Err(error) => drained.and_then(|_| Err(error.into())),
        }
    }

    /// Counts a drain like a stopped one if EventBridge refuses all that it is asked: with one or two workflows no drain
    /// stops, and an operator must know all the same.
    fn report_refusals(&self, span: &Span, drained: &Drained) {
        if drained.ending != Ending::Done || !self.evidence().is_refusing(span.now()) {
            return;
        }
        self.metrics().count_stopped_drain();
        if drained.report.retried > 0 {
            tracing::error!(workflows = drained.report.retried, "EventBridge refused every workflow that was called");
        }
    }

    /// Publishes until nothing is due; `None` = its turn ended earlier, and the next turn repeats these checks.
    async fn drain_one_turn(&self, span: &Span) -> anyhow::Result<(Report, Option<Ending>)> {
        let span = span.for_next_drain();
        self.injector().pass_point(Point::P0).await;
        let deployment = match self.check_deployment().await? {
            Admission::Admitted(deployment) => deployment,
            Admission::Outdated(newer) => {
                tracing::error!(%newer, "publisher outdated: a newer configuration has published, so it publishes nothing");
                return Ok((Report::default(), Some(Ending::Outdated)));
            }
            Admission::Held(reason) => {
                tracing::error!(reason, "ledger held: nothing is published; the publisher waits for `{ACCEPT}`");
                // The epochs of the restored database do not match the claims of this process.
                self.locked_settlements().clear();
                return Ok((Report::default(), Some(Ending::Held)));
            }
        };
        self.presence().begin_activity();
        let progress = self.drain_all(&span, deployment.rollout).await;
        // This publisher also leaves after an error, so that the others get its share of the rate at once.
        self.presence().end_activity(self.pool(), self.owner()).await;
        let Progress { report, is_cut, .. } = progress?;
        self.injector().pass_point(Point::P12).await;
        Ok((report, if span.is_stopped() { Some(Ending::Stopped) } else { (!is_cut).then_some(Ending::Done) }))
    }
}

impl Publisher {
    /// Publishes until nothing is due: first the usual workflows, then the suspects one by one, because one that kills
    /// the process must not affect other workflows. An edit waits for at most one suspect.
    async fn drain_all(&self, span: &Span, rollout: Rollout) -> anyhow::Result<Progress> {
        self.revive_failed(span).await?;
        let mut all = Progress::default();
        let until = span.now() + ROLLOUT;
        loop {
            all.add_pipeline(self.drain_usual(span).await?);
            self.release_backoffs(span, &mut all).await?;
            while rollout == Rollout::Open && span.may_claim() && span.now() < until && self.roll_out().await? > 0 {
                all.add_pipeline(self.drain_usual(span).await?);
                // Edits come before the rest of the rollout.
                if all.is_cut {
                    break;
                }
            }
            let suspect = self.run_pipeline(span, Choice::Suspects, Flight::Single).await?;
            all.add_pipeline(suspect);
            if suspect.claimed == 0 || all.is_cut {
                return Ok(all);
            }
        }
    }

    /// Releases what waits for the end of an outage that is over. Between two batches it publishes what is due, so that
    /// an edit waits for one batch. If a batch fails, the next drain continues.
    async fn release_backoffs(&self, span: &Span, all: &mut Progress) -> anyhow::Result<()> {
        if self.evidence().is_over(span.now()) {
            self.set_release(Some(BackoffRelease::new(self.config().api_tps)));
        }
        while span.may_claim()
            && !all.is_cut
            && let Some(release) = self.pending_release()
        {
            match release.release_batch(self.pool()).await {
                Ok(next) => self.set_release(next),
                Err(error) => {
                    tracing::warn!(%error, "workflows not released from their backoff; the next drain tries again");
                    return Ok(());
                }
            }
            all.add_pipeline(self.drain_usual(span).await?);
        }
        Ok(())
    }

    /// Publishes until no usual workflow is due, or until its turn ends.
    async fn drain_usual(&self, span: &Span) -> anyhow::Result<Progress> {
        // With a test's hook one batch at a time, so that two statements of one publisher never race.
        let flight = if self.injector().is_hooked() { Flight::Single } else { Flight::Overlapping };
        tokio::select! {
            progress = self.run_pipeline(span, Choice::Usual, flight) => progress,
            never = self.keep_sharing(), if flight == Flight::Overlapping => match never {},
        }
    }

    /// Returns whether this publisher may publish. Before, it loads the zone data in force, by which crons are compiled;
    /// only periodically, as they change a few times a year.
    async fn check_deployment(&self) -> anyhow::Result<Admission> {
        let (ours, env) = (self.claimant().generation, &self.config().env);
        // One connection for both: a returned one is proven first, so that the second check would open another.
        let mut connection = self.pool().acquire().await.map_err(in_words)?;
        if self.zones_are_due() {
            db::load_zones(&mut connection).await.map_err(in_words)?;
        }
        admit_publisher(&mut connection, ours, self.owner(), env).await.map_err(in_words)
    }

    /// Follows the number of publishers, because a claim counts too late those that start at the same time.
    async fn keep_sharing(&self) -> Infallible {
        let mut pause = FIRST_COUNT;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(COUNT_EVERY);
            match count_publishers(self.pool()).await {
                Ok(publishers) => self.rate().share_among(publishers),
                Err(error) => tracing::debug!(%error, "other publishers not counted; the next claim counts them"),
            }
        }
    }
}
