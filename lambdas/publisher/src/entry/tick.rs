//! Steps 3 to 6 of 7: one tick: a drain, a sweep if one is due, and a pass over the dead letters.

use std::time::{Duration, Instant};

use crate::drain::{Drained, Ending};
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::{Renewal, Span};
use crate::sweep::Swept;

/// What a pass over the dead letters may take of a tick.
const LETTERS: Duration = Duration::from_secs(10);

impl Publisher {
    /// One tick: drains, sweeps if a sweep is due, drains what the sweep has enqueued, and mirrors the dead letters.
    ///
    /// # Errors
    /// Fails like [`Publisher::drain_outbox`]. A sweep that fails is logged, and the next tick continues it.
    pub async fn run_tick(&self, deadline: Instant) -> anyhow::Result<Report> {
        Ok(self.tick_for(&self.new_span(Some(deadline), Renewal::Off)).await?.report)
    }

    pub(crate) async fn tick_for(&self, span: &Span) -> anyhow::Result<Drained> {
        let drained = self.publish_for(span).await?;
        // Edits come first. Without enough time the next tick mirrors. A newer configuration has its own publisher.
        let is_current = matches!(drained.ending, Ending::Done | Ending::Stopped);
        if is_current && span.for_next_drain().may_claim_after(LETTERS) {
            self.mirror_dead_letters().await;
        }
        Ok(drained)
    }

    async fn publish_for(&self, span: &Span) -> anyhow::Result<Drained> {
        let mut drained = self.drain_for(span).await?;
        // If EventBridge refuses writes now, it may refuse lists too, and the sweep would only enqueue more writes.
        if drained.ending != Ending::Done {
            return Ok(drained);
        }
        match self.sweep_for(span).await {
            Ok(Swept::NotNow) => {}
            Ok(_) => drained.add_drain(self.drain_for(span).await?),
            Err(error) => tracing::warn!("sweep stopped: {error:#}"),
        }
        Ok(drained)
    }
}
