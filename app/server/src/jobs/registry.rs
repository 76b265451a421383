//! Step 7 of 7: all background jobs, with their cadence and their pass.

use executor::{recovery, timeouts};
use ledger::admission::queue;
use ledger::verify::daily;
use ledger::{backfills, bulk, stats, watchdog};
use workflows::audit::chain;
use workflows::events;

use super::{Job, heartbeat, notification_passes, passes, prune};
use crate::cadence::When;
use crate::config::Config;

/// All jobs, in reading order.
#[must_use]
pub fn all_jobs(config: &Config) -> Vec<Job> {
    let watchdogs = watchdog::JOBS.map(|name| Job {
        name,
        when: config.job_watchdog.clone(),
        run: |app| Box::pin(async move { passes::run_watchdog(&app).await }),
        group: Some(watchdog::JOB),
    });
    let others = [
        Job {
            name: queue::JOB,
            when: config.job_queue.clone(),
            run: |app| Box::pin(async move { passes::run_queue(&app).await }),
            group: None,
        },
        Job {
            name: backfills::JOB,
            when: config.job_backfills.clone(),
            run: |app| Box::pin(async move { passes::run_backfills(&app).await }),
            group: None,
        },
        Job {
            name: bulk::JOB,
            when: config.job_backfills.clone(),
            run: |app| Box::pin(async move { passes::run_bulk(&app).await }),
            group: None,
        },
        Job {
            name: recovery::JOB,
            when: When::every_secs(config.recovery_interval_secs),
            run: |app| Box::pin(async move { passes::run_recovery(&app).await }),
            group: None,
        },
        Job {
            name: timeouts::JOB,
            when: config.job_timeouts.clone(),
            run: |app| Box::pin(async move { passes::run_timeouts(&app).await }),
            group: None,
        },
        Job {
            name: stats::JOB,
            when: config.job_statistics.clone(),
            run: |app| Box::pin(async move { passes::run_statistics(&app).await }),
            group: None,
        },
        Job {
            name: chain::JOB,
            when: config.job_audit.clone(),
            run: |app| Box::pin(async move { passes::run_audit(&app).await }),
            group: None,
        },
        Job {
            name: events::JOB,
            when: When::every_secs(events::REMOVED_EVERY_SECS),
            run: |app| Box::pin(async move { passes::run_events(&app).await }),
            group: None,
        },
        Job {
            name: notifications::JOB,
            when: config.job_notifications.clone(),
            run: |app| Box::pin(async move { notification_passes::run_notifications(&app).await }),
            group: None,
        },
        Job {
            name: notifications::CONDITIONS_JOB,
            when: config.job_conditions.clone(),
            run: |app| Box::pin(async move { notification_passes::run_conditions(&app).await }),
            group: None,
        },
        Job {
            name: daily::JOB,
            when: config.job_verify.clone(),
            run: |app| Box::pin(async move { notification_passes::run_verify(&app).await }),
            group: None,
        },
        Job {
            name: heartbeat::JOB,
            when: When::every_secs(heartbeat::EVERY_SECS),
            run: |app| Box::pin(async move { heartbeat::run_heartbeat(&app).await }),
            group: None,
        },
        Job {
            name: prune::JOB,
            when: config.job_prune.clone(),
            run: |app| Box::pin(async move { passes::run_prune(&app).await }),
            group: None,
        },
    ];
    watchdogs.into_iter().chain(others).collect()
}
