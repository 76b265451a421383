//! Step 7 of 7: the background jobs: what must happen though nobody asks.
//!
//! A job is a reconciler: it takes no input, looks at the database, does a bounded batch of what is
//! to be done, and says what it did; done twice, it does no harm. Its next turn is its retry. The
//! table `jobs` sees to it that each is at work on one instance at a time, and never beside itself.

mod failures;
mod table;
mod turns;

use futures::future::BoxFuture;

use crate::App;
use crate::cadence::When;
use crate::config::Config;
use crate::{backfills, prune, queue, recover, timeouts, watchdog};

pub(crate) use failures::fail_at_end;
pub use table::{LastResult, Status, list};
pub(crate) use turns::take_turns;

/// What a job does.
pub type Work = fn(App) -> BoxFuture<'static, anyhow::Result<Did>>;

/// One job, as this instance knows it.
#[derive(Clone)]
pub struct Job {
    /// Its row in the table `jobs`.
    pub name: &'static str,
    /// When it is due again.
    pub when: When,
    /// What it does.
    pub run: Work,
}

/// What a turn of a job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// There was nothing to do.
    Nothing,
    /// All that there was; in a sentence, for the log.
    All(String),
    /// A full batch: there may be more, so the next turn is at once.
    Some(String),
}

/// All jobs, in the order in which a reader should meet them.
#[must_use]
pub fn registry(config: &Config) -> Vec<Job> {
    vec![
        Job {
            name: "watchdog",
            when: config.job_watchdog.clone(),
            run: |app| Box::pin(async move { watchdog::look(&app).await }),
        },
        Job {
            name: "queue",
            when: config.job_queue.clone(),
            run: |app| Box::pin(async move { queue::look(&app).await }),
        },
        Job {
            name: "backfills",
            when: config.job_backfills.clone(),
            run: |app| Box::pin(async move { backfills::work(&app).await }),
        },
        Job {
            name: "recovery",
            when: When::every_secs(config.recovery_interval_secs),
            run: |app| Box::pin(async move { recover::recover(&app).await }),
        },
        Job {
            name: "timeouts",
            when: config.job_timeouts.clone(),
            run: |app| Box::pin(async move { timeouts::sweep(&app).await }),
        },
        Job {
            name: "prune",
            when: config.job_prune.clone(),
            run: |app| Box::pin(async move { prune::prune(&app).await }),
        },
    ]
}
