//! The story of a nightly workflow, with SIGKILL of each process at each point of it: the counts of rows are always the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::any;
use chrono::{DateTime, DurationRound as _, TimeDelta, Timelike as _, Utc};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use schedule::WorkflowId;
use serde_json::{Value, json};
use sqlx::Row as _;
use tests::publisher_process::{Daemon, Lambda};
use tests::{PATIENCE, Story};
use tokio::net::TcpListener;

use super::mail::MailServer;
use super::team::{channel, rule};
use crate::process::{App, idle};
use crate::receiver::Receiver;

/// Where the app is killed: at the nth pass of a point.
const POINTS: [&str; 11] = ["I1:1", "I2:3", "I3:2", "I4:3", "I5:3", "I6:3", "N1:1", "N2:1", "N3:1", "N4:3", "N4:5"];
const SEEDS: u64 = 2;
const NIGHTS: u32 = 5;
/// After so many failures the team gets its messages.
const FAILURES: u32 = 3;
/// From this night on the receiver of the workflow answers 200.
const BETTER: u32 = 5;

/// The receiver of the workflow: it refuses until the story says otherwise, however often a run is tried.
#[derive(Clone)]
struct Payroll {
    url: String,
    status: Arc<AtomicU16>,
}

impl Payroll {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let payroll = Self { url, status: Arc::new(500.into()) };
        let answer = async |State(payroll): State<Payroll>, _: Bytes| {
            StatusCode::from_u16(payroll.status.load(Ordering::SeqCst)).unwrap()
        };
        let router = Router::new().fallback(any(answer)).with_state(payroll.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        payroll
    }
}

/// The team's receivers, and the stack of all rounds.
struct Team {
    s: Story,
    mail: MailServer,
    slack: Receiver,
    webhook: Receiver,
    channels: Vec<i64>,
}

/// The instance of the app that executes, delivers and decides; after its death, its successor.
struct Instance {
    app: App,
    deaths: u32,
}

/// The rows of one workflow, by kind.
#[derive(Debug, PartialEq, Eq)]
struct Rows {
    occurrences: i64,
    runs_failed: i64,
    runs_succeeded: i64,
    notifications: i64,
    items: i64,
    messages_sent: i64,
    messages: i64,
    streaks: i64,
}

const COMPLETE: Rows = Rows {
    occurrences: 5,
    runs_failed: 4,
    runs_succeeded: 1,
    notifications: 2,
    items: 6,
    messages_sent: 6,
    messages: 6,
    streaks: 0,
};

impl Team {
    async fn new() -> Self {
        let s = idle().await;
        let (slack, webhook) = (Receiver::kind().await, Receiver::kind().await);
        let url = format!("{}/services/T0/B0/s3cret", slack.url);
        let mut channels = vec![channel(&s, json!({"name": "slack", "kind": "slack", "url": url})).await];
        channels.push(channel(&s, json!({"name": "hook", "kind": "webhook", "url": webhook.url})).await);
        let to = json!({"name": "mail", "kind": "email", "recipients": ["ops@example.com"]});
        channels.push(channel(&s, to).await);
        Self { s, mail: MailServer::start_another().await, slack, webhook, channels }
    }

    async fn start_app(&self, fault: Option<&str>) -> App {
        let mail = self.mail.settings();
        let mut settings: Vec<(&str, &str)> = mail.iter().map(|(name, value)| (*name, value.as_str())).collect();
        settings.push(("CRONBOX_JOB_NOTIFICATIONS", "1s"));
        settings.extend(fault.map(|fault| ("CRONBOX_FAULT", fault)));
        App::with(&self.s.dsn(), &settings).await
    }

    /// Creates the workflow, which is due in five minutes and not again within this story. Its last fires arrive early, so that
    /// the first one is not late even if the story takes a minute.
    async fn create(&self, name: &str, payroll: &Payroll) -> (WorkflowId, Vec<DateTime<Utc>>) {
        let now = self.s.clock.now().duration_trunc(TimeDelta::minutes(1)).unwrap();
        let first = now - TimeDelta::minutes(2);
        let nights: Vec<_> = (0..NIGHTS).map(|nth| first + TimeDelta::minutes(nth.into())).collect();
        let minutes: Vec<String> = nights.iter().map(|night| night.minute().to_string()).collect();
        let cron = format!("{} * * * *", minutes.join(","));
        let action = json!({"type": "http", "method": "POST", "url": payroll.url});
        let workflow = self.s.create_with(json!({"name": name, "cron_schedule": cron, "action": action})).await;
        let earlier = "UPDATE schedule_versions SET valid_from = valid_from - interval '1 hour' WHERE workflow_id = $1";
        sqlx::query(earlier).bind(workflow.0).execute(&self.s.pool).await.unwrap();
        let earlier =
            "UPDATE workflows SET schedule_activated_at = schedule_activated_at - interval '1 hour' WHERE id = $1";
        sqlx::query(earlier).bind(workflow.0).execute(&self.s.pool).await.unwrap();
        for event in ["failures_in_a_row", "recovered"] {
            let of_all = json!({"event": event, "threshold": FAILURES, "group_secs": 0, "workflow_id": workflow.0,
                                "channel_ids": self.channels});
            rule(&self.s, self.channels[0], of_all).await;
        }
        (workflow, nights)
    }

    /// What a killed instance or publisher had claimed is free: as if its leases, of a minute or two, had ended.
    async fn end_leases(&self) {
        self.s
            .execute(
                "UPDATE jobs SET locked_by = NULL, locked_until = NULL;
             UPDATE notification_messages SET lease_until = cronbox_now() WHERE state = 'pending';
             UPDATE publications SET lease_owner = NULL, lease_until = NULL WHERE lease_owner IS NOT NULL",
            )
            .await;
    }

    async fn rows(&self, workflow: WorkflowId) -> Rows {
        let row = sqlx::query(
            "SELECT (SELECT count(*) FROM occurrences WHERE workflow_id = $1),
                    (SELECT count(*) FROM runs WHERE workflow_id = $1 AND state = 'failed'),
                    (SELECT count(*) FROM runs WHERE workflow_id = $1 AND state = 'succeeded'),
                    (SELECT count(*) FROM notifications WHERE workflow_id = $1),
                    (SELECT count(*) FROM notification_items i JOIN notifications n ON n.id = i.notification_id WHERE n.workflow_id = $1),
                    (SELECT count(DISTINCT m.id) FROM notification_messages m JOIN notification_items i ON i.message_id = m.id
                       JOIN notifications n ON n.id = i.notification_id WHERE n.workflow_id = $1 AND m.state = 'sent'),
                    (SELECT count(DISTINCT i.message_id) FROM notification_items i JOIN notifications n ON n.id = i.notification_id
                      WHERE n.workflow_id = $1),
                    (SELECT count(*) FROM failure_streaks WHERE workflow_id = $1)",
        );
        let row = row.bind(workflow.0).fetch_one(&self.s.pool).await.unwrap();
        let [occurrences, runs_failed, runs_succeeded, notifications, items, messages_sent, messages, streaks] =
            std::array::from_fn(|nth| row.get(nth));
        Rows { occurrences, runs_failed, runs_succeeded, notifications, items, messages_sent, messages, streaks }
    }
}

impl Instance {
    /// Starts a successor if the instance is dead.
    async fn revive(&mut self, team: &Team) {
        if self.app.is_dead() {
            self.deaths += 1;
            team.end_leases().await;
            self.app = team.start_app(None).await;
        }
    }

    async fn kill(&mut self) {
        self.app.signal("-KILL").await;
        self.app.wait_for_death().await;
    }
}

/// Kills the app at any moment of the story, with a chance of one in twenty, if there are dice.
async fn strike(dice: &mut Option<StdRng>, instance: &mut Instance) {
    if dice.as_mut().is_some_and(|dice| dice.random_ratio(1, 20)) {
        instance.kill().await;
    }
}

/// The story: four nights fail, and the fifth succeeds. Returns how often the app was killed.
async fn nights(team: &Team, name: &str, fault: Option<&str>, mut dice: Option<StdRng>) -> (WorkflowId, u32) {
    let payroll = Payroll::start().await;
    let (workflow, nights) = team.create(name, &payroll).await;
    let mut instance = Instance { app: team.start_app(fault).await, deaths: 0 };
    for (night, time) in (1..).zip(nights) {
        if night == BETTER {
            payroll.status.store(200, Ordering::SeqCst);
            // On a slow machine the dice are thrown too seldom.
            if dice.is_some() && instance.deaths == 0 {
                instance.kill().await;
                instance.revive(team).await;
            }
        }
        // EventBridge and the runner repeat a fire until it is answered.
        let path = format!("/api/v1/cron/workflows/{workflow}:invoke");
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "{name}: the fire of night {night} is never answered");
            let fire = instance.app.runner(&team.s).request(reqwest::Method::POST, &path);
            let answer = fire.json(&json!({ "scheduled_time": time })).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            instance.revive(team).await;
        }
        let is_over = |rows: &Rows| rows.runs_failed + rows.runs_succeeded == i64::from(night);
        until(team, workflow, &mut instance, &mut dice, is_over).await;
        if night == FAILURES {
            until(team, workflow, &mut instance, &mut dice, |rows| rows.messages_sent == 3).await;
        }
    }
    until(team, workflow, &mut instance, &mut dice, |rows| rows.messages_sent == COMPLETE.messages_sent).await;
    instance.app.stop().await;
    println!("{name}: {fault:?}, {} deaths", instance.deaths);
    (workflow, instance.deaths)
}

/// Waits, and replaces the app whenever it is dead.
async fn until(
    team: &Team,
    workflow: WorkflowId,
    instance: &mut Instance,
    dice: &mut Option<StdRng>,
    is_reached: impl Fn(&Rows) -> bool,
) {
    let began = Instant::now();
    loop {
        let rows = team.rows(workflow).await;
        if is_reached(&rows) && !instance.app.is_dead() {
            return;
        }
        assert!(began.elapsed() < PATIENCE * 2, "{rows:?}");
        strike(dice, instance).await;
        instance.revive(team).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// What the receivers got about a workflow: distinct messages, and all deliveries.
struct Got {
    slack: Vec<String>,
    hooks: Vec<(String, Value)>,
    mails: Vec<String>,
}

impl Team {
    fn got(&self, name: &str) -> Got {
        let is_about = |text: &str| text.contains(&format!("{name} "));
        let texts = self.slack.calls().into_iter().map(|call| call["text"].as_str().unwrap().to_owned());
        let slack: Vec<String> = texts.filter(|text| is_about(text)).collect();
        let hooks = self.webhook.received().into_iter().map(|one| {
            let body: Value = serde_json::from_slice(&one.body).unwrap();
            (one.headers["webhook-id"].to_str().unwrap().to_owned(), body)
        });
        let hooks = hooks.filter(|(_, body)| is_about(body["data"]["text"].as_str().unwrap()));
        let ids = self.mail.mails().into_iter().filter(|mail| is_about(mail));
        let ids = ids.map(|mail| mail.lines().find_map(|line| line.strip_prefix("Message-ID: ")).unwrap().to_owned());
        Got { slack, hooks: hooks.collect(), mails: ids.collect() }
    }
}

/// The parts of a message that are the same in each delivery: all but the time of the attempt.
fn content(body: &Value) -> String {
    format!("{} {}", body["type"], body["data"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_any_process_change_no_count() {
    let team = Team::new().await;
    let (reference, _) = nights(&team, "undisturbed", None, None).await;
    assert_eq!(team.rows(reference).await, COMPLETE);
    let got = team.got("undisturbed");
    assert_eq!(
        (got.slack.len(), got.hooks.len(), got.mails.len()),
        (2, 2, 2),
        "one after the third failure, one on recovery"
    );
    assert!(
        got.slack[0].contains("failed 3 times in a row") && got.slack[1].contains("succeeded again"),
        "{:?}",
        got.slack
    );
    let mut repeated = 0;
    for (round, point) in POINTS.iter().enumerate() {
        let name = format!("payroll-{round}");
        let (workflow, deaths) = nights(&team, &name, Some(&format!("{point}:kill")), None).await;
        assert_eq!(deaths, 1, "{point} is passed");
        repeated += check(&team, &name, workflow, point).await;
    }
    for seed in 0..SEEDS {
        let name = format!("random-{seed}");
        let dice = StdRng::seed_from_u64(seed);
        let (workflow, deaths) = nights(&team, &name, None, Some(dice)).await;
        assert!(deaths > 0, "seed {seed} kills");
        repeated += check(&team, &name, workflow, &name).await;
    }
    assert!(repeated > 0, "a kill between an answer and its record repeats a delivery");
    operator_sees(&team, 1 + i64::try_from(POINTS.len()).unwrap() + SEEDS.cast_signed()).await;
    team.s.end_early().await;
}

/// Asserts that the rows and the messages are those of the undisturbed story. Returns how many deliveries were repeated.
async fn check(team: &Team, name: &str, workflow: WorkflowId, point: &str) -> usize {
    assert_eq!(team.rows(workflow).await, COMPLETE, "{point}");
    let got = team.got(name);
    let distinct: BTreeSet<&String> = got.slack.iter().collect();
    assert_eq!(distinct.len(), 2, "{point}: {distinct:?}");
    let ids: BTreeSet<&String> = got.hooks.iter().map(|(id, _)| id).collect();
    let contents: BTreeSet<(&String, String)> = got.hooks.iter().map(|(id, body)| (id, content(body))).collect();
    assert_eq!((ids.len(), contents.len()), (2, 2), "{point}: a repeated delivery has the same id and content");
    assert_eq!(got.mails.iter().collect::<BTreeSet<_>>().len(), 2, "{point}: {:?}", got.mails);
    got.hooks.len() + got.mails.len() + got.slack.len() - 6
}

/// The operator sees the failed runs of all stories, in the line for CloudWatch and on the page for Prometheus. The publisher is
/// killed at each point of a drain, and publishes each workflow once.
async fn operator_sees(team: &Team, stories: i64) {
    let failed = stories * COMPLETE.runs_failed;
    for point in ["P4:1:kill", "P8:2:kill", "P9:1:kill"] {
        let mut victim = Daemon::start_with(&team.s, &[("CRONBOX_FAULT", point)]);
        victim.wait_for_death().await;
        team.end_leases().await;
    }
    let daemon = Daemon::start(&team.s).await;
    team.s.until("SELECT count(*) FROM outbox_events WHERE processed_on IS NULL", 0).await;
    assert_eq!(team.s.count("SELECT count(*) FROM outbox_events").await, stories);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    daemon.until("cronbox_publisher_runs_failed", |runs| runs == failed as f64).await;
    let line = Lambda::start(&team.s, &[]).await.tick().await.line;
    assert_eq!(line["RunsFailed"], json!(failed), "{line}");
}
