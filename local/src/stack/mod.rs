//! The whole way of the data in one process: Postgres, the app, the publisher, the stand-in and the runner.
//!
//! `local up` and every test start the same [`Stack`]; a test's has a clock of its own and a database of its own,
//! and ending it asserts that nothing is left to be done.

mod database;
mod keys;
mod pending;
mod story;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use app::App;
use aws_sdk_scheduler::Client;
use chrono::{DateTime, Utc};
use publisher::Publisher;
use runner::{KeySource, Runner};
use schedule::{Clock, Environment};
use sqlx::{Connection, PgConnection, PgPool};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::database::Database;
pub use self::keys::{Keys, write_secret};
pub use self::pending::Pending;
pub use self::story::Answer;
use crate::invoke::FunctionError;
use crate::stand_in::{self, Served, StandIn};

/// The group that the schedules live in.
pub const GROUP: &str = "cronbox";
/// What every schedule invokes.
pub const RUNNER: &str = "arn:aws:lambda:us-east-1:123456789012:function:cronbox-runner";
/// As whom.
pub const ROLE: &str = "arn:aws:iam::123456789012:role/cronbox-scheduler";
/// Where the fires go that could not be sent.
pub const SCHEDULE_DLQ: &str = "arn:aws:sqs:us-east-1:123456789012:cronbox-schedule-dlq";
/// Where the fires go that the runner could not deliver.
pub const RUNNER_DLQ: &str = "arn:aws:sqs:us-east-1:123456789012:cronbox-runner-dlq";

/// How a test's stack is set up.
pub struct StackOptions {
    /// Where both clocks stand; `None` = they run
    pub now: Option<DateTime<Utc>>,
    /// Who publishes
    pub publishing: Publishing,
    /// How the stand-in behaves
    pub stand_in: stand_in::Options,
    /// Changes to the app's configuration
    pub app: fn(&mut app::Config),
    /// Changes to the publisher's configuration
    pub publisher: fn(&mut publisher::Config),
}

/// Who publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// `publish`, when it is called
    ByHand,
    /// A daemon, as soon as an edit commits
    Listening,
}

impl Default for StackOptions {
    fn default() -> Self {
        StackOptions {
            now: None,
            publishing: Publishing::ByHand,
            stand_in: stand_in::Options::default(),
            app: |_| {},
            publisher: |_| {},
        }
    }
}

/// Everything, running.
pub struct Stack {
    /// Business time, the same for all parts
    pub clock: Clock,
    /// What opens the app
    pub keys: Keys,
    /// The database, for a look behind the API
    pub pool: PgPool,
    /// The stand-in
    pub stand_in: StandIn,
    /// The SDK's client of the stand-in
    pub scheduler: Client,
    /// The publisher that `publish` runs
    pub publisher: Publisher,
    database: Database,
    http: reqwest::Client,
    apps: Vec<Instance>,
    served: Option<Served>,
    publishing: Option<JoinHandle<Result<()>>>,
    stop: Stop,
    leftovers: Leftovers,
}

/// The parts' ends, in the order in which they end.
#[derive(Clone, Default)]
struct Stop {
    publisher: CancellationToken,
    apps: CancellationToken,
}

/// What the end of a stack asserts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leftovers {
    Refused,
    Accepted,
}

/// One app that listens.
pub struct Instance {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    serving: JoinHandle<Result<()>>,
}

/// Where a stack listens and what it stands on.
pub struct Ground {
    /// The database
    pub database: Database,
    /// The app's listener
    pub app: TcpListener,
    /// The stand-in's listener
    pub scheduler: TcpListener,
    /// Finds or makes the keys
    pub keys: KeysFrom,
}

/// Where a stack has its keys from.
pub enum KeysFrom {
    /// They are made
    Nowhere,
    /// They are read from a file, or made and kept there
    File(std::path::PathBuf),
}

impl Stack {
    /// Starts a stack of its own: free ports, a clone of the template database.
    ///
    /// # Errors
    /// A sentence that says what is missing, or which part does not start.
    pub async fn start(options: StackOptions) -> Result<Stack> {
        let any_port = async || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port on 127.0.0.1");
        let ground = Ground {
            database: Database::of_template().await?,
            app: any_port().await?,
            scheduler: any_port().await?,
            keys: KeysFrom::Nowhere,
        };
        Stack::on(ground, options).await
    }

    /// Starts a stack on a given ground.
    ///
    /// # Errors
    /// A sentence that says which part does not start.
    pub async fn on(ground: Ground, options: StackOptions) -> Result<Stack> {
        let clock = options.now.map_or(Clock::System, Clock::fixed);
        let mut config = app_config(&ground)?;
        (options.app)(&mut config);
        let pool = db::connect(&config.database()).await?;
        if let Some(now) = options.now {
            database::take_clock(&pool, now).await?;
        }
        let keys = match &ground.keys {
            KeysFrom::Nowhere => Keys::create(&pool, "team", clock.now()).await?,
            KeysFrom::File(path) => Keys::load_or_create(&pool, path, clock.now()).await?,
        };
        let stop = Stop::default();
        let served = Served::start(StandIn::new(options.stand_in, clock.clone()), ground.scheduler)?;
        let stand_in = served.stand_in.clone();
        let scheduler = publisher::scheduler_client(Some(&served.endpoint)).await;
        scheduler.create_schedule_group().name(GROUP).send().await.context("cannot make the schedule group")?;
        let app = Instance::start(ground.app, App::new(config, pool.clone(), clock.clone()), &stop)?;
        register_runner(&stand_in, &app.url, &keys)?;
        let mut publisher_config = publisher_config()?;
        (options.publisher)(&mut publisher_config);
        let publisher = Publisher::new(publisher_config, pool.clone(), scheduler.clone(), clock.clone());
        let publishing = (options.publishing == Publishing::Listening).then(|| {
            let (publisher, stopped) = (publisher.clone(), stop.publisher.clone().cancelled_owned());
            tokio::spawn(async move { publisher.listen(stopped).await })
        });
        Ok(Stack {
            clock,
            keys,
            pool,
            stand_in,
            scheduler,
            publisher,
            database: ground.database,
            http: reqwest::Client::builder().no_proxy().build()?,
            apps: vec![app],
            served: Some(served),
            publishing,
            stop,
            leftovers: Leftovers::Refused,
        })
    }

    /// The app's address.
    pub fn url(&self) -> &str {
        &self.apps[0].url
    }

    /// The stand-in's address.
    pub fn scheduler_url(&self) -> &str {
        self.served.as_ref().map_or("", |served| &served.endpoint)
    }

    /// How to reach the database.
    pub fn dsn(&self) -> String {
        self.database.dsn()
    }

    /// Starts another instance of the app on the same database, with caches of its own; returns its address.
    ///
    /// # Errors
    /// It does not start.
    pub async fn another_app(&mut self) -> Result<String> {
        self.another_app_at(self.dsn()).await
    }

    /// As [`Stack::another_app`], but reaching the database by a way of its own.
    ///
    /// # Errors
    /// It does not start.
    pub async fn another_app_at(&mut self, dsn: String) -> Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let config = app_config_at(dsn, &listener)?;
        let pool = db::connect(&config.database()).await?;
        let app = Instance::start(listener, App::new(config, pool, self.clock.clone()), &self.stop)?;
        let url = app.url.clone();
        self.apps.push(app);
        Ok(url)
    }

    /// Another publisher on the same database and schedules.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn another_publisher(&self) -> Result<Publisher> {
        let pool = db::connect(&app::config::database(&self.dsn(), 5)).await?;
        Ok(Publisher::new(publisher_config()?, pool, self.scheduler.clone(), self.clock.clone()))
    }

    /// Accepts that this story ends with work undone.
    pub fn accept_leftovers(&mut self) {
        self.leftovers = Leftovers::Accepted;
    }

    /// What is left to be done.
    ///
    /// # Errors
    /// The database's.
    pub async fn pending(&self) -> Result<Pending> {
        let mut connection = self.pool.acquire().await?;
        let deliveries = self.stand_in.lambda.pending();
        Ok(Pending { deliveries, ..Pending::count(&mut connection).await? })
    }

    /// Ends a test's stack.
    ///
    /// # Errors
    /// Work is left to be done, or a part had failed.
    pub async fn finish(mut self) -> Result<()> {
        let left = self.pending().await?;
        let judged = self.judge(left);
        self.leftovers = Leftovers::Accepted;
        let stopped = self.stop().await;
        judged.and(stopped)
    }

    /// Stops all parts in order: no more edits published, no more fires, then the apps, then the database.
    ///
    /// # Errors
    /// A part had failed.
    pub async fn stop(&mut self) -> Result<()> {
        self.stop.publisher.cancel();
        if let Some(publishing) = self.publishing.take() {
            publishing.await.context("the publisher ended by itself")??;
        }
        if let Some(served) = self.served.take() {
            served.stop().await?;
        }
        self.stop.apps.cancel();
        for app in std::mem::take(&mut self.apps) {
            app.serving.await.context("the app ended by itself")??;
        }
        self.pool.close().await;
        self.database.remove().await
    }

    fn judge(&self, left: Pending) -> Result<()> {
        ensure!(self.leftovers == Leftovers::Accepted || left == Pending::default(), "the story is not over: {left}");
        Ok(())
    }
}

/// A stack that nobody finished: its parts are told to end, and its database is judged and removed.
impl Drop for Stack {
    fn drop(&mut self) {
        self.stop.publisher.cancel();
        self.stop.apps.cancel();
        if matches!(self.database, Database::Kept(_)) || self.apps.is_empty() {
            return;
        }
        let deliveries = self.stand_in.lambda.pending();
        let dsn = self.dsn();
        // Threads and runtimes of their own: the dropping thread may be the one that drives the stack's tasks.
        let judged = std::thread::spawn(move || block_on(async move { count_pending(&dsn).await })).join();
        // Not waited for: while this thread is held up, a half-made connection of its own would hold up the removal.
        let database = std::mem::replace(&mut self.database, Database::Gone);
        std::thread::spawn(move || block_on(async move { database.remove().await }));
        if let (Ok(Ok(left)), false) = (judged, std::thread::panicking())
            && let Err(error) = self.judge(Pending { deliveries, ..left })
        {
            panic!("{error}");
        }
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn count_pending(dsn: &str) -> Result<Pending> {
    let mut connection = PgConnection::connect(dsn).await?;
    let left = Pending::count(&mut connection).await?;
    connection.close().await?;
    Ok(left)
}

impl Instance {
    fn start(listener: TcpListener, app: App, stop: &Stop) -> Result<Instance> {
        let url = format!("http://{}", listener.local_addr()?);
        let stopped = stop.apps.clone().cancelled_owned();
        Ok(Instance { url, serving: tokio::spawn(app::serve(listener, app, stopped)) })
    }
}

/// The stand-in's function is the real runner.
fn register_runner(stand_in: &StandIn, url: &str, keys: &Keys) -> Result<()> {
    let key = KeySource::Value(keys.scheduler.clone());
    let runner = Runner::new(runner::Config { app_base_url: url.parse()?, key })?;
    let handler = move |event| {
        let runner = runner.clone();
        let delivery = async move {
            let delivered = runner.deliver(event).await;
            delivered
                .map(drop)
                .map_err(|error| FunctionError { error_type: "DeliverError".to_owned(), message: error.to_string() })
        };
        Box::pin(delivery) as futures::future::BoxFuture<'static, _>
    };
    stand_in.lambda.register(RUNNER, RUNNER_DLQ, Arc::new(handler));
    Ok(())
}

fn app_config(ground: &Ground) -> Result<app::Config> {
    app_config_at(ground.database.dsn(), &ground.app)
}

fn app_config_at(dsn: String, listener: &TcpListener) -> Result<app::Config> {
    Ok(app::Config {
        database_url: dsn,
        bind_addr: listener.local_addr()?,
        env: environment()?,
        db_max_connections: 16,
        // Actions may call what a person runs on this machine.
        action_allow_cidrs: ["127.0.0.0/8", "::1/128"].iter().map(|net| net.parse()).collect::<Result<_, _>>()?,
        executor_slots: 64,
        executor_poll_ms: 200,
        shutdown_drain_secs: 5,
        header_timeout_ms: 10_000,
        request_timeout_ms: 30_000,
        max_connections: 8_192,
        key_requests_per_sec: 0,
        bad_keys_per_min: 0,
    })
}

fn publisher_config() -> Result<publisher::Config> {
    Ok(publisher::Config {
        env: environment()?,
        runner_lambda_arn: RUNNER.to_owned(),
        scheduler_role_arn: ROLE.to_owned(),
        schedule_group: GROUP.to_owned(),
        schedule_dlq_arn: SCHEDULE_DLQ.to_owned(),
        batch_size: 100,
        max_attempts: 10,
        api_concurrency: 64,
        api_tps: 10_000,
        #[cfg(debug_assertions)]
        fault: None,
    })
}

fn environment() -> Result<Environment> {
    "dev".parse().context("the environment's name")
}

/// How long a story waits for what happens by itself before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);
