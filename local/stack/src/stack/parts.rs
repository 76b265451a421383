//! The parts of a stack that are configured here: apps, runner, publisher.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use app::App;
use app::cadence::When;
use db::PgPool;
use futures::future::BoxFuture;
use runner::{KeySource, Limits, Runner};
use schedule::Environment;
use stand_in::StandIn;
use stand_in::invoke::FunctionError;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::keys::Keys;

/// The schedule group of the schedules.
pub const GROUP: &str = "cronbox";
/// The target of every schedule.
pub const RUNNER: &str = "arn:aws:lambda:us-east-1:123456789012:function:cronbox-runner";
/// The role of every schedule.
pub const ROLE: &str = "arn:aws:iam::123456789012:role/cronbox-scheduler";
/// The queue for fires that could not be sent.
pub const SCHEDULE_DLQ: &str = "arn:aws:sqs:us-east-1:123456789012:cronbox-schedule-dlq";
/// The queue for fires that the runner could not deliver.
pub const RUNNER_DLQ: &str = "arn:aws:sqs:us-east-1:123456789012:cronbox-runner-dlq";
/// How long a test waits for an event before it fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// The environment in the schedules' names.
pub(super) const ENVIRONMENT: &str = "dev";

/// The end signals of the parts, in the order of the shutdown.
#[derive(Clone, Default)]
pub(super) struct Stop {
    pub(super) publisher: CancellationToken,
    pub(super) apps: CancellationToken,
}

/// One app with its listener.
pub(super) struct Instance {
    /// `http://127.0.0.1:PORT`
    pub(super) url: String,
    /// The same of the listener for metrics and docs, if it has one
    pub(super) admin_url: Option<String>,
    pub(super) app: App,
    pub(super) serving: JoinHandle<Result<()>>,
}

impl Instance {
    /// Starts an instance, and waits until it answers, so that a change of the database's clock never fails its start.
    pub(super) async fn start_serving(listener: TcpListener, app: App, stop: &Stop) -> Result<Instance> {
        let url = url_of(&listener)?;
        let admin = app.config.admin_addr.map(app::bind_listener).transpose()?;
        let admin_url = admin.as_ref().map(url_of).transpose()?;
        let listeners = app::Listeners { api: listener, admin };
        app.prepare_identity_provider()?;
        app.prepare_heartbeat()?;
        let mut serving = tokio::spawn(app::serve_app(listeners, app.clone(), stop.apps.clone().into()));
        tokio::select! {
            ended = &mut serving => {
                ended??;
                bail!("the app ended before it served {url}");
            }
            answer = reqwest::get(format!("{url}/healthz")) => drop(answer.context("the app does not answer")?),
        }
        Ok(Instance { url, admin_url, app, serving })
    }
}

fn url_of(listener: &TcpListener) -> Result<String> {
    Ok(format!("http://{}", listener.local_addr()?))
}

/// A second try, as in Lambda; no third one, because of tests in which the app stays down.
const LIMITS: Limits = Limits { one_try: PATIENCE, all_tries: PATIENCE, most_tries: 2 };

/// Registers the real runner as the stand-in's function.
pub(super) fn register_runner(stand_in: &StandIn, url: &str, keys: &Keys) -> Result<()> {
    let key = KeySource::Value(keys.scheduler.clone());
    let runner = Runner::new(runner::Config { app_base_url: url.parse()?, key, limits: LIMITS })?;
    let handler = move |event| {
        let runner = runner.clone();
        let delivery = async move {
            let delivered = runner.deliver_fire(event).await;
            delivered
                .map(drop)
                .map_err(|error| FunctionError { error_type: error.kind_name().to_owned(), message: error.to_string() })
        };
        Box::pin(delivery) as BoxFuture<'static, _>
    };
    stand_in.lambda.register_function(RUNNER, RUNNER_DLQ, Arc::new(handler));
    Ok(())
}

pub(super) fn app_config(dsn: String, listener: &TcpListener) -> Result<app::Config> {
    Ok(app::Config {
        database_url: dsn,
        db_login_file: None,
        db_ca_file: None,
        pooler: db::Pooler::None,
        bind_addr: listener.local_addr()?,
        admin_addr: None,
        metrics_emf: false,
        heartbeat_url: None,
        heartbeat_allow_http: false,
        env: parse_environment()?,
        schedules: None,
        db_max_connections: 40,
        // A test may keep a row locked for longer than a second.
        edit_lock_timeout_ms: 5_000,
        // Actions may call servers on this machine.
        action_allow_cidrs: ["127.0.0.0/8", "::1/128"].iter().map(|net| net.parse()).collect::<Result<_, _>>()?,
        secrets: app::config::SecretsKeys::default(),
        egress_nameservers: Vec::new(),
        egress_allow_http: false,
        egress_ports: Vec::new(),
        executor_slots: 1_000,
        executor_mebibytes: 256,
        executor_team_percent: 75,
        executor_poll_ms: 200,
        // Neither a test nor Ctrl-C should wait for a slow receiver.
        shutdown_drain_secs: 2,
        heartbeat_ms: 10_000,
        lost_after_secs: 120,
        recovery_max_attempts: 3,
        recovery_max_age_secs: 24 * 60 * 60,
        // A test runs each job itself: `Stack::job`.
        restored: false,
        jobs_enabled: false,
        jobs_timezone: schedule::Timezone::UTC,
        job_watchdog: When::every_secs(60),
        job_queue: When::every_secs(10),
        job_backfills: When::every_secs(5),
        recovery_interval_secs: 60,
        job_timeouts: When::every_secs(30),
        job_statistics: When::every_secs(60),
        job_audit: When::every_secs(10),
        job_notifications: "5s".parse()?,
        job_conditions: "60s".parse()?,
        job_verify: "600s".parse()?,
        job_prune: "0 3 * * *".parse()?,
        outbox_keep_days: 7,
        outbox_keep_failed_days: 90,
        retention_days: 90,
        audit_keep_days: 400,
        #[cfg(debug_assertions)]
        fault: None,
        #[cfg(debug_assertions)]
        clock_offset_secs: 0,
        header_timeout_ms: 10_000,
        write_timeout_ms: 10_000,
        request_timeout_ms: 30_000,
        max_connections: 8_192,
        address_connections: 0,
        trusted_proxies: Vec::new(),
        trusted_hops: None,
        address_requests_in_flight: 0,
        requests_in_flight: 0,
        key_requests_per_sec: 0,
        bad_keys_per_min: 0,
        key_requests_in_flight: 0,
        team_requests_in_flight: 0,
        team_edits_in_flight: 0,
        team_lists_in_flight: 0,
        team_running_runs: 0,
        team_workflows: 0,
        team_fires_per_minute: 0,
        team_input_bytes: 0,
        team_archived_workflows: 0,
        team_archived_bytes: 0,
        oidc: app::config::Oidc { oidc_groups_claim: "groups".to_owned(), ..app::config::Oidc::default() },
        mail: app::config::MailSettings::default(),
    })
}

/// The connections of a daemon.
pub(super) fn publisher_pool(dsn: &str) -> Result<PgPool> {
    db::create_pool(&app::config::database_options(dsn, 5))
}

pub(super) fn publisher_config() -> Result<publisher::Config> {
    Ok(publisher::Config {
        env: parse_environment()?,
        runner_lambda_arn: RUNNER.to_owned(),
        scheduler_role_arn: ROLE.to_owned(),
        schedule_group: GROUP.to_owned(),
        schedule_dlq_arn: SCHEDULE_DLQ.to_owned(),
        batch_size: 100,
        max_attempts: 10,
        api_concurrency: 64,
        api_tps: 10_000,
        config_generation: 0,
        letters: publisher::DeadLetterSettings::default(),
        #[cfg(debug_assertions)]
        fault: None,
    })
}

/// The stand-in's queues, and the app of the stack.
pub(super) fn dead_letter_settings(endpoint: &str, app: &str, keys: &Keys) -> Result<publisher::DeadLetterSettings> {
    Ok(publisher::DeadLetterSettings {
        schedule_dlq_url: Some(queue_url(endpoint, SCHEDULE_DLQ).parse()?),
        runner_dlq_url: Some(queue_url(endpoint, RUNNER_DLQ).parse()?),
        app_base_url: Some(app.parse()?),
        scheduler_api_key: Some(keys.scheduler.clone()),
        ..publisher::DeadLetterSettings::default()
    })
}

/// The URL of a queue of the stand-in at `endpoint`.
pub(super) fn queue_url(endpoint: &str, arn: &str) -> String {
    let mut parts = arn.rsplit(':');
    let (name, account) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{endpoint}/{account}/{name}")
}

pub(super) fn parse_environment() -> Result<Environment> {
    ENVIRONMENT.parse().context("cannot parse the environment's name")
}
