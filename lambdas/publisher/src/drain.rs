//! Steps 3 and 4 of 7: one drain: why it begins, and why it ends.
//!
//! Nothing is spawned: all that is in flight lives in the drain's own future and is awaited before
//! it returns, so that no frozen Lambda wakes up minutes later with a request to sign.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use sqlx::error::DatabaseError;

use crate::Publisher;
use crate::inject::Point;
use crate::lease::{Renewal, Span};
use crate::outbox::{self, Choice};
use crate::pipeline::Flight;
use crate::report::Report;
use crate::sharers;

/// How long publishers that start at once may call too often before they know of one another.
const LOOK_AROUND: Duration = Duration::from_millis(50);
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
        let mut report = self.work_off(&span).await?;
        if self.evidence().is_over(Instant::now()) {
            outbox::release(self.pool()).await?;
            report.add(self.work_off(&span).await?);
        }
        // One by one, and last: whichever of them kills the process takes nobody with it.
        report.add(self.pipeline(&span, Choice::Suspects, Flight::Single).await?);
        sharers::leave(self.pool(), &self.claimant().owner).await?;
        report.remaining = outbox::count_remaining(self.pool()).await?;
        self.metrics().drained(report);
        self.injector().at(Point::P12).await;
        Ok(Drained { report, ending: if span.is_stopped() { Ending::Stopped } else { Ending::Done } })
    }
}

impl Publisher {
    /// Works until nothing is due.
    async fn work_off(&self, span: &Span) -> anyhow::Result<Report> {
        let flight = self.injector().flight(Flight::Overlapping);
        tokio::select! {
            report = self.pipeline(span, Choice::Usual, flight) => report,
            never = self.keep_sharing(), if flight == Flight::Overlapping => match never {},
        }
    }

    /// Follows the number of publishers: a claim alone would learn too late of those that start together with us.
    async fn keep_sharing(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_AROUND).await;
            match sharers::count(self.pool()).await {
                Ok(sharers) => self.rate().share(sharers),
                Err(error) => tracing::debug!(%error, "the other publishers cannot be counted; the next claim does"),
            }
        }
    }
}

/// A claim is the first that an empty or foreign database hears of.
pub(crate) fn in_words(error: sqlx::Error) -> anyhow::Error {
    match error.as_database_error().and_then(DatabaseError::code).as_deref() {
        Some(UNDEFINED_TABLE | UNDEFINED_FUNCTION) => anyhow!("the database has no outbox: run `app migrate` on it"),
        _ => anyhow::Error::from(error).context("the outbox cannot be read"),
    }
}
