//! Many fires on three instances of the app: each time runs once, in spite of crashes and different spellings.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use access::keys::{Holder, create_key};
use access::teams::create_team;
use chrono::{DateTime, FixedOffset, SecondsFormat, TimeDelta, Utc};
use db::PgPool;
use local::postgres::{Login, log_in_as};
use reqwest::Method;
use schedule::Clock;
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Way, find_kept_port};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use workflows::audit::Edit;

use crate::database_outages::Server;

const WORKFLOWS: usize = 500;
const MINUTES: usize = 2;
const TIMES_EACH: usize = 10;
const CLIENTS: usize = 48;

/// Three instances on one database, and all fires that the clients send.
struct Storm {
    pool: PgPool,
    instances: Vec<Instance>,
    fires: Vec<Fire>,
}

struct Instance {
    api: Api,
    address: String,
    dsn: String,
    process: Child,
}

/// One delivery of a fire.
#[derive(Clone)]
struct Fire {
    workflow: i64,
    time: DateTime<Utc>,
    nth: usize,
}

/// The answers to the clients, by workflow and time: (status, run).
type Answers = BTreeMap<(i64, DateTime<Utc>), Vec<(u16, String)>>;

impl Fire {
    /// Writes the same minute in one of five ways.
    fn spelled(&self) -> String {
        let offset = |hours: i32| FixedOffset::east_opt(hours * 3600).unwrap();
        match self.nth % 5 {
            0 => self.time.to_rfc3339_opts(SecondsFormat::Secs, true),
            1 => self.time.to_rfc3339_opts(SecondsFormat::Millis, true),
            2 => self.time.with_timezone(&offset(2)).to_rfc3339(),
            3 => (self.time + TimeDelta::seconds(59)).to_rfc3339_opts(SecondsFormat::Secs, true),
            _ => self.time.with_timezone(&offset(-7)).to_rfc3339_opts(SecondsFormat::Micros, false),
        }
    }
}

impl Instance {
    async fn start(dsn: &str, key: &str) -> Instance {
        let address = format!("127.0.0.1:{}", find_kept_port());
        let process = spawn(dsn, &address);
        let instance =
            Instance { api: Api::new(&format!("http://{address}"), key), address, dsn: dsn.to_owned(), process };
        instance.until_ready().await;
        instance
    }

    async fn until_ready(&self) {
        let began = Instant::now();
        while !self.api.try_get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
            assert!(began.elapsed() < PATIENCE, "an instance is never ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills the instance with SIGKILL, and starts it again with an empty cache.
    async fn restart(&mut self) {
        self.process.kill().await.unwrap();
        self.process = spawn(&self.dsn, &self.address);
        self.until_ready().await;
    }
}

fn spawn(dsn: &str, address: &str) -> Child {
    let mut app = Command::new(local::config::target_folder().join("debug/cronbox-app"));
    app.arg("serve").env_clear().envs([("DATABASE_URL", dsn), ("CRONBOX_BIND_ADDR", address), ("RUST_LOG", "off")]);
    // If a storm takes longer than the grace of 300 s, a later turn of the watchdog would catch up the minutes since its beginning.
    app.env("CRONBOX_JOB_WATCHDOG", "86400s");
    app.kill_on_drop(true).stdout(Stdio::null()).spawn().unwrap()
}

impl Storm {
    async fn on(dsn: &str) -> Storm {
        let pool = db::connect_pool(&app::config::database_options(dsn, 10)).await.unwrap();
        let how = Edit::without_request("chaos", Clock::System.now());
        let mut tx = db::begin_transaction(&pool).await.unwrap();
        let (team, _) = create_team(&mut tx, "chaos", &workflows::secrets::Secrets::default(), &how).await.unwrap();
        let (_, key) = create_key(&mut tx, Holder::Scheduler, "runner", &how).await.unwrap();
        tx.commit().await.unwrap();
        let workflows: Vec<i64> = sqlx::query_scalar(WORKFLOWS_OF_AN_HOUR)
            .bind(team.id)
            .bind(i32::try_from(WORKFLOWS).unwrap())
            .fetch_all(&pool)
            .await
            .unwrap();
        sqlx::query(THEIR_VERSIONS).execute(&pool).await.unwrap();
        let mut instances = Vec::new();
        for _ in 0..3 {
            instances.push(Instance::start(&log_in_as(dsn, Login::App), key.reveal_text()).await);
        }
        Storm { pool, instances, fires: fires(&workflows) }
    }

    /// Sends all fires with many clients, each to the next instance. Fires without an answer are sent again, as Lambda
    /// does.
    fn begin(&self) -> JoinSet<Answers> {
        let (fires, next) = (Arc::new(self.fires.clone()), Arc::new(AtomicUsize::default()));
        let apis: Vec<Api> = self.instances.iter().map(|instance| instance.api.clone()).collect();
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            clients.spawn(deliver(apis.clone(), client, Arc::clone(&fires), Arc::clone(&next)));
        }
        clients
    }

    /// Asserts exactly one run for each time, and that each answer names this run.
    async fn check_answers(&self, mut clients: JoinSet<Answers>) -> Answers {
        let mut reply = Answers::new();
        while let Some(some) = clients.join_next().await {
            for (key, answers) in some.unwrap() {
                reply.entry(key).or_default().extend(answers);
            }
        }
        let runs: Vec<(i64, DateTime<Utc>, String)> =
            sqlx::query_as("SELECT workflow_id, scheduled_time, id::text FROM runs")
                .fetch_all(&self.pool)
                .await
                .unwrap();
        assert_eq!((runs.len(), reply.len()), (WORKFLOWS * MINUTES, WORKFLOWS * MINUTES), "one run for each time");
        for (workflow, time, run) in runs {
            let answers = &reply[&(workflow, time)];
            assert!(answers.iter().all(|(_, named)| *named == run), "{workflow} at {time} is run {run}: {answers:?}");
        }
        reply
    }
}

async fn deliver(apis: Vec<Api>, client: usize, fires: Arc<Vec<Fire>>, next: Arc<AtomicUsize>) -> Answers {
    let mut reply = Answers::new();
    while let Some(fire) = fires.get(next.fetch_add(1, Ordering::Relaxed)) {
        for attempt in 0.. {
            assert!(attempt < 3_000, "a fire is never answered");
            let api = &apis[(client + fire.nth + attempt) % apis.len()];
            if let Some((status, run)) = once(api, fire).await {
                reply.entry((fire.workflow, fire.time)).or_default().push((status, run));
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    reply
}

/// Returns `None` if the instance or the database is down. Any other answer must be final.
async fn once(api: &Api, fire: &Fire) -> Option<(u16, String)> {
    let body = json!({"scheduled_time": fire.spelled(), "attempt": fire.nth.to_string()});
    let path = format!("/api/v1/cron/workflows/{}:invoke", fire.workflow);
    let response = api.request(Method::POST, &path).json(&body).send().await.ok()?;
    let status = response.status().as_u16();
    let answer: Value = response.json().await.ok()?;
    if status == 503 {
        let code = answer["code"].as_str().unwrap_or_default();
        assert!(["database_unavailable", "database_busy"].contains(&code), "{answer}");
        return None;
    }
    assert!(status == 202 || status == 200 && answer["reason"] == "duplicate", "{status} {answer}");
    Some((status, answer["run_id"].as_str().unwrap().to_owned()))
}

/// Each time this many times, interleaved.
fn fires(workflows: &[i64]) -> Vec<Fire> {
    let now = Clock::System.now();
    let minute =
        now - TimeDelta::seconds(now.timestamp() % 60) - TimeDelta::nanoseconds(now.timestamp_subsec_nanos().into());
    let mut fires = Vec::new();
    for nth in 0..TIMES_EACH {
        for ago in (0..MINUTES).rev() {
            let time = minute - TimeDelta::minutes(i64::try_from(ago).unwrap());
            fires.extend(workflows.iter().map(|workflow| Fire { workflow: *workflow, time, nth }));
        }
    }
    fires
}

fn accepted(reply: &Answers) -> usize {
    reply.values().flatten().filter(|(status, _)| *status == 202).count()
}

/// Three instances get each time ten times, in five spellings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_fires_are_a_thousand_runs() {
    let server = Server::start().await;
    let storm = Storm::on(&server.dsn()).await;

    let reply = storm.check_answers(storm.begin()).await;

    assert_eq!(accepted(&reply), WORKFLOWS * MINUTES, "one 202 for each");
    assert!(reply.values().all(|answers| answers.len() == TIMES_EACH), "and each delivery was answered");
    drop(storm);
    server.remove();
}

/// During the fires, three instances are killed and Postgres is restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_instances_make_no_second_run() {
    let mut server = Server::start().await;
    let mut way = Way::to(&server.dsn()).await;
    let mut storm = Storm::on(&way.dsn(&server.dsn())).await;
    let clients = storm.begin();
    // A client whose connection broke repeats its fire. The first delivery may have been accepted, so the answer is a
    // duplicate.
    for instance in 0..3 {
        until_runs(&server.dsn(), 200 * (instance + 1)).await;
        storm.instances[usize::try_from(instance).unwrap()].restart().await;
    }
    server = server.restart_at_once(way.cut()).await;
    way.lead_to(&server.dsn());
    way.mend().await;
    storm.pool = db::connect_pool(&app::config::database_options(&server.dsn(), 10)).await.unwrap();

    let reply = storm.check_answers(clients).await;

    assert!(accepted(&reply) <= WORKFLOWS * MINUTES, "never two 202 for one time");
    drop(storm);
    server.remove();
}

async fn until_runs(dsn: &str, enough: i64) {
    let (pool, began) = (db::connect_pool(&app::config::database_options(dsn, 10)).await.unwrap(), Instant::now());
    while sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM runs").fetch_one(&pool).await.unwrap() < enough {
        assert!(began.elapsed() < PATIENCE, "the storm stalls");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Every minute is due for each workflow, and its runs may overlap.
const WORKFLOWS_OF_AN_HOUR: &str = r#"
    INSERT INTO workflows (team_id, name, action, cron_schedule, revision, overlap_policy, max_concurrent, catch_up_policy,
                           schedule_activated_at, created_on, updated_on)
    SELECT $1, n::text, '{"type":"log","message":"m"}', '* * * * *', 1, 'concurrent', 100, 'run_all',
           now() - INTERVAL '1 hour', now(), now()
      FROM generate_series(1, $2) AS n RETURNING id"#;
const THEIR_VERSIONS: &str = "
    INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
    SELECT id, revision, now() - INTERVAL '1 hour', cron_schedule, state FROM workflows";
