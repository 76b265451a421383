//! Steps 1 and 7 of 7: the state of one instance of the app, which its handlers and jobs use.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use access::gate::Gate;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use executor::actions::Client;
use executor::actions::address::Allowed;
use executor::{Executor, Wake};
use ledger::invoke::FireDecider;
use ledger::runs::OfferedSlots;
use schedule::{Clock, WorkflowId};
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use workflows::notify::Notifier;

use crate::clock::{self, ClockSkew};
use crate::config::Config;
use crate::identity_provider::IdentityProvider;
use crate::lines::Lines;
use crate::metrics::Metrics;
use crate::pools::Pools;

/// How many edits of one workflow wait for their turn at most.
const EDITS_THAT_WAIT: usize = 100;

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
    /// Authenticates keys.
    pub gate: Gate,
    /// Decides fires.
    pub decider: FireDecider,
    /// Which addresses http actions may reach.
    pub allowed: Allowed,
    /// Notifies the publisher of edits.
    pub notifier: Notifier,
    /// The slots that the executor offers to the fires of `decider`.
    pub offered_slots: OfferedSlots,
    /// Notifies the executor of runs.
    pub wake: Wake,
    /// The metrics of `/metrics`.
    pub metrics: Metrics,
    /// Requests in flight; each is completed.
    pub requests: TaskTracker,
    /// The edits of a workflow by the callers of one team, which begin one after another.
    pub(crate) edits_of_row: Lines<(Option<i64>, WorkflowId)>,
    /// The edits of a team, which leave a quarter of the connections for edits to the other teams.
    pub(crate) edits_of_team: Lines<i64>,
    /// The provider with which people sign in, if the operator has set one.
    identity_provider: OnceLock<IdentityProvider>,
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
    /// Creates an instance on a migrated database; a running clock becomes the database's.
    #[must_use]
    pub fn new(config: Config, pools: impl Into<Pools>, clock: Clock) -> Self {
        let pools = pools.into();
        let ledger_kept = config.ledger_kept();
        let offered_slots = OfferedSlots::default();
        Self(Arc::new(Parts {
            instance: Uuid::new_v4(),
            gate: Gate::new(config.gate_limits()),
            decider: FireDecider::with_slots(pools.fires.clone(), ledger_kept, offered_slots.clone()),
            allowed: Allowed::new(config.action_allow_cidrs.clone()),
            notifier: Notifier::default(),
            offered_slots,
            wake: Wake::default(),
            metrics: Metrics::default(),
            requests: TaskTracker::default(),
            edits_of_row: Lines::new(1, EDITS_THAT_WAIT),
            edits_of_team: Lines::new(all_but_share(&pools.edits, 4), usize::MAX),
            lists_of_team: Lines::new(share(&pools.reads, 3), usize::MAX),
            identity_provider: OnceLock::new(),
            config,
            ledger_kept,
            pools,
            clock: clock::of_database(clock),
            clock_skew: ClockSkew::default(),
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
        };
        Executor::new(parts, client)
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
