//! Steps 1 and 7 of 7: the state of one instance of the app, which its handlers and jobs use.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use access::gate::Gate;
use access::hosts::HostLists;
use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use egress::Client;
use egress::allowed::Allowed;
use executor::{Executor, Wake};
use ledger::admission::queue;
use ledger::invoke::FireDecider;
use ledger::runs::OfferedSlots;
use ledger::{backfills, bulk};
use moka::future::Cache;
use notifications::condition::ConditionCursors;
use notifications::delivery::{Courier, CourierParts};
use schedule::{Clock, WorkflowId};
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use workflows::notify::Notifier;
use workflows::secrets::Secrets;

use crate::clock::{self, ClockSkew};
use crate::config::Config;
use crate::heartbeat::Heartbeat;
use crate::identity_provider::IdentityProvider;
use crate::lines::Lines;
use crate::metrics::{MetricLabel, Metrics, Refused, Sources};
use crate::pools::Pools;
use crate::refusals::{Refusal, RefusalLog};

/// How many edits of one workflow wait for their turn at most.
const EDITS_THAT_WAIT: usize = 100;

/// For how long the answer of the database to `/readyz` is cached: anyone may request it.
const READINESS_FRESH_FOR: Duration = Duration::from_secs(1);

/// One instance of the app; any number of instances may share a database.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The state that the handlers use.
pub struct Parts {
    /// The id of this instance, which owns the leases of its runs and jobs.
    pub instance: Uuid,
    /// The configuration.
    pub config: Config,
    /// How long occurrences are kept, by the configuration.
    pub ledger_kept: TimeDelta,
    /// The connections to the database, by purpose.
    pub pools: Pools,
    /// Business time: the database's, or a test's.
    pub clock: Clock,
    /// How far this instance's own clock differs from the database's.
    pub clock_skew: ClockSkew,
    /// Authenticates keys, and counts what it refuses, for the audit log.
    pub gate: Gate,
    /// Decides fires.
    pub decider: FireDecider,
    /// Which addresses http actions may reach.
    pub allowed: Allowed,
    /// Which hosts the teams may call, for their edits.
    pub host_lists: HostLists,
    /// Notifies the publisher of edits.
    pub notifier: Notifier,
    /// The slots that the executor offers to the fires of `decider`.
    pub offered_slots: OfferedSlots,
    /// Notifies the executor of runs.
    pub wake: Wake,
    /// Where the next pass of the job `queue` begins on this instance.
    pub queue_cursor: queue::QueueCursor,
    /// Where the next pass of the job `backfills` begins on this instance.
    pub backfill_cursor: backfills::BackfillCursor,
    /// Where the next pass of the job `conditions` begins on this instance, of each team with many runs.
    pub condition_cursors: ConditionCursors,
    /// Where the next pass of the job `bulk` begins on this instance.
    pub bulk_cursor: bulk::BulkCursor,
    /// The metrics of `/metrics`.
    pub metrics: Metrics,
    /// Decides which refused requests are logged.
    pub(crate) refusal_log: RefusalLog,
    /// Why no run starts, if the database answered and accepted a write in the last second.
    pub(crate) readiness: Cache<(), Option<String>>,
    /// Encrypts and decrypts the secrets of teams.
    pub secrets: Secrets,
    /// Requests in flight; each is completed.
    pub requests: TaskTracker,
    /// The edits of a workflow by the callers of one team, which begin one after another.
    pub(crate) edits_of_row: Lines<(Option<i64>, WorkflowId)>,
    /// The edits of a team, which leave a quarter of the connections for edits to the other teams.
    pub(crate) edits_of_team: Lines<i64>,
    /// The reads of the open streams of a team, which have one connection for reads at most.
    pub(crate) streams_of_team: Lines<Option<i64>>,
    /// The provider with which people sign in, if the operator has set one.
    identity_provider: OnceLock<IdentityProvider>,
    /// Delivers notifications, once the app serves.
    courier: OnceLock<Courier>,
    /// The receiver of pings, if the operator has set one.
    heartbeat: OnceLock<Heartbeat>,
    /// The requests for bulk operations of a team, which select up to 100,000 rows each, one after another.
    /// Those of an admin have a line of their own: they stop what a team floods.
    pub(crate) bulk_requests_of_team: Lines<(Option<i64>, i64)>,
    /// The lists of a team, which use a third of the connections for reads at most.
    pub(crate) lists_of_team: Lines<Option<i64>>,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    /// Creates an instance on a migrated database that encrypts no secrets; a running clock becomes the database's.
    #[must_use]
    pub fn new(config: Config, pools: impl Into<Pools>, clock: Clock) -> Self {
        Self::with_secrets(config, pools, clock, Secrets::default())
    }

    /// As [`App::new`], with the keys that encrypt secrets.
    #[must_use]
    pub fn with_secrets(config: Config, pools: impl Into<Pools>, clock: Clock, secrets: Secrets) -> Self {
        let pools = pools.into();
        let ledger_kept = config.ledger_kept();
        let offered_slots = OfferedSlots::new(config.executor_capacity());
        Self(Arc::new(Parts {
            instance: Uuid::new_v4(),
            gate: Gate::new(config.gate_limits()),
            decider: FireDecider::with_slots(pools.fires.clone(), ledger_kept, offered_slots.clone()),
            allowed: config.allowed(),
            host_lists: HostLists::default(),
            notifier: Notifier::default(),
            offered_slots,
            wake: Wake::default(),
            queue_cursor: queue::QueueCursor::default(),
            backfill_cursor: backfills::BackfillCursor::default(),
            condition_cursors: ConditionCursors::default(),
            bulk_cursor: bulk::BulkCursor::default(),
            metrics: Metrics::default(),
            refusal_log: RefusalLog::default(),
            readiness: Cache::builder().max_capacity(1).time_to_live(READINESS_FRESH_FOR).build(),
            requests: TaskTracker::default(),
            edits_of_row: Lines::new(1, EDITS_THAT_WAIT),
            edits_of_team: Lines::new(all_but_share(&pools.edits, 4), usize::MAX),
            bulk_requests_of_team: Lines::new(1, usize::MAX),
            streams_of_team: Lines::new(1, usize::MAX),
            lists_of_team: Lines::new(share(&pools.reads, 3), usize::MAX),
            identity_provider: OnceLock::new(),
            courier: OnceLock::new(),
            heartbeat: OnceLock::new(),
            config,
            ledger_kept,
            pools,
            clock: clock::of_database(clock),
            clock_skew: ClockSkew::default(),
            secrets,
        }))
    }

    /// Reads the settings of the provider with which people sign in, before the app serves.
    ///
    /// # Errors
    /// Fails if a setting or a file is not valid.
    pub fn prepare_identity_provider(&self) -> anyhow::Result<()> {
        if let Some(settings) = self.config.oidc.read_settings()? {
            let provider = IdentityProvider::new(settings)?;
            self.identity_provider.set(provider).map_err(|_| anyhow::anyhow!("the provider is set twice"))?;
        }
        Ok(())
    }

    /// Prepares the deliveries of notifications, before the app serves.
    ///
    /// # Errors
    /// Fails if a setting of the mail server is not valid.
    pub(crate) fn prepare_courier(&self, client: Client) -> anyhow::Result<()> {
        let courier = Courier::new(CourierParts {
            pool: self.pools.work.clone(),
            client,
            mailer: self.config.mail.mailer()?,
            secrets: self.secrets.clone(),
            environment: self.config.env.to_string(),
            public_url: self.config.mail.public_url.clone(),
        });
        // A second call, of a test that serves an instance again, changes nothing.
        self.courier.set(courier).ok();
        Ok(())
    }

    /// Delivers notifications.
    ///
    /// # Errors
    /// Fails before the app serves.
    pub(crate) fn courier(&self) -> anyhow::Result<&Courier> {
        self.courier.get().context("the app does not serve yet")
    }

    /// Reads the settings of the heartbeat, before the app serves.
    ///
    /// # Errors
    /// Fails if its URL is not valid.
    pub fn prepare_heartbeat(&self) -> anyhow::Result<()> {
        if let Some(url) = self.config.heartbeat_url.as_ref().filter(|url| !url.is_empty()) {
            let heartbeat = Heartbeat::new(url, self.config.heartbeat_allow_http)?;
            self.heartbeat.set(heartbeat).map_err(|_| anyhow::anyhow!("the heartbeat is set twice"))?;
        }
        Ok(())
    }

    /// The receiver of pings, if the operator has set one.
    pub(crate) fn heartbeat(&self) -> Option<&Heartbeat> {
        self.heartbeat.get()
    }

    /// The provider with which people sign in, if the operator has set one.
    pub(crate) fn identity_provider(&self) -> Option<&IdentityProvider> {
        self.identity_provider.get()
    }

    /// Reads the database's time for one pass of a job, and corrects the app's clock. A set clock returns its own time.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn database_time(&self) -> sqlx::Result<DateTime<Utc>> {
        clock::sample_clock(&self.pools.work, &self.clock, &self.clock_skew).await
    }

    /// Counts a refusal, and logs it unless there were many of its kind.
    pub(crate) fn note_refusal(&self, refusal: &Refusal<'_>) {
        self.metrics.refusals.get_or_create(&Refused { reason: MetricLabel(refusal.reason) }).inc();
        self.refusal_log.log_sample(refusal, Instant::now());
    }

    /// The same for a connection, of which the app knows only the address.
    pub(crate) fn note_connection_refusal(&self, reason: &'static str, address: IpAddr) {
        self.note_refusal(&Refusal { reason, address, key_prefix: None, route: None });
    }

    /// Creates an executor of this instance, which has claimed nothing yet.
    #[must_use]
    pub fn new_executor(&self, client: Client) -> Executor {
        let parts = executor::Parts {
            instance: self.instance,
            pool: self.pools.work.clone(),
            leases: self.pools.leases.clone(),
            clock: self.clock.clone(),
            settings: self.config.executor_settings(),
            offered: self.offered_slots.clone(),
            wake: self.wake.clone(),
            notifier: self.notifier.clone(),
            secrets: self.secrets.clone(),
            activity: self.metrics.executor.clone(),
        };
        Executor::new(parts, client)
    }

    /// Renders the metrics of this instance and of the ledger in Prometheus' text format.
    ///
    /// # Errors
    /// Writing into a `String` never fails.
    pub(crate) async fn render_metrics(&self) -> Result<String, std::fmt::Error> {
        let sources = Sources {
            pool: &self.pools.reads,
            pools: &self.pools.by_name(),
            slots: self.config.executor_slots,
            used_slots: self.offered_slots.count_used(),
            now: self.clock.now(),
            clock_skew: &self.clock_skew,
        };
        self.metrics.render_metrics(sources).await
    }
}

/// How many connections of a pool one team may use, if that is one in `parts`.
fn share(pool: &PgPool, parts: u32) -> usize {
    let share = (pool.raw_pool().options().get_max_connections() / parts).max(1);
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// How many connections of a pool one team may use, if it leaves one in `parts` to the other teams.
fn all_but_share(pool: &PgPool, parts: u32) -> usize {
    let all = usize::try_from(pool.raw_pool().options().get_max_connections()).unwrap_or(usize::MAX);
    all.saturating_sub(share(pool, parts)).max(1)
}
