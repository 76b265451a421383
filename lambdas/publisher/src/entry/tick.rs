//! Steps 3 to 6 of 7: one tick: a drain, a sweep if one is due beside a pass over the dead letters, and the rest of the drain.

use std::time::{Duration, Instant};

use crate::drain::{Drained, Ending};
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::{Renewal, Span};
use crate::sweep::Swept;

/// How long a tick publishes before its sweep and its pass over the dead letters, so that no backlog delays these for long.
const FIRST_DRAIN: Duration = Duration::from_secs(20);
/// What a pass over the dead letters may take of a tick.
const LETTERS: Duration = Duration::from_secs(10);

impl Publisher {
    /// One tick: drains, sweeps if a sweep is due, mirrors the dead letters, and drains what the sweep has enqueued.
    ///
    /// # Errors
    /// Fails like [`Publisher::drain_outbox`]. A sweep that fails is logged, and the next tick continues it.
    pub async fn run_tick(&self, deadline: Instant) -> anyhow::Result<Report> {
        Ok(self.tick_for(&self.new_span(Some(deadline), Renewal::Off)).await?.report)
    }

    pub(crate) async fn tick_for(&self, span: &Span) -> anyhow::Result<Drained> {
        let first = span.claiming_for(FIRST_DRAIN);
        let mut drained = self.drain_for(&first).await?;
        let ending = drained.ending;
        // Side by side, as in the daemon: a sweep may take the rest of each tick for an hour. Boxed, because the tick as one
        // future exceeds the compiler's recursion limit.
        let (has_swept, ()) =
            tokio::join!(Box::pin(self.sweep_after(ending, span)), Box::pin(self.mirror_after(ending, span)));
        let has_more = ending == Ending::Done && !first.may_claim() && span.may_claim();
        if has_swept || has_more {
            drained.add_drain(self.drain_for(span).await?);
        }
        Ok(drained)
    }

    /// Sweeps if a sweep is due; returns whether it did.
    async fn sweep_after(&self, ending: Ending, span: &Span) -> bool {
        // If EventBridge refuses writes now, it may refuse lists too, and the sweep would only enqueue more writes.
        if ending != Ending::Done {
            return false;
        }
        match self.sweep_for(span).await {
            Ok(swept) => swept != Swept::NotNow,
            Err(error) => {
                tracing::warn!("sweep stopped: {error:#}");
                false
            }
        }
    }

    /// Mirrors the dead letters if there is time for a pass. A newer configuration has its own publisher.
    async fn mirror_after(&self, ending: Ending, span: &Span) {
        let is_current = matches!(ending, Ending::Done | Ending::Stopped);
        if is_current && span.for_next_drain().has_time_for(LETTERS) {
            self.mirror_dead_letters().await;
        }
    }
}
