//! The database's password is rotated while the publisher runs. No deployment is needed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::config::{BehaviorVersion, Credentials, Region};
use local::clock_and_zones::stand_in_clock;
use schedule::Clock;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use stand_in::{Options, StandIn, StandInServer};
use tests::{Moto, PATIENCE};
use tokio::process::Command;

use crate::entry::lambda::{Runtime, answer, serve};
use crate::postgres::tls_server::Secured;
use crate::world::{World, at};

/// A world whose database accepts only TLS, and whose publisher logs in with a secret in RDS's format.
struct Vault {
    secured: Secured,
    world: World,
    moto: Moto,
    secrets: Client,
    arn: String,
}

impl Vault {
    async fn new() -> Vault {
        let secured = Secured::new().await;
        let clock = Clock::fixed(at("2026-03-02T10:00:00Z"));
        let served =
            StandInServer::start_anywhere(StandIn::new(Options::default(), stand_in_clock(&clock))).await.unwrap();
        let (dsn, beyond) = (secured.dsn("sslmode=require"), served.endpoint.clone());
        let world = World::on(crate::database::pool(&dsn), dsn, &beyond, Some(served), clock).await;
        let moto = Moto::start().await;
        let config = aws_sdk_secretsmanager::Config::builder().behavior_version(BehaviorVersion::v2026_01_12());
        let config = config.region(Region::new("us-east-1")).endpoint_url(&moto.endpoint);
        let config = config.credentials_provider(Credentials::new("a", "b", None, None, "test"));
        let secrets = Client::from_conf(config.build());
        let first = secret(&secured, "rotating", "first", DATABASE);
        let made = secrets.create_secret().name("database").secret_string(first).send().await;
        let arn = made.unwrap().arn.unwrap();
        let vault = Vault { secured, world, moto, secrets, arn };
        vault.execute("CREATE ROLE rotating LOGIN PASSWORD 'first' IN ROLE cronbox_publisher".to_owned()).await;
        vault
    }

    /// The process gets the secret and the certificate authority instead of a DSN.
    fn with_secret(&self, mut command: Command) -> Command {
        command
            .env_remove("CRONBOX_DB_DSN")
            .env("CRONBOX_DB_SECRET_ARN", &self.arn)
            .env("CRONBOX_DB_CA_FILE", &self.secured.ca);
        command.env("AWS_ENDPOINT_URL_SECRETS_MANAGER", &self.moto.endpoint);
        command
    }

    /// Changes the password in the database, and ends the sessions with the old one.
    async fn rotate_in_the_database(&self, password: &str) {
        self.execute(format!("ALTER ROLE rotating PASSWORD '{password}'")).await;
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotating'".to_owned())
            .await;
    }

    /// Changes the password in the secret.
    async fn rotate_in_the_secret(&self, password: &str) {
        self.store_login("rotating", password).await;
    }

    /// Stores a login as the current version of the secret.
    async fn store_login(&self, user: &str, password: &str) {
        self.store(secret(&self.secured, user, password, DATABASE)).await;
    }

    async fn store(&self, text: String) {
        let put = self.secrets.put_secret_value().secret_id(&self.arn);
        put.secret_string(text).send().await.unwrap();
    }

    async fn execute(&self, statement: String) {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.world.pool).await.unwrap();
    }
}

const DATABASE: &str = "cronbox";

fn secret(secured: &Secured, user: &str, password: &str, database: &str) -> String {
    let port = secured.port();
    json!({"engine": "postgres", "username": user, "password": password, "host": "localhost", "port": port, "dbname": database})
        .to_string()
}

/// The invocation that finds the password rotated also drains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_lambdas_drain_despite_a_rotation() {
    let vault = Vault::new().await;
    let (runtime, (invoke, mut answered)) = Runtime::new();
    let mut command = vault.with_secret(vault.world.lambda_command(&serve(runtime).await));
    let _lambda = command.stdout(Stdio::null()).spawn().unwrap();
    let mut tick = async || -> (String, Value) {
        invoke.send(json!({"source": "aws.events"})).unwrap();
        answer(&mut answered).await
    };
    vault.world.create("0 9 * * *", "UTC").await;
    assert_eq!(tick().await.1["created"], json!(1), "it is warm");

    vault.rotate_in_the_secret("second").await;
    vault.rotate_in_the_database("second").await;
    vault.world.create("0 10 * * *", "UTC").await;
    let (kind, report) = tick().await;
    assert_eq!((kind.as_str(), &report["created"], &report["remaining"]), ("response", &json!(1), &json!(0)));

    // Between the two steps of a rotation, no password is valid, so this tick fails. The tick after the rotation
    // succeeds.
    vault.rotate_in_the_database("third").await;
    let lost = vault.world.create("0 11 * * *", "UTC").await;
    let (kind, error) = tick().await;
    assert_eq!(kind, "error", "{error}");
    assert!(!error.to_string().contains("second"), "no password in an error: {error}");
    vault.rotate_in_the_secret("third").await;
    assert_eq!(tick().await.1["created"], json!(1));
    assert!(vault.world.schedule(lost).await.is_some());
}

/// A raised `secrets_version` of Terraform stores the next login minutes before a task of the app makes it. A Lambda that starts meanwhile
/// uses the version of the secret before it, and the next login once the one before has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_lambdas_use_the_login_before() {
    let vault = Vault::new().await;
    vault.store_login("rotating_2", "second").await;
    let (runtime, (invoke, mut answered)) = Runtime::new();
    let mut command = vault.with_secret(vault.world.lambda_command(&serve(runtime).await));
    let _lambda = command.stdout(Stdio::null()).spawn().unwrap();
    let mut tick = async || -> (String, Value) {
        invoke.send(json!({"source": "aws.events"})).unwrap();
        answer(&mut answered).await
    };
    vault.world.create("0 9 * * *", "UTC").await;
    let (kind, report) = tick().await;
    assert_eq!((kind.as_str(), &report["created"]), ("response", &json!(1)), "{report}");

    vault.execute("CREATE ROLE rotating_2 LOGIN PASSWORD 'second' IN ROLE cronbox_publisher".to_owned()).await;
    vault.rotate_in_the_database("of no secret").await;
    vault.world.create("0 10 * * *", "UTC").await;
    let (kind, report) = tick().await;
    assert_eq!((kind.as_str(), &report["created"]), ("response", &json!(1)), "{report}");
}

/// The secret names the restored database, which does not have its login yet. The version before names the lost one, which must
/// not be published any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_logins_lead_to_no_other_database() {
    let vault = Vault::new().await;
    let (runtime, (invoke, mut answered)) = Runtime::new();
    vault.store(secret(&vault.secured, "rotating_2", "second", "postgres")).await;
    let mut command = vault.with_secret(vault.world.lambda_command(&serve(runtime).await));
    let _lambda = command.stdout(Stdio::null()).spawn().unwrap();
    let of_before = vault.world.create("0 9 * * *", "UTC").await;
    // The second tick also begins with a refusal.
    for _ in 0..2 {
        invoke.send(json!({"source": "aws.events"})).unwrap();
        let (kind, error) = answer(&mut answered).await;
        assert_eq!(kind, "error", "{error}");
    }
    assert!(vault.world.schedule(of_before).await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_publish_after_a_rotation() {
    let vault = Vault::new().await;
    let mut command = vault.with_secret(vault.world.command());
    let _daemon = command.arg("--listen").stderr(Stdio::null()).spawn().unwrap();
    let first = vault.world.create("0 9 * * *", "UTC").await;
    until_published(&vault, first).await;

    vault.rotate_in_the_secret("second").await;
    vault.rotate_in_the_database("second").await;
    let second = vault.world.create("0 10 * * *", "UTC").await;
    until_published(&vault, second).await;

    // The daemon also listens again. With another role, its session would not be counted here.
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'rotating' AND query LIKE 'LISTEN%'";
    let started = Instant::now();
    while sqlx::query_scalar::<_, i64>(listening).fetch_one(&vault.world.pool).await.unwrap() == 0 {
        assert!(started.elapsed() < PATIENCE, "notifications are lost for good");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_published(vault: &Vault, workflow: schedule::WorkflowId) {
    let started = Instant::now();
    while vault.world.schedule(workflow).await.is_none() {
        assert!(started.elapsed() < PATIENCE, "{workflow} is never published");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
