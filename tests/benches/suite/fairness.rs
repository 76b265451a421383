//! B12: one team's fires start on time while other teams fill all slots of two instances with runs of a minute.
//!
//! The clock is set minute by minute. In each minute the flood's runs of the minute before end, its next runs take their
//! slots and wait behind them, and then the fires of team B arrive. So what is measured is the share of slots, and not
//! how fast this machine executes a flood.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use local::stack::StackOptions;
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Story, send_request};

use crate::load_generator::{invoke, send};
use crate::receiver::Receiver;
use crate::table::{Row, percentile};

const BEGIN: &str = "2026-03-02T10:00:00Z";
/// Minutes of each phase: idle, flooded, idle.
const MINUTES: usize = 5;
const WORKFLOWS_OF_B: usize = 20;
/// After this time the clock moves on; a run that has not started by then is late.
const A_MINUTE: Duration = Duration::from_secs(20);
/// The flood is at rest when no run has started for this long; longer than the poll of an executor.
const AT_REST: Duration = Duration::from_millis(600);
const SKIPPED: &str = "SELECT count(*) FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
                        WHERE w.name LIKE 'quick %' AND o.decision <> 'fired'";

pub(crate) async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for teams in [1, 4, 20] {
        rows.extend(flooded_by(teams).await);
    }
    rows
}

async fn flooded_by(teams: usize) -> Vec<Row> {
    let mut fleet = Fleet::start(teams).await;
    let mut idle = fleet.pass_minutes(Load::Idle).await;
    let flooded = fleet.pass_minutes(Load::Flooded).await;
    fleet.slow.release_all();
    fleet.story.runs_end().await;
    idle.add(fleet.pass_minutes(Load::Idle).await);
    let skipped = fleet.story.count(SKIPPED).await;
    fleet.story.end_early().await;
    let times = MINUTES * WORKFLOWS_OF_B;
    #[expect(clippy::cast_precision_loss, reason = "a number of due times")]
    let (all, late, skipped) = (times as f64, (flooded.late + idle.late) as f64, skipped as f64);
    let what = format!("{teams} teams flood two instances");
    let figures = vec![("times", 3.0 * all), ("late", late), ("skipped", skipped)];
    let on_time = Row::new("B12", format!("{what}: the times of team B"), figures);
    let (p99, idle_p99) = (percentile(&flooded.starts_ms, 0.99), percentile(&idle.starts_ms, 0.99));
    // Without a start in the flood, the p99 is infinite.
    let ratio = if p99.is_finite() { idle_p99 / p99 } else { 0.0 };
    let mut starts = Row::of_times("B12", format!("{what}: from team B's fire to its start"), flooded.starts_ms);
    starts.figures.extend([("idle p50 ms", percentile(&idle.starts_ms, 0.5)), ("idle p99 ms", idle_p99)]);
    vec![
        on_time.against("share on time", 1.0 - (late + skipped) / (3.0 * all), 1.0, 1.0),
        starts.against("p99 when idle against p99 in the flood", ratio, 0.5, 0.5),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Idle,
    Flooded,
}

/// The starts of team B's runs.
#[derive(Default)]
struct Starts {
    starts_ms: Vec<f64>,
    late: usize,
}

impl Starts {
    fn add(&mut self, more: Starts) {
        self.starts_ms.extend(more.starts_ms);
        self.late += more.late;
    }
}

/// Two instances on one database, the teams that flood them, and team B.
struct Fleet {
    story: Story,
    urls: [String; 2],
    now: DateTime<Utc>,
    slow: Receiver,
    quick: Receiver,
    flood: Vec<WorkflowId>,
    of_b: Vec<WorkflowId>,
}

impl Fleet {
    async fn start(teams: usize) -> Fleet {
        let now = BEGIN.parse().unwrap();
        let mut story = Story::with(StackOptions { now: Some(now), ..StackOptions::default() }).await;
        let urls = [story.url().to_owned(), story.another_url().await];
        let (slow, quick) = (Receiver::delayed().await, Receiver::answering(b"ok".to_vec()).await);
        // Half as many again as both instances have slots, so that runs of the flood always wait.
        let runs = story.app().config.executor_slots * urls.len() * 3 / 2;
        let greedy = json!({"overlap_policy": "concurrent", "max_concurrent": 100, "action": slow.action()});
        let flood = workflows_of(&story, "flood", teams, runs, &greedy).await;
        let of_b = workflows_of(&story, "quick", 1, WORKFLOWS_OF_B, &json!({"action": quick.action()})).await;
        Fleet { story, urls, now, slow, quick, flood, of_b }
    }

    async fn pass_minutes(&mut self, load: Load) -> Starts {
        let mut starts = Starts::default();
        for _ in 0..MINUTES {
            self.now += TimeDelta::minutes(1);
            self.story.set_clock(self.now + TimeDelta::seconds(5)).await;
            if load == Load::Flooded {
                self.fill_slots().await;
            }
            starts.add(self.fire_team_b().await);
        }
        starts
    }

    /// Ends the flood's runs of the minute before, and fires all of it; its runs take all slots that they get.
    async fn fill_slots(&self) {
        self.slow.release_arrived();
        let time = minute(self.now);
        let halves = self.urls.iter().enumerate().map(|(at, url)| {
            let half = self.flood.iter().skip(at).step_by(self.urls.len());
            send(address(url), 16, half.map(|wf| invoke(&self.story.keys.scheduler, wf.0, &time)).collect())
        });
        futures::future::join_all(halves).await;
        let mut arrived = usize::MAX;
        while arrived != self.slow.arrived() {
            arrived = self.slow.arrived();
            tokio::time::sleep(AT_REST).await;
        }
    }

    /// Fires team B's workflows, one after the other, at both instances in turn.
    async fn fire_team_b(&self) -> Starts {
        let (mut starts, deadline) = (Starts::default(), Instant::now() + A_MINUTE);
        for (url, workflow) in self.urls.iter().cycle().zip(&self.of_b) {
            let due = (workflow.0, minute(self.now));
            let sent = Instant::now();
            self.story.invoke_at(url, *workflow, json!({"scheduled_time": due.1})).await;
            match self.quick.wait_for_arrival(&due, deadline).await {
                Some(at) => starts.starts_ms.push(1_000.0 * at.duration_since(sent).as_secs_f64()),
                None => starts.late += 1,
            }
        }
        starts
    }
}

/// Creates teams, and as many workflows of theirs that fire every minute.
async fn workflows_of(story: &Story, name: &str, teams: usize, workflows: usize, fields: &Value) -> Vec<WorkflowId> {
    let admin = story.admin();
    let mut ids = Vec::new();
    for nth in 0..teams {
        let id = admin.post("/api/v1/teams", &json!({"name": format!("{name} {nth}")})).await.expect(201).id();
        // What a team may define is not what is measured. The answer does not matter: a version without limits has none.
        let limits = json!({"workflows": 0, "fires_per_minute": 0, "input_bytes": 0});
        send_request(admin.request(Method::PUT, &format!("/api/v1/teams/{id}/limits")).json(&limits)).await;
        ids.push(id);
    }
    let made = (0..workflows).map(|nth| {
        let mut body =
            json!({"team_id": ids[nth % teams], "name": format!("{name} {nth}"), "cron_schedule": "* * * * *"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let admin = admin.clone();
        async move { WorkflowId(admin.post("/api/v1/workflows", &body).await.expect(201).id()) }
    });
    stream::iter(made).buffered(8).collect().await
}

fn minute(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}
