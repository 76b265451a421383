//! Steps 3 and 4 of 7: the publisher drains the outbox into EventBridge Scheduler.
//!
//! [`Publisher::drain`] is a pipeline of batches: **claim** what is due, by workflow (`outbox.rs`), **read** the
//! current state of those workflows (`workflows.rs`, `desired.rs`), **converge** their schedules without an open
//! transaction or a connection in use (`converge.rs`, `schedules.rs`), and **settle** the outcomes, fenced by epoch
//! (`settle.rs`). While one batch waits for EventBridge, the next is claimed and the previous one is settled.
//!
//! [`Publisher::sweep`] periodically compares all schedules in EventBridge with the database, and makes the drain
//! repair what other programs have changed (`sweep.rs`).
//!
//! The publisher is a reconciler: if a process crashes, its lease expires and another one checks the workflow again.
//! Nothing is replayed, so repeats do no harm. However many publishers run, only one processes a workflow at a time.

mod arn;
mod backoff;
mod config;
mod converge;
mod database_error;
mod deployment;
mod desired;
mod drain;
mod evidence;
mod existing;
mod fault;
mod identity;
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
mod revive;
mod rollout;
mod schedules;
mod secret;
mod settle;
mod settlement;
mod sharers;
mod spec;
mod stopwatch;
mod sweep;
mod work;
mod workflows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use db::PgPool;
use schedule::Clock;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

pub use config::{Arguments, Config, Database};
#[cfg(debug_assertions)]
pub use inject::{Fault, Hook, Point};
pub use lambda::serve as serve_lambda;
pub use login::Login;
pub use report::{Report, Stopped, Unsettled};
pub use schedules::scheduler_client;
#[cfg(debug_assertions)]
pub use stopwatch::Stopwatch;
pub use sweep::{Findings, Swept};

use crate::backoff::Backoff;
use crate::deployment::Generation;
use crate::evidence::Evidence;
use crate::inject::Injector;
use crate::lease::{End, Renewal, Span};
use crate::metrics::Metrics;
use crate::outbox::Claimant;
use crate::rate::Rate;
use crate::revive::Revived;
use crate::schedules::Schedules;
use crate::settlement::Settlement;
use crate::sharers::Presence;
use crate::spec::TEMPLATE;

/// A claim costs a transaction, so a batch is at least this large at any concurrency.
const SMALLEST_BATCH: u16 = 16;
/// How often a publisher checks which zone data are in force.
const ZONES_POLL: Duration = Duration::from_secs(15);

/// One publisher; clones share it.
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
    end: End,
    presence: Presence,
    revived: Revived,
    locked: Mutex<Vec<Settlement>>,
    zones_asked: Mutex<Option<Instant>>,
    poll: Duration,
}

impl Publisher {
    /// Creates a publisher; it does nothing until a drain or a sweep is called.
    pub fn new(config: Config, pool: PgPool, scheduler: aws_sdk_scheduler::Client, clock: Clock) -> Self {
        #[cfg(debug_assertions)]
        let injector = Injector::new(config.fault.clone());
        #[cfg(not(debug_assertions))]
        let injector = Injector;
        Self::with(config, pool, scheduler, clock, Backoff::default(), injector)
    }

    /// Creates a publisher that a test stops and continues.
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
                // Workflows that cannot be called at once are left to the other publishers.
                batch_size: config.batch_size.min(config.api_concurrency.max(SMALLEST_BATCH)),
                max_attempts: config.max_attempts,
                generation: Generation { number: config.config_generation, template: TEMPLATE },
            },
            places: Semaphore::new(usize::from(config.api_concurrency)),
            rate: Rate::new(config.api_tps),
            list_rate: Rate::new(sweep::LISTS_PER_SEC),
            backoff,
            evidence: Evidence::default(),
            metrics: Metrics::default(),
            injector,
            end: End::default(),
            presence: Presence::default(),
            revived: Revived::default(),
            locked: Mutex::default(),
            zones_asked: Mutex::default(),
            poll: listen::POLL,
            config,
            pool,
            clock,
        }))
    }

    /// Creates a publisher for a unit test, with the database and the EventBridge at these addresses.
    #[cfg(test)]
    async fn of_test(dsn: &str, endpoint: &str) -> Self {
        let options = db::Options {
            dsn: dsn.to_owned(),
            max_connections: 1,
            acquire_timeout: Duration::from_secs(5),
            application_name: "cronbox test",
        };
        let config = Config {
            env: "test".parse().unwrap(),
            runner_lambda_arn: String::new(),
            scheduler_role_arn: String::new(),
            schedule_group: "group".to_owned(),
            schedule_dlq_arn: String::new(),
            batch_size: 1,
            max_attempts: 1,
            api_concurrency: 1,
            api_tps: 100,
            config_generation: 0,
            #[cfg(debug_assertions)]
            fault: None,
        };
        Self::new(config, db::pool(&options).unwrap(), scheduler_client(Some(endpoint)).await, Clock::System)
    }

    /// Returns the same publisher, if it has no clones, with another pause between two polls of its daemon.
    #[cfg(debug_assertions)]
    #[must_use]
    pub fn polling_every(mut self, poll: Duration) -> Self {
        if let Some(parts) = Arc::get_mut(&mut self.0) {
            parts.poll = poll;
        }
        self
    }

    /// Ends this publisher, as a signal does: workflows that are claimed but not called are returned.
    pub fn end(&self) {
        self.0.end.set(self.now());
    }

    /// Monotonic time, by which deadlines are measured.
    fn now(&self) -> Instant {
        self.injector().stopwatch().now()
    }

    /// Creates a span until `deadline`, if there is one, or until [`Publisher::end`].
    fn span(&self, deadline: Option<Instant>, renewal: Renewal) -> Span {
        Span::new(deadline, renewal, self.0.end.clone(), self.injector().stopwatch())
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

    /// The name under which this publisher claims and sweeps.
    fn owner(&self) -> &str {
        &self.0.claimant.owner
    }

    fn rate(&self) -> &Rate {
        &self.0.rate
    }

    /// The rate of the lists, which have their own quota.
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

    fn presence(&self) -> &Presence {
        &self.0.presence
    }

    fn revived(&self) -> &Revived {
        &self.0.revived
    }

    /// Answered calls that could not be settled yet, because other transactions have locked their publications.
    fn locked(&self) -> MutexGuard<'_, Vec<Settlement>> {
        self.0.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another drain may settle what was locked in the last one.
    fn has_locked(&self) -> bool {
        !self.locked().is_empty()
    }

    fn injector(&self) -> &Injector {
        &self.0.injector
    }

    /// Whether to check again which zone data are in force.
    fn zones_are_due(&self) -> bool {
        let mut asked = self.0.zones_asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= ZONES_POLL);
        if is_due {
            *asked = Some(Instant::now());
        }
        is_due
    }

    /// Waits for a place among the calls in flight; `None` never happens, because the semaphore is never closed.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.0.places.acquire().await.ok()
    }
}
