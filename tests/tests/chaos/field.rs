//! Where it happens: an app that is edited at random, and publishers in processes of their own.

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

/// How long EventBridge takes: enough that chaos meets calls in the air.
const LATENCY: Duration = Duration::from_millis(5);
/// What is to be done at once, or under way.
pub(crate) const BUSY: &str =
    "SELECT COUNT(*) FROM publications WHERE due_at <= cronbox_now() OR lease_owner IS NOT NULL";
const NOW: &str = "2026-03-02T10:00:00Z";

/// A story, what was promised to its authors, and the publishers at work.
pub(crate) struct Field {
    pub(crate) story: Story,
    /// What an author was told with a 2xx; `None` = archived. Whoever got another answer knows nothing.
    pub(crate) promised: BTreeMap<WorkflowId, Option<String>>,
    live: Vec<WorkflowId>,
    publishers: Vec<Child>,
    more: Vec<(&'static str, String)>,
    dice: Dice,
}

/// What an author was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Committed,
    Nothing,
}

impl Field {
    /// On the cluster that all stories share.
    pub(crate) async fn new(seed: u64) -> Field {
        Field::of(Story::with(options()).await, seed).await
    }

    /// On a database that is reached by a way, so that its server can be restarted elsewhere.
    pub(crate) async fn behind(way: &Way, postgres: &Postgres, seed: u64) -> Field {
        let any_port = || app::listen("127.0.0.1:0".parse().unwrap()).unwrap();
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
            assert_eq!(field.create().await, Told::Committed);
        }
        field
    }

    /// Gives the publishers that start from now on another value of a variable.
    pub(crate) fn tell_publishers(&mut self, name: &'static str, value: String) {
        self.more.push((name, value));
    }

    /// A daemon that dies or stops where `fault` says.
    pub(crate) fn publisher(&self, fault: Option<&str>) -> Child {
        let mut command = Command::new(local::config::target_folder().join("debug/publisher"));
        command.arg("--listen").kill_on_drop(true).env_clear().env("PATH", "/usr/bin:/bin");
        command.envs(self.story.publisher_environment()).envs(self.more.iter().cloned());
        command.envs(fault.map(|fault| ("FAULT", fault))).env("RUST_LOG", "off").stdout(Stdio::null());
        command.spawn().unwrap()
    }

    /// Sees to it that so many daemons are at work.
    pub(crate) fn staff(&mut self, publishers: usize) {
        while self.publishers.len() < publishers {
            self.publishers.push(self.publisher(None));
        }
    }

    /// Kills all daemons at once.
    pub(crate) async fn kill_all(&mut self) {
        for mut publisher in std::mem::take(&mut self.publishers) {
            publisher.kill().await.unwrap();
        }
    }

    /// Asserts that no daemon has ended by itself.
    pub(crate) fn assert_alive(&mut self) {
        for publisher in &mut self.publishers {
            assert_eq!(publisher.try_wait().unwrap(), None, "a publisher ended by itself");
        }
    }

    /// One edit of any kind of any workflow.
    pub(crate) async fn edit(&mut self) -> Told {
        let at = self.dice.roll(self.live.len());
        let workflow = self.live[at];
        match self.dice.roll(12) {
            0 => self.create().await,
            1 if self.live.len() > 8 => {
                let told = self.change(workflow, Method::POST, ":archive", Value::Null).await;
                self.live.swap_remove(at);
                told
            }
            2 => self.change(workflow, Method::POST, ":pause", json!({"reason": "chaos"})).await,
            3 => self.change(workflow, Method::POST, ":resume", Value::Null).await,
            // Few values, so that edits are taken back.
            _ => {
                let cron = self.cron();
                self.change(workflow, Method::PATCH, "", json!({ "cron_schedule": cron })).await
            }
        }
    }

    pub(crate) async fn create(&mut self) -> Told {
        let name = format!("w{}", self.dice.next());
        let action = json!({"type": "log", "message": "hello"});
        let body = json!({"name": name, "cron_schedule": self.cron(), "action": action});
        let request = self.story.editor().request(Method::POST, "/api/v1/workflows").json(&body);
        let answer = tests::answer(request).await;
        if answer.status != 201 {
            return Told::Nothing;
        }
        let workflow = WorkflowId(answer.id());
        self.live.push(workflow);
        self.promised.insert(workflow, standing(&answer));
        Told::Committed
    }

    async fn change(&mut self, workflow: WorkflowId, method: Method, verb: &str, body: Value) -> Told {
        let path = format!("/api/v1/workflows/{workflow}{verb}");
        let answer = tests::answer(self.story.editor().request(method, &path).json(&body)).await;
        if answer.status == 200 {
            self.promised.insert(workflow, standing(&answer));
            Told::Committed
        } else {
            self.promised.remove(&workflow);
            Told::Nothing
        }
    }

    /// On New Year's Day alone, so that nothing fires meanwhile.
    fn cron(&mut self) -> String {
        format!("{} {} 1 1 *", self.dice.roll(3), self.dice.roll(3))
    }

    /// Moves the clock of leases, backoffs and verify passes on, and wakes the daemons.
    pub(crate) async fn skip(&self, secs: i64) {
        self.story.set_clock(self.story.clock.now() + TimeDelta::seconds(secs)).await;
        // What is on its way arrives before anybody looks again.
        self.story.stand_in.scheduler.arrive(self.story.clock.now()).await;
        self.wake().await;
    }

    pub(crate) async fn wake(&self) {
        sqlx::query("SELECT pg_notify('cronbox_outbox', '')").execute(&self.story.pool).await.unwrap();
    }

    /// Waits until a query counts `expected`, waking the daemons meanwhile.
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

    /// Lets leases lapse, backoffs end and verify passes fall due, until nothing is left to do.
    pub(crate) async fn settle(&self) {
        // A lease; as long as a signature is good; the verify pass that a takeover owes; and what that may owe.
        for secs in [61, 15 * 60, 17 * 60, 17 * 60] {
            self.skip(secs).await;
            self.until(BUSY, |busy| busy == 0).await;
        }
    }

    /// Ends, when all is judged.
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

/// What an answer of the app promises to stand in EventBridge.
fn standing(answer: &Answer) -> Option<String> {
    let told = |field: &str| answer.json[field].as_str().unwrap_or_default().to_owned();
    crate::oracle::expected(&told("cron_schedule"), &told("state"))
}

/// A source of chance that repeats itself.
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
