//! Step 7 of 7: the background jobs, which run without a request.
//!
//! A job is a reconciler: it has no input, scans the database, processes a bounded batch, and reports what it did.
//! Repeating it does no harm, so its next turn is its retry. The table `jobs` ensures that each job runs on one
//! instance at a time, and never twice at once.

mod failures;
mod table;
mod turns;
mod when;

use futures::future::BoxFuture;

use crate::App;
use crate::config::Config;
use crate::{backfills, prune, queue, recover, timeouts, watchdog};

pub(crate) use failures::{concerns_one_workflow, fail_at_end, skip_failed, store_failed};
pub use table::{LastResult, Status, list};
pub(crate) use turns::take_turns;
pub use when::{When, WhenError};

/// The function of a job.
pub type Work = fn(App) -> BoxFuture<'static, anyhow::Result<Did>>;

/// One job, as this instance defines it.
#[derive(Clone)]
pub struct Job {
    /// Its key in the table `jobs`.
    pub name: &'static str,
    /// When it is due again.
    pub when: When,
    /// Its function.
    pub run: Work,
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// There was nothing to do.
    Nothing,
    /// Everything was processed; one sentence for the log.
    All(String),
    /// A full batch was processed: more may remain, so the next turn follows at once.
    Some(String),
}

/// All jobs, in reading order.
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
