//! Steps 3 and 4 of 7: `--once`, for scripts and tests: returns when EventBridge has all edits.

use std::time::Duration;

use anyhow::bail;

use crate::claim;
use crate::claim::deployment::ACCEPT;
use crate::drain::Ending;
use crate::publisher::Publisher;
use crate::report::{Report, Stopped, Unsettled};
use crate::scheduler::lease::Renewal;

const MINUTES: u64 = 5;
/// How often to check whether another publisher has settled its leased workflows.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before the next drain after EventBridge refused all workflows.
const PAUSE_AFTER_STOP: Duration = Duration::from_secs(5);

impl Publisher {
    /// Publishes until no workflow is due or leased by another publisher; at most five minutes.
    ///
    /// A leased workflow stays due until it is settled. So "nothing is due" means that every workflow that was due or
    /// leased at the start has been settled since.
    ///
    /// # Errors
    /// Fails if the database fails. Returns [`Unsettled`] after five minutes, and [`Stopped`] if it was ended while
    /// workflows were still due.
    pub async fn publish_once(&self) -> anyhow::Result<Report> {
        let deadline = self.now() + Duration::from_secs(MINUTES * 60);
        let span = self.new_span(Some(deadline), Renewal::On);
        let mut report = Report::default();
        loop {
            let drained = self.drain_for(&span).await?;
            if drained.ending == Ending::Outdated {
                bail!(
                    "a newer configuration has published: to replace it by this one, raise CRONBOX_CONFIG_GENERATION"
                );
            }
            if drained.ending == Ending::Held {
                bail!("the database was restored or cloned: run `{ACCEPT}`");
            }
            report.add_part(drained.report);
            if !claim::has_due(self.pool()).await? {
                self.mirror_dead_letters().await;
                return Ok(report);
            }
            let pause = match drained.ending {
                Ending::Done => PAUSE,
                Ending::Stopped | Ending::Outdated | Ending::Held => PAUSE_AFTER_STOP,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = span.wait_for_end() => return Err(Stopped { report }.into()),
            }
            if !span.may_claim() {
                return Err(Unsettled { report, minutes: MINUTES }.into());
            }
        }
    }
}
