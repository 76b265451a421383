//! Steps 3 and 4 of 7: `--once`, for scripts and tests: returns when EventBridge is in step.

use std::time::{Duration, Instant};

use crate::Publisher;
use crate::drain::Ending;
use crate::lease::{Renewal, Span};
use crate::outbox;
use crate::report::{Report, Unsettled};

const MINUTES: u64 = 5;
/// How often to look whether another publisher has settled what it holds.
const PAUSE: Duration = Duration::from_millis(100);
/// Before asking an environment again that refused everybody.
const PAUSE_AFTER_STOP: Duration = Duration::from_secs(5);

impl Publisher {
    /// Works until nothing is due, nor leased by another publisher; at most five minutes.
    ///
    /// A leased workflow stays due until it is settled, so "nothing is due" says of every workflow
    /// that was due or leased at the start that it was settled since.
    ///
    /// # Errors
    /// The database's; [`Unsettled`] after five minutes.
    pub async fn once(&self) -> anyhow::Result<Report> {
        let deadline = Instant::now() + Duration::from_secs(MINUTES * 60);
        let span = Span::until(deadline, Renewal::On, self.injector().stopwatch());
        let mut report = Report::default();
        loop {
            let drained = self.drain_for(&span).await?;
            report.add(drained.report);
            if outbox::count_due(self.pool()).await? == 0 {
                return Ok(report);
            }
            if !span.may_claim() {
                return Err(Unsettled { report, minutes: MINUTES }.into());
            }
            tokio::time::sleep(match drained.ending {
                Ending::Done => PAUSE,
                Ending::Stopped => PAUSE_AFTER_STOP,
            })
            .await;
        }
    }
}
