//! Steps 3 and 4 of 7: one publisher: its settings, its ports, and what it knows from drain to drain.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use db::PgPool;
use schedule::Clock;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use crate::claim::deployment::Generation;
use crate::claim::low_water::LowWater;
use crate::claim::publishers::Presence;
use crate::claim::{BackoffRelease, Claimant};
use crate::config::Config;
#[cfg(test)]
use crate::config::DeadLetterSettings;
use crate::converge::backoff::Backoff;
use crate::converge::evidence::Evidence;
#[cfg(debug_assertions)]
use crate::failpoint::Hook;
use crate::failpoint::{Injector, Point};
use crate::last_check::LastCheck;
use crate::letters::Sources;
use crate::metrics::Metrics;
use crate::scheduler::client::Schedules;
#[cfg(test)]
use crate::scheduler::client::scheduler_client;
use crate::scheduler::fault::{Fault, Kind};
use crate::scheduler::lease::{End, Lease, Renewal, Span};
use crate::scheduler::list::LISTS_PER_SEC;
use crate::scheduler::rate::Rate;
use crate::scheduler::spec::TEMPLATE;
use crate::settle::settlement::Settlement;

/// A claim costs a transaction, so a batch is at least this large at any concurrency.
const SMALLEST_BATCH: u16 = 16;
/// How many repairs may be in flight, however low `CRONBOX_API_TPS` is.
const FEWEST_REPAIRS: usize = 4;
/// How often a publisher checks which zone data are in force.
const ZONES_POLL: Duration = Duration::from_secs(15);
/// How long a lost notification delays an edit at most.
const POLL: Duration = Duration::from_secs(5);

/// One publisher; clones share it.
#[derive(Clone)]
pub struct Publisher(Arc<Parts>);

struct Parts {
    config: Config,
    pool: PgPool,
    schedules: Schedules,
    clock: Clock,
    claimant: Claimant,
    low_water: LowWater,
    places: Semaphore,
    rate: Rate,
    list_rate: Rate,
    backoff: Backoff,
    evidence: Evidence,
    metrics: Metrics,
    injector: Injector,
    end: End,
    presence: Presence,
    revived: LastCheck,
    release: Mutex<Option<BackoffRelease>>,
    locked: Mutex<Vec<Settlement>>,
    zones: LastCheck,
    letters: Sources,
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
    pub fn with_hook(
        config: Config,
        pool: PgPool,
        scheduler: aws_sdk_scheduler::Client,
        clock: Clock,
        hook: Hook,
    ) -> Self {
        Self::with(config, pool, scheduler, clock, Backoff::with_seed(hook.seed), Injector::with_hook(hook))
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
            low_water: LowWater::default(),
            places: Semaphore::new(usize::from(config.api_concurrency)),
            rate: Rate::new(config.api_tps),
            list_rate: Rate::new(LISTS_PER_SEC),
            backoff,
            evidence: Evidence::default(),
            metrics: Metrics::of_queues(config.letters.queue_urls().map(|(name, _)| name).collect()),
            injector,
            end: End::default(),
            presence: Presence::default(),
            revived: LastCheck::default(),
            release: Mutex::default(),
            locked: Mutex::default(),
            zones: LastCheck::default(),
            letters: Sources::new(config.letters.clone()),
            poll: POLL,
            config,
            pool,
            clock,
        }))
    }

    /// Creates a publisher for a unit test, with the database and the EventBridge at these addresses.
    #[cfg(test)]
    pub(crate) async fn of_test(dsn: &str, endpoint: &str) -> Self {
        let options = db::Options {
            dsn: dsn.to_owned(),
            pooler: db::Pooler::None,
            direct_dsn: None,
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
            letters: DeadLetterSettings::default(),
            #[cfg(debug_assertions)]
            fault: None,
        };
        Self::new(config, db::create_pool(&options).unwrap(), scheduler_client(Some(endpoint)).await, Clock::System)
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
    pub fn shut_down(&self) {
        self.0.end.signal_end(self.now());
    }

    /// Monotonic time, by which deadlines are measured.
    pub(crate) fn now(&self) -> Instant {
        self.injector().stopwatch().now()
    }

    /// Creates a span until `deadline`, if there is one, or until [`Publisher::shut_down`].
    pub(crate) fn new_span(&self, deadline: Option<Instant>, renewal: Renewal) -> Span {
        Span::new(deadline, renewal, self.0.end.clone(), self.injector().stopwatch())
    }

    /// How often a daemon polls.
    pub(crate) fn poll(&self) -> Duration {
        self.0.poll
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    pub(crate) fn schedules(&self) -> &Schedules {
        &self.0.schedules
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(crate) fn claimant(&self) -> &Claimant {
        &self.0.claimant
    }

    /// Where claims begin to read.
    pub(crate) fn low_water(&self) -> &LowWater {
        &self.0.low_water
    }

    /// How many repairs may be in flight: what is published in half a second, so that an edit waits no longer.
    pub(crate) fn most_repairs_in_flight(&self) -> usize {
        usize::try_from(self.config().api_tps / 2).unwrap_or(usize::MAX).max(FEWEST_REPAIRS)
    }

    /// The name under which this publisher claims and sweeps.
    pub(crate) fn owner(&self) -> &str {
        &self.0.claimant.owner
    }

    pub(crate) fn rate(&self) -> &Rate {
        &self.0.rate
    }

    /// The rate of the lists, which have their own quota.
    pub(crate) fn list_rate(&self) -> &Rate {
        &self.0.list_rate
    }

    pub(crate) fn backoff(&self) -> &Backoff {
        &self.0.backoff
    }

    pub(crate) fn evidence(&self) -> &Evidence {
        &self.0.evidence
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn presence(&self) -> &Presence {
        &self.0.presence
    }

    /// When failed workflows were last checked.
    pub(crate) fn revive_check(&self) -> &LastCheck {
        &self.0.revived
    }

    /// The release of backed-off workflows that is not complete yet.
    pub(crate) fn pending_release(&self) -> Option<BackoffRelease> {
        *self.0.release.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how the release continues, `None` = it is complete.
    pub(crate) fn set_release(&self, release: Option<BackoffRelease>) {
        *self.0.release.lock().unwrap_or_else(PoisonError::into_inner) = release;
    }

    /// Answered calls that could not be settled yet, because other transactions have locked their publications.
    pub(crate) fn locked_settlements(&self) -> MutexGuard<'_, Vec<Settlement>> {
        self.0.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another drain may settle what was locked in the last one.
    pub(crate) fn has_locked(&self) -> bool {
        !self.locked_settlements().is_empty()
    }

    /// The dead-letter queues, and the app to which they are redriven.
    pub(crate) fn sources(&self) -> &Sources {
        &self.0.letters
    }

    pub(crate) fn injector(&self) -> &Injector {
        &self.0.injector
    }

    /// Whether to check again which zone data are in force.
    pub(crate) fn zones_are_due(&self) -> bool {
        self.0.zones.is_due(ZONES_POLL, Instant::now())
    }

    /// Waits for a place among the calls in flight; `None` never happens, because the semaphore is never closed.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.0.places.acquire().await.ok()
    }

    /// Waits for a free place among the calls in flight and for its slot, then makes the call, if the lease is still
    /// valid.
    ///
    /// If the call is throttled, `quota` slows down: lists have their own quota.
    pub(crate) async fn call_when_allowed<T>(
        &self,
        lease: &Lease,
        quota: &Rate,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let _place = tokio::select! {
            biased;
            place = self.place() => place,
            // The calls in flight may take long, so a call that waits for a place returns at once.
            () = lease.wait_for_end() => return Err(Fault::not_sent()),
        };
        self.rate().wait_for_slot(|| lease.is_live()).await;
        if !lease.is_live() {
            return Err(Fault::not_sent());
        }
        self.injector().pass_point(Point::P6).await;
        let sent = tokio::time::Instant::now();
        let answer = call.await;
        self.metrics().count_call(&answer);
        if let Err(Fault { kind: Kind::Throttled, .. }) = &answer {
            quota.record_throttled(sent);
        }
        self.injector().pass_point(Point::P8).await;
        answer
    }
}
