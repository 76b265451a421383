//! A backlog in a database of its own, the stand-in as a process, and publishers that drain the backlog.

use std::process::Stdio;
use std::time::{Duration, Instant};

use db::PgPool;
use local::stack::Database;
use serde_json::Value;
use tests::measure::{PostgresMeter, ended_children_cpu_secs, high_water_mb};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::table::median;
use crate::{free_port, millis, program};

const GROUP: &str = "cronbox-bench";
/// The environment of every process of a case.
pub(crate) const ENVIRONMENT: &str = "bench";
/// The publisher's own rate limit, so high that only latency and quota limit the drain.
const UNLIMITED_TPS: &str = "1000000";
/// Workflows that a statement adds at most, so that it ends within the statement timeout.
const IN_A_STATEMENT: i64 = 50_000;

/// The processes and the database of a drain.
pub(crate) struct Backlog {
    pub(crate) pool: PgPool,
    database: Database,
    endpoint: String,
    _stand_in: Child,
}

/// The result of a drain.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    pub(crate) secs: f64,
    pub(crate) rows: f64,
    pub(crate) writes: f64,
    pub(crate) retried: f64,
    pub(crate) peak_rss_mb: f64,
    /// Processor time of all publishers together.
    pub(crate) publisher_cpu_secs: f64,
    /// Processor time of Postgres in the same time.
    pub(crate) postgres_cpu_secs: f64,
}

impl Drained {
    /// Milliseconds of processor time for 1,000 rows.
    pub(crate) fn cpu_ms_per_thousand_rows(&self, cpu_secs: f64) -> f64 {
        1_000.0 * 1_000.0 * cpu_secs / self.rows
    }

    fn add(&mut self, (report, peak_rss_mb): (Value, f64)) {
        let count = |name: &str| report[name].as_f64().unwrap();
        self.writes += count("created") + count("updated") + count("deleted");
        self.retried += count("retried");
        self.peak_rss_mb = self.peak_rss_mb.max(peak_rss_mb);
    }
}

impl Backlog {
    /// An empty backlog. The stand-in answers after `latency_ms`, and throttles above `tps`.
    pub(crate) async fn new(latency_ms: u64, tps: Option<u32>) -> Backlog {
        let address = format!("127.0.0.1:{}", free_port());
        let mut stand_in = Command::new(program("cronbox-local"));
        stand_in.args(["scheduler", "--listen", &address, "--latency-ms", &latency_ms.to_string()]);
        if let Some(tps) = tps {
            stand_in.args(["--tps", &tps.to_string()]);
        }
        let stand_in = stand_in.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let endpoint = format!("http://{address}");
        let made = Instant::now();
        let group = format!("{endpoint}/schedule-groups/{GROUP}");
        loop {
            match reqwest::Client::new().post(&group).json(&serde_json::json!({})).send().await {
                Ok(created) => break assert!(created.status().is_success(), "{created:?}"),
                Err(_) => assert!(made.elapsed() < Duration::from_secs(10), "the stand-in does not start"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let database = Database::clone_template().await.unwrap();
        // With a name of its own, so that its sessions are not counted as the app's.
        let options = app::config::database_options(&database.dsn(), 10);
        let options = db::Options { application_name: "cronbox-bench", ..options };
        let pool = db::connect_pool(&options).await.unwrap();
        Backlog { pool, database, endpoint, _stand_in: stand_in }
    }

    /// Begins the schedule version of each workflow an hour ago, but not yesterday, which the app would verify during the
    /// measurement.
    pub(crate) async fn begin_versions(&self) {
        sqlx::raw_sql(BEGIN_VERSIONS).execute(&self.pool).await.unwrap();
    }

    /// Adds `rows` edits of `workflows` new workflows, interleaved, in the form that the app writes.
    pub(crate) async fn fill(&self, rows: i64, workflows: i64) {
        let mut missing = workflows;
        while missing > 0 {
            let added = missing.min(IN_A_STATEMENT);
            self.fill_team(rows / workflows, added).await;
            missing -= added;
        }
        sqlx::raw_sql("ANALYZE outbox_events, publications, workflows").execute(&self.pool).await.unwrap();
    }

    /// Adds a team with this many workflows, and as many edits of each.
    async fn fill_team(&self, edits_of_each: i64, workflows: i64) {
        let sql = format!(
            "WITH team AS (
                 INSERT INTO teams (name, signing_secret, created_on)
                 VALUES (gen_random_uuid()::text, 's', cronbox_now()) RETURNING id
             ), made AS (
                 INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on)
                 SELECT id, n::text, '{{\"type\":\"log\",\"message\":\"m\"}}', (n % 60) || ' ' || (n % 24) || ' * * *', 1,
                        cronbox_now(), cronbox_now()
                   FROM team, generate_series(1, {workflows}) AS n RETURNING id
             ), published AS (
                 INSERT INTO publications (workflow_id, desired_revision, due_at)
                 SELECT id, 1, cronbox_now() FROM made
             )
             INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
             SELECT id, 'upsert', '{{\"revision\":1}}', cronbox_now()
               FROM generate_series(1, {edits_of_each}) AS nth, made ORDER BY nth, id"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }

    /// Adds `times` more rows of every workflow. Each requests the schedule that already exists.
    pub(crate) async fn ask_again(&self, times: i64) {
        let sql = format!(
            "UPDATE publications SET due_at = cronbox_now();
             INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
             SELECT workflow_id, 'upsert', '{{\"revision\":1}}', cronbox_now()
               FROM generate_series(1, {times}) AS nth, publications ORDER BY nth, workflow_id;"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
        sqlx::raw_sql("VACUUM ANALYZE outbox_events").execute(&self.pool).await.unwrap();
        sqlx::raw_sql("VACUUM ANALYZE publications").execute(&self.pool).await.unwrap();
    }

    /// Drains the backlog with this many publishers, which start at once. The time ends with the last settled row.
    pub(crate) async fn drain(&self, publishers: usize, tps: Option<u32>) -> Drained {
        let rows = self.open_rows().await;
        let meter = PostgresMeter::of(&self.pool).await;
        let (children, server) = (ended_children_cpu_secs(), meter.read_usage().await);
        let waiting_since = Instant::now();
        let started: chrono::DateTime<chrono::Utc> = self.scalar("SELECT clock_timestamp()").await;
        let running: Vec<_> = (0..publishers).map(|_| tokio::spawn(watched(self.publisher(tps)))).collect();
        let mut drained = Drained { rows, ..Drained::default() };
        for publisher in running {
            drained.add(publisher.await.unwrap());
        }
        // With `--once`, a row that waits for its backoff stays open until the next call.
        while self.open_rows().await > 0.0 {
            assert!(waiting_since.elapsed() < Duration::from_secs(300), "rows are left open");
            tokio::time::sleep(Duration::from_millis(100)).await;
            drained.add(watched(self.publisher(tps)).await);
        }
        // All publishers have ended, and nothing else that this process started has.
        drained.publisher_cpu_secs = ended_children_cpu_secs() - children;
        drained.postgres_cpu_secs = meter.read_usage().await.since(server).cpu_secs;
        let ended: chrono::DateTime<chrono::Utc> = self.scalar("SELECT MAX(processed_on) FROM outbox_events").await;
        drained.secs = (ended - started).as_seconds_f64();
        drained
    }

    /// Rows per second of the naive publisher, the peer.
    pub(crate) async fn naive(&self, rows: u32) -> f64 {
        let python = local::config::target_folder().join("venv/bin/python");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/naive_publisher.py");
        let mut naive = Command::new(python);
        naive.args([script, &rows.to_string()]).envs(self.environment()).stderr(Stdio::inherit());
        let output = naive.output().await.unwrap();
        assert!(output.status.success(), "the naive publisher fails");
        let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
        reply["rows"].as_f64().unwrap() / reply["secs"].as_f64().unwrap()
    }

    /// The latency of one call to the stand-in without other load, in milliseconds. The limit of a drain follows from
    /// it.
    pub(crate) async fn latency_ms(&self) -> f64 {
        let http = reqwest::Client::new();
        let mut taken = Vec::new();
        for _ in 0..30 {
            let sent = Instant::now();
            http.get(format!("{}/schedules/none?groupName={GROUP}", self.endpoint)).send().await.unwrap();
            taken.push(millis(sent));
        }
        median(&taken)
    }

    /// A publisher that keeps running, and sweeps on request.
    pub(crate) fn daemon(&self, tps: Option<u32>) -> Child {
        let mut command = self.program(tps, "--listen");
        command.kill_on_drop(true).spawn().unwrap()
    }

    /// The highest resident memory of a publisher so far.
    pub(crate) fn peak_rss_mb(&self, publisher: &Child) -> f64 {
        high_water_mb(publisher.id().unwrap())
    }

    /// Deletes every `nth` schedule without the publisher's knowledge.
    pub(crate) async fn delete_manually(&self, nth: i64) {
        let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM workflows WHERE id % $1 = 0")
            .bind(nth)
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let http = reqwest::Client::new();
        for id in ids {
            let url = format!("{}/schedules/wf-{id}-bench?groupName={GROUP}", self.endpoint);
            assert!(http.delete(url).send().await.unwrap().status().is_success());
        }
    }

    /// Stops everything, and deletes the database.
    pub(crate) async fn end(self) {
        self.pool.close().await;
        self.database.remove_clone().await.unwrap();
    }

    fn publisher(&self, tps: Option<u32>) -> Command {
        self.program(tps, "--once")
    }

    fn program(&self, tps: Option<u32>, mode: &str) -> Command {
        let mut command = Command::new(program("cronbox-publisher"));
        let tps = tps.map_or_else(|| UNLIMITED_TPS.to_owned(), |tps| tps.to_string());
        command.arg(mode).envs(self.environment()).env("CRONBOX_API_TPS", tps).env("RUST_LOG", "warn");
        command
    }

    /// Sets the stand-in's faults from now on.
    pub(crate) async fn plan_faults(&self, plan: &Value) {
        let planned = reqwest::Client::new().post(format!("{}/_faults", self.endpoint)).json(plan).send().await;
        assert!(planned.unwrap().status().is_success());
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CRONBOX_ENV", ENVIRONMENT.to_owned()),
            ("CRONBOX_DB_DSN", self.database.dsn()),
            ("CRONBOX_RUNNER_LAMBDA_ARN", "arn:aws:lambda:us-east-1:123456789012:function:runner".to_owned()),
            ("CRONBOX_SCHEDULER_ROLE_ARN", "arn:aws:iam::123456789012:role/scheduler".to_owned()),
            ("CRONBOX_SCHEDULE_GROUP", GROUP.to_owned()),
            ("CRONBOX_SCHEDULE_DLQ_ARN", "arn:aws:sqs:us-east-1:123456789012:schedules-dlq".to_owned()),
            ("AWS_ENDPOINT_URL_SCHEDULER", self.endpoint.clone()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "a".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "b".to_owned()),
        ]
    }

    pub(crate) fn dsn(&self) -> String {
        self.database.dsn()
    }

    async fn open_rows(&self) -> f64 {
        self.scalar("SELECT COUNT(*)::float8 FROM outbox_events WHERE processed_on IS NULL").await
    }

    pub(crate) async fn scalar<T>(&self, query: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(query).fetch_one(&self.pool).await.unwrap()
    }
}

/// Runs a publisher until it exits, and returns its report and its highest resident memory.
async fn watched(mut command: Command) -> (Value, f64) {
    let mut publisher = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let process = publisher.id().unwrap();
    let mut peak_rss_mb = 0.0_f64;
    let ended = loop {
        if let Ok(Some(ended)) = publisher.try_wait() {
            break ended;
        }
        peak_rss_mb = peak_rss_mb.max(high_water_mb(process));
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let mut report = String::new();
    publisher.stdout.take().unwrap().read_to_string(&mut report).await.unwrap();
    assert!(ended.success(), "the publisher fails: {report}");
    (serde_json::from_str(&report).unwrap(), peak_rss_mb)
}

const BEGIN_VERSIONS: &str = "
    INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
    SELECT id, revision,
           GREATEST(clock_timestamp() - INTERVAL '1 hour',
                    LEAST(date_trunc('day', clock_timestamp(), 'UTC'), clock_timestamp() - INTERVAL '10 minutes')),
           cron_schedule, state
      FROM workflows;
    ANALYZE workflows, schedule_versions;
";
