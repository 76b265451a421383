//! The setup of the chaos tests: an app that gets random edits, and publishers as processes.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use local::postgres::Postgres;
use local::stack::{Database, Ground, KeysFrom, StackOptions};
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tests::{Answer, PATIENCE, Story, Way};
use tokio::process::{Child, Command};

/// EventBridge's latency, long enough that faults hit calls in flight.
const LATENCY: Duration = Duration::from_millis(5);
/// Publications that are due, or that have a lease.
pub(crate) const BUSY: &str =
    "SELECT COUNT(*) FROM publications WHERE due_at <= cronbox_now() OR lease_owner IS NOT NULL";
const NOW: &str = "2026-03-02T10:00:00Z";

/// A story, the edits that the app has accepted, and the running publishers.
pub(crate) struct Field {
    pub(crate) story: Story,
    /// The schedule that the app's last 2xx promised; `None` = archived. After another answer, the workflow is not in
    /// the map.
    pub(crate) promised: BTreeMap<WorkflowId, Option<String>>,
    live: Vec<WorkflowId>,
    publishers: Vec<Child>,
    more: Vec<(&'static str, String)>,
    dice: Dice,
}

/// Whether the app committed an edit, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Committed,
    Nothing,
}

impl Field {
    /// A field on the cluster that all stories share.
    pub(crate) async fn new(seed: u64) -> Field {
        Field::of(Story::with(options()).await, seed).await
    }

    /// A field on a database behind a proxy, so that its server can be restarted at another address.
    pub(crate) async fn behind(way: &Way, postgres: &Postgres, seed: u64) -> Field {
        let any_port = || app::bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
        let ground = Ground {
            database: Database::Elsewhere(way.dsn(&postgres.dsn("cronbox"))),
            app: any_port(),
            scheduler: any_port(),
            keys: KeysFrom::Nowhere,
        };
        Field::of(Story::on(ground, options()).await, seed).await
    }

    async fn of(story: Story, seed: u64) -> Field {
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut field = Field {
            story,
            promised: BTreeMap::new(),
            live: Vec::new(),
            publishers: Vec::new(),
            more: Vec::new(),
            dice,
        };
        for _ in 0..12 {
            assert_eq!(field.create().await, Reply::Committed);
        }
        field
    }

    /// Sets an environment variable for the publishers that start from now on.
    pub(crate) fn set_publisher_variable(&mut self, name: &'static str, value: String) {
        self.more.push((name, value));
    }

    /// Starts a publisher that dies or blocks at the point that `fault` names.
    pub(crate) fn publisher(&self, fault: Option<&str>) -> Child {
        let mut command = Command::new(local::config::target_folder().join("debug/cronbox-publisher"));
        command.arg("--listen").kill_on_drop(true).env_clear().env("PATH", "/usr/bin:/bin");
        command.envs(self.story.publisher_environment()).envs(self.more.iter().cloned());
        command.envs(fault.map(|fault| ("CRONBOX_FAULT", fault))).env("RUST_LOG", "off").stdout(Stdio::null());
        command.spawn().unwrap()
    }

    /// Starts publishers until this many are running.
    pub(crate) fn staff(&mut self, publishers: usize) {
        while self.publishers.len() < publishers {
            self.publishers.push(self.publisher(None));
        }
    }

    /// Kills all publishers at once.
    pub(crate) async fn kill_all(&mut self) {
        for mut publisher in std::mem::take(&mut self.publishers) {
            publisher.kill().await.unwrap();
        }
    }

    /// Asserts that no publisher has exited.
    pub(crate) fn assert_alive(&mut self) {
        for publisher in &mut self.publishers {
            assert_eq!(publisher.try_wait().unwrap(), None, "a publisher ended by itself");
        }
    }

    /// Makes a random edit of a random workflow.
    pub(crate) async fn edit(&mut self) -> Reply {
        let at = self.dice.roll(self.live.len());
        let workflow = self.live[at];
        match self.dice.roll(12) {
            0 => self.create().await,
            1 if self.live.len() > 8 => {
                let reply = self.change(workflow, Method::POST, ":archive", Value::Null).await;
                self.live.swap_remove(at);
                reply
            }
            2 => self.change(workflow, Method::POST, ":pause", json!({"reason": "chaos"})).await,
            3 => self.change(workflow, Method::POST, ":resume", Value::Null).await,
            // Few values, so that an edit can restore an earlier cron.
            _ => {
                let cron = self.cron();
                self.change(workflow, Method::PATCH, "", json!({ "cron_schedule": cron })).await
            }
        }
    }

    pub(crate) async fn create(&mut self) -> Reply {
        let name = format!("w{}", self.dice.next());
        let action = json!({"type": "log", "message": "hello"});
        let body = json!({"name": name, "cron_schedule": self.cron(), "action": action});
        let request = self.story.editor().request(Method::POST, "/api/v1/workflows").json(&body);
        let answer = tests::send_request(request).await;
        if answer.status != 201 {
            return Reply::Nothing;
        }
        let workflow = WorkflowId(answer.id());
        self.live.push(workflow);
        self.promised.insert(workflow, expected_after(&answer));
        Reply::Committed
    }

    async fn change(&mut self, workflow: WorkflowId, method: Method, verb: &str, body: Value) -> Reply {
        let path = format!("/api/v1/workflows/{workflow}{verb}");
        let answer = tests::send_request(self.story.editor().request(method, &path).json(&body)).await;
        if answer.status == 200 {
            self.promised.insert(workflow, expected_after(&answer));
            Reply::Committed
        } else {
            self.promised.remove(&workflow);
            Reply::Nothing
        }
    }

    /// Only on 1 January, so that no schedule fires during the test.
    fn cron(&mut self) -> String {
        format!("{} {} 1 1 *", self.dice.roll(3), self.dice.roll(3))
    }

    /// Advances the clock of leases, backoffs and verify passes, and wakes the publishers.
    pub(crate) async fn skip(&self, secs: i64) {
        self.story.set_clock(self.story.clock.now() + TimeDelta::seconds(secs)).await;
        // Delayed requests arrive before the publishers read again.
        self.story.stand_in.scheduler.receive_late_requests(self.story.clock.now()).await;
        self.wake().await;
    }

    pub(crate) async fn wake(&self) {
        sqlx::query("SELECT pg_notify('cronbox_outbox', '')").execute(&self.story.pool).await.unwrap();
    }

    /// Waits until the result of a counting query is `expected`, and wakes the publishers in the meantime.
    pub(crate) async fn until(&self, query: &str, expected: impl Fn(i64) -> bool) {
        let began = Instant::now();
        loop {
            let count = sqlx::query_scalar::<_, i64>(AssertSqlSafe(query)).fetch_one(&self.story.pool).await.unwrap();
            if expected(count) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "it stays at {count}: {query}");
            self.wake().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lets leases expire, backoffs end and verify passes become due, until nothing is left to do.
    pub(crate) async fn settle(&self) {
        // In this order: a lease, the lifetime of a signature, the verify pass after a takeover, and the pass that may
        // follow it.
        for secs in [61, 15 * 60, 31 * 60, 31 * 60] {
            self.skip(secs).await;
            self.until(BUSY, |busy| busy == 0).await;
        }
    }

    /// Ends the test after the last check.
    pub(crate) async fn end(mut self) {
        self.assert_alive();
        self.kill_all().await;
        self.story.end().await;
    }
}

fn options() -> StackOptions {
    let mut options = StackOptions { now: Some(NOW.parse().unwrap()), ..StackOptions::default() };
    options.stand_in.scheduler.latency = LATENCY;
    options
}

/// The schedule that EventBridge must have after this answer of the app.
fn expected_after(answer: &Answer) -> Option<String> {
    let reply = |field: &str| answer.json[field].as_str().unwrap_or_default().to_owned();
    crate::oracle::expected(&reply("cron_schedule"), &reply("state"))
}

/// A seeded random generator.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // Knuth's MMIX; the low bits are weak.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.next()).unwrap() % sides
    }
}
