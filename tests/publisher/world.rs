//! A database with the app's edits, an EventBridge whose answers the test can set, and publishers.

mod process;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::config::timeout::TimeoutConfig;
use chrono::{DateTime, Utc};
use db::PgPool;
use local::clock_and_zones::stand_in_clock;
use publisher::{Config, DeadLetterSettings, Publisher, Report};
use reqwest::{Method, RequestBuilder};
use schedule::{Clock, WorkflowId};
use serde_json::{Value, json};
use stand_in::dead_letters::DeadLetter;
use stand_in::scheduler::stored_schedule::Key;
use stand_in::{Options, StandIn, StandInServer, scheduler};
use tests::PATIENCE;

use crate::proxy::{Call, Front};

pub(crate) use process::stopped;

pub(crate) const GROUP: &str = "cronbox-test";
/// The name of a list call.
pub(crate) const LIST: &str = "/schedules";

/// Makes `cronbox_now()` return the time of this statement.
const FREEZE_CLOCK: &str = "
    DO $$ BEGIN
        EXECUTE format('CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE
                        AS $f$BEGIN RETURN %L::timestamptz; END$f$', cronbox_now());
    END $$";

/// Everything that a story needs.
pub(crate) struct World {
    pub(crate) pool: PgPool,
    /// As the owner; a publisher has a login of its own.
    pub(crate) dsn: String,
    pub(crate) front: Front,
    pub(crate) clock: Clock,
    pub(crate) endpoint: String,
    beyond: String,
    pub(crate) team: i64,
    served: Option<StandInServer>,
}

/// The publisher's record of one workflow.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Publication {
    pub(crate) sync: String,
    pub(crate) desired_revision: i64,
    pub(crate) applied_revision: Option<i64>,
    pub(crate) epoch: i64,
    pub(crate) attempt_count: i32,
    pub(crate) error_class: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) spec_hash: Option<String>,
    pub(crate) schedule_name: Option<String>,
    pub(crate) is_leased: bool,
    pub(crate) due_in_secs: Option<f64>,
    pub(crate) verify_in_secs: Option<f64>,
}

pub(crate) fn at(time: &str) -> DateTime<Utc> {
    time.parse().unwrap()
}

impl World {
    pub(crate) async fn new() -> World {
        World::with_latency(Duration::ZERO).await
    }

    /// A world whose EventBridge answers with this latency.
    pub(crate) async fn with_latency(latency: Duration) -> World {
        let clock = Clock::fixed(at("2026-03-02T10:00:00Z"));
        let scheduler = scheduler::Options { latency, ..scheduler::Options::default() };
        let options = Options { scheduler, ..Options::default() };
        let served = StandInServer::start_anywhere(StandIn::new(options, stand_in_clock(&clock))).await.unwrap();
        let beyond = served.endpoint.clone();
        World::before(&beyond, Some(served), clock).await
    }

    /// A world whose EventBridge is at `beyond`.
    pub(crate) async fn before(beyond: &str, served: Option<StandInServer>, clock: Clock) -> World {
        let (pool, dsn) = crate::database::fresh().await;
        World::on(pool, dsn, beyond, served, clock).await
    }

    /// A world on this database, whose EventBridge is at `beyond`.
    pub(crate) async fn on(
        pool: PgPool,
        dsn: String,
        beyond: &str,
        served: Option<StandInServer>,
        clock: Clock,
    ) -> World {
        let (front, endpoint) = Front::before(beyond).await;
        let team = sqlx::query_scalar::<_, i64>(
            "INSERT INTO teams (name, signing_secret, created_on) VALUES ('t', 's', cronbox_now()) RETURNING id",
        );
        let team = team.fetch_one(&pool).await.unwrap();
        let group = raw(Method::POST, format!("{beyond}/schedule-groups/{GROUP}")).body("{}").send().await.unwrap();
        assert!(group.status().is_success(), "{}", group.text().await.unwrap());
        World { pool, dsn, front, clock, endpoint, beyond: beyond.to_owned(), team, served }
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            env: "dev".parse().unwrap(),
            runner_lambda_arn: "arn:aws:lambda:us-east-1:123456789012:function:runner".to_owned(),
            scheduler_role_arn: "arn:aws:iam::123456789012:role/scheduler".to_owned(),
            schedule_group: GROUP.to_owned(),
            schedule_dlq_arn: "arn:aws:sqs:us-east-1:123456789012:schedules-dlq".to_owned(),
            batch_size: 100,
            max_attempts: 10,
            api_concurrency: 64,
            api_tps: 100_000,
            config_generation: 0,
            letters: publisher::DeadLetterSettings::default(),
            #[cfg(debug_assertions)]
            fault: None,
        }
    }

    /// The configuration of a publisher that mirrors a queue of EventBridge. The queue has one message.
    pub(crate) fn config_with_dead_letter(&self) -> Config {
        let config = self.config();
        let letter =
            DeadLetter { queue: config.schedule_dlq_arn.clone(), body: json!({}), attributes: BTreeMap::new() };
        self.served.as_ref().unwrap().stand_in.dead_letters.push(letter);
        let url = format!("{}/123456789012/schedules-dlq", self.beyond).parse().unwrap();
        let letters = DeadLetterSettings { schedule_dlq_url: Some(url), ..DeadLetterSettings::default() };
        Config { letters, ..config }
    }

    /// A publisher with its own connections, like a process.
    pub(crate) async fn publisher(&self) -> Publisher {
        self.publisher_with(self.config()).await
    }

    pub(crate) async fn publisher_with(&self, config: Config) -> Publisher {
        let client = self.patient_client().await;
        self.publisher_speaking_through(client, config)
    }

    /// A publisher that a test can stop at its fault points, or whose lease clock it can set.
    #[cfg(debug_assertions)]
    pub(crate) async fn publisher_hooked(&self, hook: publisher::Hook) -> Publisher {
        self.publisher_hooked_by_way_of(&self.dsn, hook).await
    }

    /// The same, with another DSN.
    #[cfg(debug_assertions)]
    pub(crate) async fn publisher_hooked_by_way_of(&self, dsn: &str, hook: publisher::Hook) -> Publisher {
        self.publisher_hooked_on(crate::database::publisher_pool(dsn), hook).await
    }

    /// The same, with this pool.
    #[cfg(debug_assertions)]
    pub(crate) async fn publisher_hooked_on(&self, pool: PgPool, hook: publisher::Hook) -> Publisher {
        Publisher::with_hook(self.config(), pool, self.patient_client().await, self.clock.clone(), hook)
    }

    /// The same, with this configuration.
    #[cfg(debug_assertions)]
    pub(crate) async fn publisher_hooked_with(&self, config: Config, hook: publisher::Hook) -> Publisher {
        let pool = crate::database::publisher_pool(&self.dsn);
        Publisher::with_hook(config, pool, self.patient_client().await, self.clock.clone(), hook)
    }

    /// A publisher with another DSN.
    pub(crate) async fn publisher_by_way_of(&self, dsn: &str) -> Publisher {
        let client = self.patient_client().await;
        Publisher::new(self.config(), crate::database::publisher_pool(dsn), client, self.clock.clone())
    }

    /// A publisher that waits for a connection for a second at most.
    pub(crate) async fn publisher_without_patience_for(&self, dsn: &str) -> Publisher {
        let client = self.patient_client().await;
        Publisher::new(self.config(), crate::database::impatient_pool(dsn), client, self.clock.clone())
    }

    /// A client with long timeouts, because a story can delay a call on a busy machine.
    async fn patient_client(&self) -> Client {
        let client = publisher::scheduler_client(Some(&self.endpoint)).await;
        let patient = TimeoutConfig::builder()
            .read_timeout(PATIENCE)
            .operation_timeout(PATIENCE)
            .operation_attempt_timeout(PATIENCE)
            .build();
        Client::from_conf(client.config().to_builder().timeout_config(patient).build())
    }

    /// A publisher with the default timeouts.
    pub(crate) async fn impatient_publisher(&self) -> Publisher {
        let client = publisher::scheduler_client(Some(&self.endpoint)).await;
        self.publisher_speaking_through(client, self.config())
    }

    fn publisher_speaking_through(&self, client: Client, config: Config) -> Publisher {
        Publisher::new(config, crate::database::publisher_pool(&self.dsn), client, self.clock.clone())
    }

    /// One drain by a new publisher.
    pub(crate) async fn publish(&self) -> Report {
        self.publisher().await.drain_outbox(soon()).await.unwrap()
    }

    /// A workflow's schedule in EventBridge.
    pub(crate) async fn schedule(&self, id: WorkflowId) -> Option<Value> {
        let url = format!("{}/schedules/{}?groupName={GROUP}", self.beyond, name(id));
        let answer = raw(Method::GET, url).send().await.unwrap();
        match answer.status().as_u16() {
            404 => None,
            200 => Some(answer.json().await.unwrap()),
            other => panic!("GetSchedule answered {other}"),
        }
    }

    pub(crate) async fn expression(&self, id: WorkflowId) -> Option<String> {
        self.schedule(id).await.map(|schedule| schedule["ScheduleExpression"].as_str().unwrap().to_owned())
    }

    /// Changes or deletes a schedule without the publisher's knowledge.
    pub(crate) async fn meddle(&self, method: Method, id: WorkflowId, body: Value) {
        let url = format!("{}/schedules/{}?groupName={GROUP}", self.beyond, name(id));
        let answer = raw(method, url).body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    /// Creates a schedule with any name and the content of another one.
    pub(crate) async fn make_like(&self, pattern: WorkflowId, name: &str) {
        let body = self.schedule_of_the_past(pattern).await;
        let url = format!("{}/schedules/{name}", self.beyond);
        let answer = raw(Method::POST, url).body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    /// Puts schedules with these names into the stand-in, with the content of another one and without API calls.
    pub(crate) fn put_like(&self, pattern: WorkflowId, names: impl Iterator<Item = String>) {
        let key = |name: String| Key { group: GROUP.to_owned(), name };
        let mut store = self.served.as_ref().unwrap().stand_in.scheduler.lock_store();
        let spec = store.get(&key(name(pattern))).unwrap().spec.clone();
        for name in names {
            store.create_schedule(key(name), spec.clone(), None, None, self.clock.now()).unwrap();
        }
    }

    /// Whether EventBridge has a schedule with this name.
    pub(crate) async fn exists(&self, name: &str) -> bool {
        let url = format!("{}/schedules/{name}?groupName={GROUP}", self.beyond);
        raw(Method::GET, url).send().await.unwrap().status().is_success()
    }

    /// Creates another schedule group.
    pub(crate) async fn make_group(&self, group: &str) {
        let made =
            raw(Method::POST, format!("{}/schedule-groups/{group}", self.beyond)).body("{}").send().await.unwrap();
        assert!(made.status().is_success(), "{}", made.text().await.unwrap());
    }

    /// Whether EventBridge has a workflow's schedule in this group.
    pub(crate) async fn exists_in(&self, group: &str, id: WorkflowId) -> bool {
        let url = format!("{}/schedules/{}?groupName={group}", self.beyond, name(id));
        raw(Method::GET, url).send().await.unwrap().status().is_success()
    }

    /// Sets the faults of EventBridge from now on.
    pub(crate) async fn plan_faults(&self, plan: Value) {
        self.set_switch("_faults", plan).await;
    }

    /// Advances EventBridge's clock, and fires the schedules that become due.
    pub(crate) async fn fire_until(&self, now: &str) {
        self.set_switch("_clock", json!({ "now": now })).await;
    }

    /// The number of fires that became dead letters, because there is no runner here.
    pub(crate) async fn dead_letters(&self) -> usize {
        let answer = raw(Method::GET, format!("{}/_dead-letters", self.beyond)).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["items"].as_array().unwrap().len()
    }

    /// An operator creates the group, or deletes it with all its schedules.
    pub(crate) async fn meddle_with_group(&self, method: Method) {
        let answer = raw(method, format!("{}/schedule-groups/{GROUP}", self.beyond)).body("{}").send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    async fn set_switch(&self, switch: &str, body: Value) {
        let answer =
            raw(Method::POST, format!("{}/{switch}", self.beyond)).body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    /// The schedule that an older request would create: the same name with another cron.
    pub(crate) async fn schedule_of_the_past(&self, id: WorkflowId) -> Value {
        let mut schedule = self.schedule(id).await.unwrap();
        for its_own in ["Arn", "CreationDate", "LastModificationDate", "Name"] {
            schedule.as_object_mut().unwrap().remove(its_own);
        }
        schedule["ScheduleExpression"] = json!("cron(0 1 * * ? *)");
        schedule
    }

    /// The calls about single schedules since the last query, without the list calls of a daemon.
    pub(crate) fn calls(&self) -> Vec<(String, u16)> {
        let of_one = self.front.take_calls().into_iter().filter(|call| call.name != LIST);
        of_one.map(|Call { method, status, .. }| (method, status)).collect()
    }

    /// Whether another session of this database has started a transaction and not ended it.
    pub(crate) async fn has_open_transaction(&self) -> bool {
        let open = "SELECT EXISTS (SELECT FROM pg_stat_activity
                                    WHERE datname = current_database() AND pid <> pg_backend_pid()
                                      AND xact_start IS NOT NULL)";
        sqlx::query_scalar(open).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn publication(&self, id: WorkflowId) -> Publication {
        sqlx::query_as(
            "SELECT sync_status(p) AS sync, desired_revision, applied_revision, epoch, attempt_count, error_class,
                    last_error, spec_hash, schedule_name, lease_owner IS NOT NULL AS is_leased,
                    EXTRACT(EPOCH FROM due_at - cronbox_now())::float8 AS due_in_secs,
                    EXTRACT(EPOCH FROM verify_at - cronbox_now())::float8 AS verify_in_secs
               FROM publications AS p WHERE workflow_id = $1",
        )
        .bind(id.0)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// The description that each schedule of this database has.
    pub(crate) async fn description(&self) -> String {
        let identity: Option<String> = sqlx::query_scalar("SELECT 'cronbox ' || uuid FROM database_identity")
            .fetch_optional(&self.pool)
            .await
            .unwrap();
        identity.unwrap()
    }

    /// The numbers of a workflow's outbox rows: (processed, failed, open).
    pub(crate) async fn outbox(&self, id: WorkflowId) -> (i64, i64, i64) {
        sqlx::query_as(
            "SELECT COUNT(processed_on), COUNT(failed_on), COUNT(*) FILTER (WHERE processed_on IS NULL AND failed_on IS NULL)
               FROM outbox_events WHERE aggregate_id = $1",
        )
        .bind(id.0)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// Advances the clock of coordination, so that leases expire and backoffs end.
    pub(crate) async fn skip(&self, time: Duration) {
        let secs = time.as_secs_f64();
        let sql = format!(
            "CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE
             AS 'BEGIN RETURN clock_timestamp() + make_interval(secs => {secs}); END'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }

    /// Stops the clock of coordination where it is, until the next skip. The first backoff is 0.1 s to 2 s, and a drain repeats what
    /// becomes due: without this, a drain on a loaded machine would make a second attempt.
    pub(crate) async fn freeze_clock(&self) {
        sqlx::raw_sql(FREEZE_CLOCK).execute(&self.pool).await.unwrap();
    }

    /// Asserts that no publication is due or leased, and that no outbox row is open.
    pub(crate) async fn assert_settled(&self) {
        let pending: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM publications WHERE due_at <= cronbox_now() OR lease_owner IS NOT NULL",
        )
        .fetch_one(&self.pool)
        .await
        .unwrap();
        assert_eq!(pending, 0, "publications due or leased");
        let open: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM outbox_events WHERE processed_on IS NULL AND failed_on IS NULL")
                .fetch_one(&self.pool)
                .await
                .unwrap();
        assert_eq!(open, 0, "outbox rows open");
    }
}

pub(crate) fn name(id: WorkflowId) -> String {
    format!("wf-{id}-dev")
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A request like the console's; moto needs the signature to find the service.
fn raw(method: Method, url: String) -> RequestBuilder {
    // One client for all stories, because each client would read the machine's certificates. It keeps no connection,
    // because each story has its own runtime.
    static HTTP: LazyLock<reqwest::Client> =
        LazyLock::new(|| reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap());
    let signature =
        "AWS4-HMAC-SHA256 Credential=a/20260302/us-east-1/scheduler/aws4_request, SignedHeaders=host, Signature=0";
    HTTP.request(method, url).header("authorization", signature).header("content-type", "application/json")
}
