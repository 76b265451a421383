//! cronbox's app: the source of truth. Edits go to the outbox, fires become runs.
//!
//! | step | file |
//! |---|---|
//! | 1 edit | `api/workflows.rs`, `api/schedules.rs`, `api/verbs.rs` -> `workflows.rs`, `schedules.rs`, `schedules_file.rs`, `spec.rs`, `patch.rs`, `versions.rs`, `audit.rs` |
//! | 2 outbox | `outbox.rs`, `nudge.rs` |
//! | 4 schedule | `drift.rs`: what the publisher's sweeps found |
//! | 7 run | `api/invoke.rs` -> `invoke.rs`, `occurrences.rs`, `owed.rs`, `by_hand.rs`, `backfills.rs`, `verify.rs`; `execute.rs` -> `runs.rs`, `actions/` |
//!
//! Steps 3 to 6 are the publisher's, EventBridge's and the runner's. No AWS client can stand here:
//! the crate does not depend on one, so no AWS call can stand inside an edit's transaction.

pub mod actions;
pub mod api;
pub mod audit;
pub mod backfills;
pub mod by_hand;
pub mod catch_up;
pub mod config;
pub mod drift;
pub mod execute;
mod failures;
pub mod field;
pub mod id;
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
pub mod spec;
pub mod spread;
pub mod stats;
pub mod teams;
pub mod timeouts;
pub mod verify;
pub mod versions;
pub mod watchdog;
pub mod workflows;

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use schedule::Clock;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use config::Config;
pub use serve::listen;

/// One instance of the app; any number of them may share a database.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// What the handlers use.
pub struct Parts {
    /// Who holds the runs and jobs that this instance takes.
    pub instance: Uuid,
    /// What the app was told at start.
    pub config: Config,
    /// The database.
    pub pool: PgPool,
    /// Business time.
    pub clock: Clock,
    /// Knows the keys.
    pub gate: api::auth::Gate,
    /// Decides fires.
    pub judge: invoke::Judge,
    /// Which addresses http actions may reach.
    pub allowed: actions::address::Allowed,
    /// Tells the publisher of edits.
    pub nudge: nudge::Nudge,
    /// Tells the executor of runs.
    pub wake: execute::Wake,
    /// What `/metrics` shows.
    pub metrics: metrics::Metrics,
    /// Requests under way; each runs to its end.
    pub requests: Requests,
}

/// Requests under way, awaited at shutdown.
#[derive(Clone, Default)]
pub struct Requests(TaskTracker);

impl Requests {
    /// Starts a request that nobody can cancel.
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
    /// An instance on a database that is migrated.
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
            clock,
        }))
    }
}

/// Serves the API and executes runs until `shutdown`; what is under way then ends or is given back.
///
/// # Errors
/// The HTTP client of the actions cannot be set up, or a lease is too short for its heartbeat.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        app.config.heartbeat_ms * 6 <= app.config.lost_after_secs * 1_000,
        "LOST_AFTER_SECS must be at least six times HEARTBEAT_MS, or runs are lost that are not"
    );
    let client = actions::http::Client::new(app.allowed.clone())?;
    let stop = CancellationToken::new();
    let executor = execute::Executor::new(app.clone(), client);
    let executing = tokio::spawn(executor.run(stop.clone().cancelled_owned()));
    let taking_turns = tokio::spawn(turns(app.clone(), stop.clone()));
    let nudging = tokio::spawn(app.nudge.clone().run(app.pool.clone()));
    let sweeping = tokio::spawn(sweep(app.clone()));
    let signalled = async {
        shutdown.await;
        stop.cancel();
    };
    serve::serve(listener, api::router(app.clone()), &app.config, signalled).await;
    app.requests.0.close();
    let drain = Duration::from_secs(app.config.shutdown_drain_secs);
    if tokio::time::timeout(drain, app.requests.0.wait()).await.is_err() {
        tracing::warn!("requests still going at shutdown are cut off; Postgres takes back what they had not committed");
    }
    executing.await?;
    taking_turns.await?;
    nudging.abort();
    sweeping.abort();
    Ok(())
}

async fn turns(app: App, stop: CancellationToken) {
    if app.config.jobs_enabled {
        jobs::take_turns(app, stop.cancelled_owned()).await;
    }
}

/// Keeps the rate limiters' memory to those who came lately.
async fn sweep(app: App) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.gate.sweep();
    }
}
