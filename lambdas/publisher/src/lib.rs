//! Steps 3 and 4 of 7: the publisher drains the outbox into EventBridge Scheduler.
//!
//! [`Publisher::drain`] is a pipeline of batches: **claim** what is due, by workflow
//! (`outbox.rs`), **read** those workflows as they stand (`workflows.rs`, `desired.rs`),
//! **converge** their schedules, holding neither transaction nor connection (`converge.rs`,
//! `schedules.rs`), and **settle** what became of it, fenced by epoch (`settle.rs`). While one batch
//! waits for EventBridge, the next is claimed and the last is settled.
//!
//! [`Publisher::sweep`] holds all that stands in EventBridge against the database now and then, and
//! has the drain repair what somebody else has changed (`sweep.rs`).
//!
//! It is a reconciler: whatever dies, the lease lapses and somebody looks again; nothing is
//! replayed, so repeats do no harm. However many publishers run, one works on a workflow.

mod backoff;
mod config;
mod converge;
mod desired;
mod drain;
mod evidence;
mod fault;
mod inject;
mod lambda;
mod lease;
mod levels;
mod listen;
mod login;
mod metrics;
mod once;
mod outbox;
mod pipeline;
mod rate;
mod report;
mod schedules;
mod secret;
mod settle;
mod settlement;
mod sharers;
mod stopwatch;
mod sweep;
mod work;
mod workflows;

use std::sync::Arc;

use schedule::Clock;
use sqlx::PgPool;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

pub use config::{Arguments, Config, Database};
#[cfg(debug_assertions)]
pub use inject::{Fault, Hook, Point};
pub use lambda::serve as serve_lambda;
pub use login::Login;
pub use report::{Report, Unsettled};
pub use schedules::scheduler_client;
#[cfg(debug_assertions)]
pub use stopwatch::Stopwatch;
pub use sweep::{Findings, Swept};

use crate::backoff::Backoff;
use crate::evidence::Evidence;
use crate::inject::Injector;
use crate::metrics::Metrics;
use crate::outbox::Claimant;
use crate::rate::Rate;
use crate::schedules::Schedules;

/// A claim costs a transaction, whatever the concurrency.
const SMALLEST_BATCH: u16 = 16;

/// One publisher; clones are the same one.
#[derive(Clone)]
pub struct Publisher(Arc<Parts>);

struct Parts {
    config: Config,
    pool: PgPool,
    schedules: Schedules,
    clock: Clock,
    claimant: Claimant,
    places: Semaphore,
    rate: Rate,
    list_rate: Rate,
    backoff: Backoff,
    evidence: Evidence,
    metrics: Metrics,
    injector: Injector,
}

impl Publisher {
    /// Makes a publisher; it does nothing until it is told to drain.
    pub fn new(config: Config, pool: PgPool, scheduler: aws_sdk_scheduler::Client, clock: Clock) -> Self {
        #[cfg(debug_assertions)]
        let injector = Injector::new(config.fault.clone());
        #[cfg(not(debug_assertions))]
        let injector = Injector;
        Self::with(config, pool, scheduler, clock, Backoff::default(), injector)
    }

    /// Makes a publisher that is stopped and set going by a test.
    #[cfg(debug_assertions)]
    pub fn hooked(
        config: Config,
        pool: PgPool,
        scheduler: aws_sdk_scheduler::Client,
        clock: Clock,
        hook: Hook,
    ) -> Self {
        Self::with(config, pool, scheduler, clock, Backoff::seeded(hook.seed), Injector::hooked(hook))
    }

    fn with(
        config: Config,
        pool: PgPool,
        scheduler: aws_sdk_scheduler::Client,
        clock: Clock,
        backoff: Backoff,
        injector: Injector,
    ) -> Self {
        Publisher(Arc::new(Parts {
            schedules: Schedules::new(scheduler, config.schedule_group.clone()),
            claimant: Claimant {
                owner: format!("publisher-{}", Uuid::new_v4()),
                // What cannot be in the air at once is left to the other publishers.
                batch_size: config.batch_size.min(config.api_concurrency.max(SMALLEST_BATCH)),
                max_attempts: config.max_attempts,
            },
            places: Semaphore::new(usize::from(config.api_concurrency)),
            rate: Rate::new(config.api_tps),
            list_rate: Rate::new(sweep::LISTS_PER_SEC),
            backoff,
            evidence: Evidence::default(),
            metrics: Metrics::default(),
            injector,
            config,
            pool,
            clock,
        }))
    }

    fn config(&self) -> &Config {
        &self.0.config
    }

    fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    fn schedules(&self) -> &Schedules {
        &self.0.schedules
    }

    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn claimant(&self) -> &Claimant {
        &self.0.claimant
    }

    fn rate(&self) -> &Rate {
        &self.0.rate
    }

    /// The pace of the lists, which have a quota of their own.
    fn list_rate(&self) -> &Rate {
        &self.0.list_rate
    }

    fn backoff(&self) -> &Backoff {
        &self.0.backoff
    }

    fn evidence(&self) -> &Evidence {
        &self.0.evidence
    }

    fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    fn injector(&self) -> &Injector {
        &self.0.injector
    }

    /// A place among the calls in flight; `None` never happens, the semaphore is never closed.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.0.places.acquire().await.ok()
    }
}
