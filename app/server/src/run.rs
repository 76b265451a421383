//! Steps 1 and 7 of 7: runs an instance until it shuts down: its server, its executor, its jobs and its zone data.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use egress::Client;
use executor::Shutdown;
use ledger::identity;
use schedule::Clock;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use workflows::{audit, zones};

use crate::api::request::in_flight;
use crate::config::Config;
use crate::metrics::emf::EmfLines;
use crate::server::{bind_listener, serve_connections};
use crate::{App, api, instances, jobs};

/// How long requests whose connections were closed may take to end at shutdown.
const REQUESTS_END: Duration = Duration::from_secs(2);

/// Where an instance listens.
#[derive(Debug)]
pub struct Listeners {
    /// For the API.
    pub api: TcpListener,
    /// For metrics and docs, if `CRONBOX_ADMIN_ADDR` is set.
    pub admin: Option<TcpListener>,
}

impl Listeners {
    /// Listens at the addresses of the configuration.
    ///
    /// # Errors
    /// Returns one sentence that says what to do if an address is in use, or is not an address of this machine.
    pub fn bind(config: &Config) -> anyhow::Result<Self> {
        let bind = |address: SocketAddr, variable: &str| {
            bind_listener(address)
                .with_context(|| format!("cannot listen on {address}: stop what uses it, or choose another {variable}"))
        };
        let admin = config.admin_addr.map(|address| bind(address, "CRONBOX_ADMIN_ADDR")).transpose()?;
        Ok(Self { api: bind(config.bind_addr, "CRONBOX_BIND_ADDR")?, admin })
    }
}

/// Serves the API and executes runs until `shutdown`; then active requests and runs end or are handed over.
///
/// Fires are accepted until the active attempts have ended; only then the listener closes.
///
/// # Errors
/// Fails if the HTTP client of the actions cannot be set up, if a lease is too short for its heartbeat, or if the
/// database does not return the time.
pub async fn serve_app(listeners: Listeners, app: App, shutdown: Shutdown) -> anyhow::Result<()> {
    anyhow::ensure!(
        app.config.heartbeat_ms * 6 <= app.config.lost_after_secs * 1_000,
        "CRONBOX_LOST_AFTER_SECS must be at least six times CRONBOX_HEARTBEAT_MS: with less, runs that still execute \
         count as lost"
    );
    let client = Client::new(app.allowed.clone())?;
    app.prepare_courier(client.clone())?;
    app.database_time().await?;
    identity::prepare_identity(&app.pools.work, &app.config.env, app.config.restored).await?;
    let executor = app.new_executor(client);
    let mut executing = tokio::spawn(executor.execute_until(shutdown.clone()));
    let mut taking_turns = tokio::spawn(turns(app.clone(), shutdown.clone()));
    let notifying = tokio::spawn(app.notifier.clone().send_notifications(app.pools.work.clone()));
    let (end_storing, storing_ended) = watch::channel(());
    let sweeping = tokio::spawn(sweep(app.clone(), storing_ended.clone()));
    let counting = tokio::spawn(keep_storing_failed_logins(app.clone(), storing_ended.clone()));
    let forgetting = tokio::spawn(forget_deleted(app.clone()));
    let sampling = tokio::spawn(keep_sampling(app.clone()));
    let measuring = tokio::spawn(keep_writing_metrics(app.clone()));
    let signing = tokio::spawn(instances::keep_seen(app.clone(), shutdown.clone(), storing_ended));
    let (end_admin, admin_ended) = oneshot::channel();
    let serving_admin = tokio::spawn(serve_admin(listeners.admin, app.clone(), admin_ended));
    let following = tokio::spawn(zones::follow_zones(app.pools.work.clone()));
    let logging_in = tokio::spawn(keep_login_current(app.clone()));
    let mut ended = Ok(());
    let drained = async {
        shutdown.wait_for_drain().await;
        ended = (&mut executing).await.and((&mut taking_turns).await);
    };
    serve_connections(listeners.api, api::build_router(app.clone()), &app, drained).await;
    drop(end_admin);
    serving_admin.await?;
    if tokio::time::timeout(REQUESTS_END, in_flight::await_requests(&app)).await.is_err() {
        tracing::warn!("requests cut off at shutdown; Postgres rolls back their open transactions");
    }
    notifying.abort();
    drop(end_storing);
    if tokio::time::timeout(REQUESTS_END, store_rest(&app, [sweeping, counting])).await.is_err() {
        tracing::warn!("uses of keys or failed logins of the last minute not stored at shutdown");
    }
    if tokio::time::timeout(REQUESTS_END, signing).await.is_err() {
        tracing::debug!("row of this instance not removed at shutdown; it is forgotten after a day");
    }
    forgetting.abort();
    sampling.abort();
    measuring.abort();
    following.abort();
    logging_in.abort();
    Ok(ended?)
}

async fn turns(app: App, shutdown: Shutdown) {
    if app.config.jobs_enabled {
        jobs::take_turns(app, shutdown).await;
    }
}

/// Serves metrics and docs until the sender of `end` is dropped, if they have a listener of their own.
async fn serve_admin(listener: Option<TcpListener>, app: App, end: oneshot::Receiver<()>) {
    if let Some(listener) = listener {
        let ended = async { drop(end.await) };
        serve_connections(listener, api::build_admin_router(app.clone()), &app, ended).await;
    }
}

/// How often the database's time is sampled. While the database answers, no sample is older.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Samples the database's time until it is dropped.
async fn keep_sampling(app: App) {
    if let Clock::Fixed(_) = app.clock {
        return;
    }
    loop {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        if let Err(error) = app.database_time().await {
            tracing::warn!(%error, "database time not sampled; the clock continues from the last sample");
        }
    }
}

/// A rotation changes the database first and the file some moments later.
const READ_LOGIN_EVERY: Duration = Duration::from_secs(2);

/// Reads the file with the login again whenever the database has refused a login, until it is dropped.
async fn keep_login_current(app: App) {
    while app.config.db_login_file.is_some() {
        app.pools.fires.login_refused().await;
        let read = app.config.read_dsn();
        match read.and_then(|dsn| app.pools.log_in_anew(&app.config.database_options(&dsn))) {
            Ok(()) => tracing::warn!("login refused by the database; CRONBOX_DB_LOGIN_FILE was read again"),
            Err(error) => tracing::error!("login refused by the database, and no other was read: {error:#}"),
        }
        tokio::time::sleep(READ_LOGIN_EVERY).await;
    }
}

/// The period of CloudWatch's alarms.
const WRITE_METRICS_EVERY: Duration = Duration::from_secs(60);

/// Writes the metrics to stdout until it is dropped, if the configuration wants it. The line goes past the log, because
/// CloudWatch wants nothing before it.
async fn keep_writing_metrics(app: App) {
    if !app.config.metrics_emf {
        return;
    }
    let mut lines = EmfLines::default();
    loop {
        tokio::time::sleep(WRITE_METRICS_EVERY).await;
        match app.render_metrics().await {
            Ok(rendered) => println!("{}", lines.next_line(&app.config.env, &rendered, app.clock.now())),
            Err(error) => tracing::warn!(%error, "metrics not rendered"),
        }
    }
}

/// How often the uses of keys are written.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Removes idle entries of the rate limiters, and writes which keys were used.
async fn sweep(app: App, mut end: watch::Receiver<()>) {
    while !ends_within(SWEEP_EVERY, &mut end).await {
        app.gate.remove_idle_entries();
        write_key_uses(&app).await;
    }
}

/// Waits; returns at once and `true` if the sender of `end` is dropped. A loop that ends in this way loses nothing that it
/// has taken from memory.
async fn ends_within(time: Duration, end: &mut watch::Receiver<()>) -> bool {
    tokio::time::timeout(time, end.changed()).await.is_ok()
}

/// Stores what only the memory of this instance has, after the loops that do it from time to time have ended.
async fn store_rest(app: &App, loops: [JoinHandle<()>; 2]) {
    for ended in loops {
        if let Err(error) = ended.await {
            tracing::error!(%error, "a background task ended by itself");
        }
    }
    let stored = app.gate.failed_logins().store_all(&app.pools.work);
    let (stored, ()) = tokio::join!(stored, write_key_uses(app));
    if let Err(error) = stored {
        tracing::warn!(%error, "failed logins of the last minute not stored");
    }
}

async fn write_key_uses(app: &App) {
    if let Err(error) = app.gate.write_key_uses(&app.pools.work).await {
        tracing::warn!(%error, "uses of keys not written; trying again in a minute");
    }
}

/// How often failed logins of ended minutes are stored. The job `audit` waits a minute for them.
const STORE_EVERY: Duration = Duration::from_secs(15);

/// Stores the failed logins of ended minutes.
async fn keep_storing_failed_logins(app: App, mut end: watch::Receiver<()>) {
    while !ends_within(STORE_EVERY, &mut end).await {
        if let Err(error) = app.gate.failed_logins().store_ended_minutes(&app.pools.work, app.clock.now()).await {
            tracing::warn!(%error, "failed logins not stored; they are kept and stored later");
        }
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
            Err(error) => tracing::warn!(%error, "deleted workflows not read; trying again"),
        }
        tokio::time::sleep(FORGET_EVERY).await;
    }
}

async fn forget_once(app: &App, newest: Option<i64>) -> sqlx::Result<i64> {
    let mut connection = app.pools.work.acquire().await?;
    let Some(newest) = newest else { return audit::newest_id(&mut connection).await };
    let deleted = audit::deleted_workflows(&mut connection, newest - COMMIT_ORDER_MARGIN).await?;
    let read = deleted.last().map_or(newest, |(id, _)| newest.max(*id));
    app.decider.forget_workflows(deleted.into_iter().map(|(_, workflow)| workflow).collect());
    Ok(read)
}
