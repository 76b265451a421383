//! Steps 3 and 4 of 7: one tick: a drain, and a sweep if one is due.

use std::time::Instant;

use crate::drain::{Drained, Ending};
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::{Renewal, Span};
use crate::sweep::Swept;

impl Publisher {
    /// One tick: drains, sweeps if a sweep is due, and drains what the sweep has enqueued.
    ///
    /// # Errors
    /// Fails like [`Publisher::drain_outbox`]. A sweep that fails is logged, and the next tick continues it.
    pub async fn run_tick(&self, deadline: Instant) -> anyhow::Result<Report> {
        Ok(self.tick_for(&self.new_span(Some(deadline), Renewal::Off)).await?.report)
    }

    pub(crate) async fn tick_for(&self, span: &Span) -> anyhow::Result<Drained> {
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
