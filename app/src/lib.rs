//! The app of cronbox: the source of truth. Edits go to the outbox, fires become runs.
//!
//! | step | file |
//! |---|---|
//! | 1 edit | `api/workflows.rs`, `api/schedules.rs`, `api/verbs.rs` -> `workflows.rs`, `schedules.rs`, `schedules_file.rs`, `spec.rs`, `patch.rs`, `versions.rs`, `audit.rs` |
//! | 2 outbox | `outbox.rs`, `nudge.rs` |
//! | 4 schedule | `drift.rs`: what the publisher's sweeps found |
//! | 7 run | `api/invoke.rs` -> `invoke.rs`, `occurrences.rs`, `owed.rs`, `by_hand.rs`, `backfills.rs`, `verify.rs`; `execute.rs` -> `runs.rs`, `actions/` |
//!
//! Steps 3 to 6 are the publisher's, EventBridge's and the runner's. This crate depends on no AWS client, so no AWS
//! call can happen inside an edit's transaction.

pub mod acceptance;
pub mod actions;
pub mod api;
pub mod audit;
pub mod backfills;
pub mod by_hand;
pub mod catch_up;
pub mod clock;
pub mod config;
pub mod drift;
pub mod execute;
mod failures;
pub mod field;
pub mod id;
pub mod identity;
#[cfg(debug_assertions)]
pub mod inject;
#[cfg(not(debug_assertions))]
mod inject;
pub mod invoke;
pub mod jobs;
pub mod keys;
pub mod metrics;
pub mod nudge;
pub mod occurrences;
pub mod outbox;
pub mod overlap;
pub mod owed;
pub mod patch;
pub mod policies;
pub mod prune;
pub mod queue;
pub mod recover;
pub mod runs;
pub mod schedules;
pub mod schedules_file;
mod serve;
mod shutdown;
pub mod spec;
pub mod spread;
pub mod stats;
pub mod teams;
pub mod timeouts;
pub mod verify;
pub mod versions;
pub mod watchdog;
pub mod workflows;
pub mod zones;

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgPool;
use schedule::Clock;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use config::Config;
pub use serve::listen;
pub use shutdown::Shutdown;

/// One instance of the app; any number of instances may share a database.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The state that the handlers use.
pub struct Parts {
    /// The id of this instance, which owns the leases of its runs and jobs.
    pub instance: Uuid,
    /// The configuration.
    pub config: Config,
    /// The database.
    pub pool: PgPool,
    /// Business time: the database's, or a test's.
    pub clock: Clock,
    /// Whether `clock` has had a sample of the database's time; before it, a running clock shows the machine's.
    pub is_clock_sampled: AtomicBool,
    /// How far this instance's own clock differs from the database's.
    pub clock_skew: clock::ClockSkew,
    /// Authenticates keys.
    pub gate: api::auth::Gate,
    /// Decides fires.
    pub judge: invoke::Judge,
    /// Which addresses http actions may reach.
    pub allowed: actions::address::Allowed,
    /// Notifies the publisher of edits.
    pub nudge: nudge::Nudge,
    /// Notifies the executor of runs.
    pub wake: execute::Wake,
    /// The metrics of `/metrics`.
    pub metrics: metrics::Metrics,
    /// Requests in progress; each is completed.
    pub requests: Requests,
}

/// Requests in progress; a shutdown waits for them.
#[derive(Clone, Default)]
pub struct Requests(TaskTracker);

impl Requests {
    /// Starts a request that a disconnect does not cancel.
    pub fn spawn<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.0.spawn(request)
    }
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
    pub fn new(config: Config, pool: PgPool, clock: Clock) -> Self {
        Self(Arc::new(Parts {
            instance: Uuid::new_v4(),
            gate: api::auth::Gate::new(&config),
            judge: invoke::Judge::new(pool.clone(), config.ledger_kept()),
            allowed: actions::address::Allowed::new(config.action_allow_cidrs.clone()),
            nudge: nudge::Nudge::default(),
            wake: execute::Wake::default(),
            metrics: metrics::Metrics::default(),
            requests: Requests::default(),
            config,
            pool,
            clock: clock::of_database(clock),
            is_clock_sampled: AtomicBool::new(false),
            clock_skew: clock::ClockSkew::default(),
        }))
    }

    /// The bounds that an edit at this time is validated against.
    pub(crate) fn bounds(&self, now: DateTime<Utc>) -> spec::Bounds {
        spec::Bounds { now, retention: self.config.ledger_kept() }
    }

    /// The leases of the runs that this instance executes.
    #[must_use]
    pub fn lease(&self) -> runs::Lease {
        let secs = u32::try_from(self.config.lost_after_secs).unwrap_or(u32::MAX);
        runs::Lease { instance: self.instance, secs: secs.into() }
    }
}

/// How long requests whose connections were closed may take to end at shutdown.
const REQUESTS_END: Duration = Duration::from_secs(2);

/// Serves the API and executes runs until `shutdown`; then active requests and runs end or are handed over.
///
/// Fires are accepted until the active attempts have ended; only then the listener closes.
///
/// # Errors
/// Fails if the HTTP client of the actions cannot be set up, if a lease is too short for its heartbeat, or if the
/// database does not return the time.
pub async fn serve(listener: TcpListener, app: App, shutdown: Shutdown) -> anyhow::Result<()> {
    anyhow::ensure!(
        app.config.heartbeat_ms * 6 <= app.config.lost_after_secs * 1_000,
        "LOST_AFTER_SECS must be at least six times HEARTBEAT_MS, or runs are lost that are not"
    );
    let client = actions::http::Client::new(app.allowed.clone())?;
    clock::database_time(&app).await?;
    identity::begin(&app).await?;
    let executor = execute::Executor::new(app.clone(), client);
    let mut executing = tokio::spawn(executor.run(shutdown.clone()));
    let mut taking_turns = tokio::spawn(turns(app.clone(), shutdown.clone()));
    let nudging = tokio::spawn(app.nudge.clone().run(app.pool.clone()));
    let sweeping = tokio::spawn(sweep(app.clone()));
    let forgetting = tokio::spawn(forget_deleted(app.clone()));
    let sampling = tokio::spawn(clock::keep_sampling(app.clone()));
    let following = tokio::spawn(zones::follow_zones(app.clone()));
    let mut ended = Ok(());
    let drained = async {
        shutdown.draining().await;
        ended = (&mut executing).await.and((&mut taking_turns).await);
    };
    serve::serve(listener, api::router(app.clone()), &app.config, drained).await;
    app.requests.0.close();
    if tokio::time::timeout(REQUESTS_END, app.requests.0.wait()).await.is_err() {
        tracing::warn!("requests still going at shutdown are cut off; Postgres takes back what they had not committed");
    }
    nudging.abort();
    sweeping.abort();
    forgetting.abort();
    sampling.abort();
    following.abort();
    Ok(ended?)
}

async fn turns(app: App, shutdown: Shutdown) {
    if app.config.jobs_enabled {
        jobs::take_turns(app, shutdown).await;
    }
}

/// Removes idle entries of the rate limiters.
async fn sweep(app: App) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.gate.sweep();
    }
}

/// How often an instance reads which workflows other instances have deleted.
const FORGET_EVERY: Duration = Duration::from_secs(5);
/// Audit entries may commit in another order than their ids, so this many are read again.
const COMMIT_ORDER_MARGIN: i64 = 1_000;

/// Removes workflows from the cache of fires that any instance has deleted.
async fn forget_deleted(app: App) {
    let mut newest = None;
    loop {
        match forget_once(&app, newest).await {
            Ok(read) => newest = Some(read),
            Err(error) => tracing::warn!(%error, "deleted workflows unknown: they cannot be read, trying again"),
        }
        tokio::time::sleep(FORGET_EVERY).await;
    }
}

async fn forget_once(app: &App, newest: Option<i64>) -> sqlx::Result<i64> {
    let mut connection = app.pool.acquire().await?;
    let Some(newest) = newest else { return audit::newest_id(&mut connection).await };
    let deleted = audit::deleted_workflows(&mut connection, newest - COMMIT_ORDER_MARGIN).await?;
    let read = deleted.last().map_or(newest, |(id, _)| newest.max(*id));
    app.judge.forget(deleted.into_iter().map(|(_, workflow)| workflow).collect());
    Ok(read)
}
