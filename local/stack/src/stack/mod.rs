//! The complete data path in one process: Postgres, the app, the publisher, the stand-in and the runner.
//!
//! `cronbox-local up` and every test start the same [`Stack`]. A test's stack has its own clock and its own database, and
//! its end asserts that everything is processed.

mod answer;
mod database;
mod end;
mod http;
mod keys;
mod parts;
mod pending;
mod story;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use app::{App, Pools};
use aws_sdk_scheduler::Client;
use chrono::{DateTime, Utc};
use db::PgPool;
use publisher::Publisher;
use schedule::Clock;
use stand_in::{StandIn, StandInServer, invoke};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use self::answer::Answer;
pub use self::database::{Database, prepare_database};
pub use self::keys::{Keys, write_secret};
pub use self::parts::{GROUP, ROLE, RUNNER, RUNNER_DLQ, SCHEDULE_DLQ};
use self::parts::{Instance, PATIENCE, Stop};
use self::pending::Leftovers;
pub use self::pending::Pending;
use crate::clock_and_zones::{installed_zone_files, stand_in_clock};
use crate::postgres::Login;

/// Connections of a test, or of a person, behind the API.
const OWNER_CONNECTIONS: u32 = 16;

/// How a test's stack is set up.
pub struct StackOptions {
    /// The time of both clocks; `None` = they run
    pub now: Option<DateTime<Utc>>,
    /// When edits are published
    pub publishing: Publishing,
    /// How the stand-in behaves
    pub stand_in: stand_in::Options,
    /// Changes to the app's configuration
    pub app: fn(&mut app::Config),
    /// Whether the publisher mirrors the stand-in's dead-letter queues, and redrives their messages
    pub mirrors_dead_letters: bool,
    /// Changes to the publisher's configuration
    pub publisher: fn(&mut publisher::Config),
}

/// When edits are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// When `publish` is called
    OnRequest,
    /// As soon as an edit has committed; a daemon publishes it
    Listening,
}

impl Default for StackOptions {
    fn default() -> Self {
        StackOptions {
            now: None,
            publishing: Publishing::OnRequest,
            stand_in: stand_in::Options {
                invoke: invoke::Options { timeout: PATIENCE, ..invoke::Options::default() },
                ..stand_in::Options::default()
            },
            app: |_| {},
            mirrors_dead_letters: false,
            publisher: |_| {},
        }
    }
}

/// All parts, running.
pub struct Stack {
    /// Business time, the same for all parts
    pub clock: Clock,
    /// The keys of the app
    pub keys: Keys,
    /// The database as its owner, for checks and changes behind the API
    pub pool: PgPool,
    /// The stand-in
    pub stand_in: StandIn,
    /// The SDK's client of the stand-in
    pub scheduler: Client,
    /// The publisher that `publish` runs
    pub publisher: Publisher,
    letters: publisher::DeadLetterSettings,
    publisher_pool: PgPool,
    database: Database,
    http: reqwest::Client,
    apps: Vec<Instance>,
    served: Option<StandInServer>,
    publishing: Option<JoinHandle<Result<()>>>,
    stop: Stop,
    leftovers: Leftovers,
}

/// The listeners and the database of a stack.
pub struct Ground {
    /// The database
    pub database: Database,
    /// The app's listener
    pub app: TcpListener,
    /// The stand-in's listener
    pub scheduler: TcpListener,
    /// Where the keys come from
    pub keys: KeysFrom,
}

/// Where the keys of a stack come from.
pub enum KeysFrom {
    /// They are created
    Nowhere,
    /// They are read from a file, or created and stored there
    File(PathBuf),
}

impl Stack {
    /// Starts a stack with free ports and a clone of the template database.
    ///
    /// # Errors
    /// Returns a sentence that says what is missing or which part does not start.
    pub async fn start(options: StackOptions) -> Result<Stack> {
        let any_port = || app::bind_listener((Ipv4Addr::LOCALHOST, 0).into()).context("no free port on 127.0.0.1");
        let ground = Ground {
            database: Database::clone_template().await?,
            app: any_port()?,
            scheduler: any_port()?,
            keys: KeysFrom::Nowhere,
        };
        Stack::start_on(ground, options).await
    }

    /// Starts a stack with the given listeners and database.
    ///
    /// # Errors
    /// Returns a sentence that says which part does not start.
    pub async fn start_on(ground: Ground, options: StackOptions) -> Result<Stack> {
        let clock = options.now.map_or(Clock::System, Clock::fixed);
        let mut config = parts::app_config(ground.database.dsn_as(Login::App), &ground.app)?;
        (options.app)(&mut config);
        if let KeysFrom::File(path) = &ground.keys {
            config.secrets.secrets_key_file = Some(keys::create_secrets_key(path)?);
        }
        let secrets = config.secrets.read_keys()?;
        let pool = db::create_pool(&app::config::database_options(&ground.database.dsn(), OWNER_CONNECTIONS))?;
        if let Some(now) = options.now {
            database::take_clock(&pool, now).await?;
        }
        let keys = match &ground.keys {
            KeysFrom::Nowhere => Keys::create_for_team(&pool, "team", &secrets, clock.now()).await?,
            KeysFrom::File(path) => Keys::load_or_create(&pool, path, &secrets, clock.now()).await?,
        };
        let stop = Stop::default();
        let mut behaviour = options.stand_in;
        behaviour.scheduler.zone_files = installed_zone_files();
        let served = StandInServer::start_on(StandIn::new(behaviour, stand_in_clock(&clock)), ground.scheduler)?;
        let stand_in = served.stand_in.clone();
        let scheduler = publisher::scheduler_client(Some(&served.endpoint)).await;
        scheduler.create_schedule_group().name(GROUP).send().await.context("cannot create the schedule group")?;
        let pools = Pools::connect(&config).await?;
        let app = Instance::start_serving(ground.app, App::with_secrets(config, pools, clock.clone(), secrets), &stop)
            .await?;
        parts::register_runner(&stand_in, &app.url, &keys)?;
        let mut publisher_config = parts::publisher_config()?;
        if options.mirrors_dead_letters {
            publisher_config.letters = parts::dead_letter_settings(&served.endpoint, &app.url, &keys)?;
        }
        (options.publisher)(&mut publisher_config);
        let letters = publisher_config.letters.clone();
        let publisher_pool = parts::publisher_pool(&ground.database.dsn_as(Login::Publisher))?;
        let publisher = Publisher::new(publisher_config, publisher_pool.clone(), scheduler.clone(), clock.clone());
        let publishing = (options.publishing == Publishing::Listening).then(|| {
            let (publisher, stopped) = (publisher.clone(), stop.publisher.clone().cancelled_owned());
            tokio::spawn(async move { publisher.publish_on_notification(None, None, stopped).await })
        });
        Ok(Stack {
            clock,
            keys,
            pool,
            stand_in,
            scheduler,
            publisher,
            letters,
            publisher_pool,
            database: ground.database,
            // The app ends a connection that is idle for 10 s: none is used again when that may happen at the same moment.
            http: reqwest::Client::builder().no_proxy().pool_idle_timeout(Duration::from_secs(3)).build()?,
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

    /// The address of the app's metrics and docs, if they have a listener of their own.
    pub fn admin_url(&self) -> Option<&str> {
        self.apps[0].admin_url.as_deref()
    }

    /// The app, for checks behind its API.
    pub fn app(&self) -> &App {
        &self.apps[0].app
    }

    /// The stand-in's address.
    pub fn scheduler_url(&self) -> &str {
        self.served.as_ref().map_or("", |served| &served.endpoint)
    }

    /// Makes the runner deliver all further fires to another address.
    ///
    /// # Errors
    /// Fails if the text is not an address.
    pub fn deliver_to(&self, url: &str) -> Result<()> {
        parts::register_runner(&self.stand_in, url, &self.keys)
    }

    /// The DSN of the database, with the login of the app.
    pub fn dsn(&self) -> String {
        self.database.dsn_as(Login::App)
    }

    /// The DSN of the database, with the login of the publisher.
    pub fn publisher_dsn(&self) -> String {
        self.database.dsn_as(Login::Publisher)
    }

    /// The DSN of the database, as its owner.
    pub fn owner_dsn(&self) -> String {
        self.database.dsn()
    }

    /// Starts another instance of the app on the same database, with its own caches; returns its address.
    ///
    /// # Errors
    /// Fails if the instance does not start.
    pub async fn another_app(&mut self) -> Result<String> {
        self.another_app_at(self.dsn()).await
    }

    /// Like [`Stack::another_app`], but with another DSN for the database.
    ///
    /// # Errors
    /// Fails if the instance does not start.
    pub async fn another_app_at(&mut self, dsn: String) -> Result<String> {
        self.start_app(dsn, |_| {}).await
    }

    /// Like [`Stack::another_app`], but with another configuration.
    ///
    /// # Errors
    /// Fails if the instance does not start.
    pub async fn another_app_with(&mut self, change: impl FnOnce(&mut app::Config)) -> Result<String> {
        self.start_app(self.dsn(), change).await
    }

    async fn start_app(&mut self, dsn: String, change: impl FnOnce(&mut app::Config)) -> Result<String> {
        let listener = app::bind_listener((Ipv4Addr::LOCALHOST, 0).into())?;
        let mut config = parts::app_config(dsn, &listener)?;
        change(&mut config);
        let pools = Pools::connect(&config).await?;
        let secrets = config.secrets.read_keys()?;
        let app = App::with_secrets(config, pools, self.clock.clone(), secrets);
        let app = Instance::start_serving(listener, app, &self.stop).await?;
        let url = app.url.clone();
        self.apps.push(app);
        Ok(url)
    }

    /// The environment variables of a publisher in a separate process, on the same database and schedules.
    pub fn publisher_environment(&self) -> Vec<(&'static str, String)> {
        let stand_in = [
            ("AWS_ENDPOINT_URL_SCHEDULER", self.scheduler_url()),
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
            ("AWS_REGION", "us-east-1"),
        ];
        let ours = [
            ("CRONBOX_DB_DSN", &*self.publisher_dsn()),
            ("CRONBOX_ENV", parts::ENVIRONMENT),
            ("CRONBOX_RUNNER_LAMBDA_ARN", RUNNER),
            ("CRONBOX_SCHEDULER_ROLE_ARN", ROLE),
            ("CRONBOX_SCHEDULE_GROUP", GROUP),
            ("CRONBOX_SCHEDULE_DLQ_ARN", SCHEDULE_DLQ),
        ];
        stand_in.iter().chain(&ours).map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    /// The further environment variables of a publisher that mirrors the stand-in's dead-letter queues.
    pub fn dead_letter_environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CRONBOX_SCHEDULE_DLQ_URL", self.queue_url(SCHEDULE_DLQ)),
            ("CRONBOX_RUNNER_DLQ_URL", self.queue_url(RUNNER_DLQ)),
            ("CRONBOX_APP_BASE_URL", self.url().to_owned()),
            ("CRONBOX_SCHEDULER_API_KEY", self.keys.scheduler.clone()),
        ]
    }

    /// The URL of a dead-letter queue of the stand-in.
    pub fn queue_url(&self, arn: &str) -> String {
        parts::queue_url(self.scheduler_url(), arn)
    }

    /// Creates another publisher on the same database and schedules.
    ///
    /// # Errors
    /// Fails if the DSN cannot be read.
    pub fn another_publisher(&self) -> Result<Publisher> {
        let pool = parts::publisher_pool(&self.publisher_dsn())?;
        let config = publisher::Config { letters: self.letters.clone(), ..parts::publisher_config()? };
        Ok(Publisher::new(config, pool, self.scheduler.clone(), self.clock.clone()))
    }
}
