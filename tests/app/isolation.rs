//! What one team does delays no fire of another team. Each story compares the order of events, and no times.

mod attack;
mod floods;
mod team_b;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::future::join_all;
use local::stack::StackOptions;
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tests::{PATIENCE, Story};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use self::attack::Attack;
use self::team_b::TeamB;

/// A receiver that counts its requests. It answers each as soon as its gate has a permit.
#[derive(Clone)]
struct Receiver {
    received: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Receiver {
    async fn start(permits: usize) -> (Self, Value) {
        let receiver = Self { received: Arc::default(), gate: Arc::new(Semaphore::new(permits)) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let action =
            json!({"type": "http", "method": "POST", "url": format!("http://{}", listener.local_addr().unwrap())});
        let router = Router::new().fallback(any(answer)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, action)
    }

    /// Waits until this many requests have arrived.
    async fn until(&self, requests: usize) {
        let began = Instant::now();
        while self.received.load(Ordering::SeqCst) < requests {
            assert!(began.elapsed() < PATIENCE, "{} of {requests}", self.received.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn answer(State(receiver): State<Receiver>) -> &'static str {
    receiver.received.fetch_add(1, Ordering::SeqCst);
    receiver.gate.acquire().await.unwrap().forget();
    "done"
}

async fn story(slots: fn(&mut app::Config)) -> Story {
    Story::with(StackOptions { now: Some(noon()), app: slots, ..StackOptions::default() }).await
}

fn noon() -> DateTime<Utc> {
    "2026-03-02T12:00:00Z".parse().unwrap()
}

fn minutes_after_noon(minutes: i64) -> String {
    (noon() + TimeDelta::minutes(minutes)).to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Workflows of a team that fire every minute.
async fn every_minute(s: &Story, team: &str, workflows: usize, action: &Value) -> Vec<WorkflowId> {
    let id = s.admin().post("/api/v1/teams", &json!({"name": team})).await.expect(201).id();
    let mut made = Vec::new();
    for nth in 0..workflows {
        let name = format!("{team} {nth}");
        let body = json!({"team_id": id, "name": name, "cron_schedule": "* * * * *", "action": action});
        made.push(WorkflowId(s.admin().post("/api/v1/workflows", &body).await.expect(201).id()));
    }
    made
}

const IS_ANY_WAITING: &str = "SELECT LEAST(count(*), 1) FROM pg_stat_activity
                               WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// A session that locks what a statement locks, for as long as the story says.
async fn locked(s: &Story, statement: &'static str) -> PgConnection {
    // The app's login would end a transaction that waits for ten seconds.
    let mut session = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut session).await.unwrap();
    sqlx::raw_sql(statement).execute(&mut session).await.unwrap();
    session
}

/// The receiver of team A never answers, and an instance has as many slots as team A has workflows.
#[tokio::test]
async fn slow_teams_delay_no_other_team() {
    let s = story(|config| (config.executor_slots, config.heartbeat_ms) = (64, 50)).await;
    let (slow, slow_action) = Receiver::start(0).await;
    let a = every_minute(&s, "a", 64, &slow_action).await;
    let mut b = TeamB::start(&s).await;
    for minute in 1..=4 {
        s.set_clock(noon() + TimeDelta::minutes(minute) + TimeDelta::seconds(5)).await;
        for wf in &a {
            s.invoke(*wf, &minutes_after_noon(minute)).await;
        }
        b.next_minute(&s).await;
    }
    // Three quarters of the slots.
    slow.until(48).await;
    assert_eq!(slow.received.load(Ordering::SeqCst), 48, "team A has runs that do not end");
    b.was_on_time(&s).await;
    slow.gate.add_permits(1_000);
    s.end().await;
}

async fn fire_and_count(s: &Story, wf: WorkflowId, time: &str, answered: &AtomicUsize) -> u16 {
    let answer = s.invoke(wf, time).await;
    answered.fetch_add(1, Ordering::SeqCst);
    answer.status
}

/// Each workflow of team A has a run that has not ended, and their rows are locked: so each of their fires waits.
#[tokio::test]
async fn overlapping_fires_delay_no_other_team() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let (slow, slow_action) = Receiver::start(0).await;
    let a = every_minute(&s, "a", 100, &slow_action).await;
    let mut b = TeamB::start(&s).await;
    let c = every_minute(&s, "c", 20, &json!({"type": "log", "message": "c"})).await;
    s.set_clock(noon() + TimeDelta::seconds(65)).await;
    for wf in &a {
        assert_eq!(s.invoke(*wf, &minutes_after_noon(1)).await.status, 202);
    }
    slow.until(a.len()).await;
    b.next_minute(&s).await;
    s.set_clock(noon() + TimeDelta::seconds(125)).await;
    let time = minutes_after_noon(2);
    let mut lock = locked(&s, "SELECT FROM workflows WHERE name LIKE 'a %' FOR NO KEY UPDATE").await;
    let answered = AtomicUsize::default();
    let storm = join_all(a.iter().map(|wf| fire_and_count(&s, *wf, &time, &answered)));
    let others = async {
        s.until(IS_ANY_WAITING, 1).await;
        let uncounted = AtomicUsize::default();
        let statuses = join_all(c.iter().map(|wf| fire_and_count(&s, *wf, &time, &uncounted))).await;
        let before = answered.load(Ordering::SeqCst);
        b.next_minute(&s).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.unwrap();
        (statuses, before)
    };
    let (storm, (of_c, answered_before)) = futures::future::join(storm, others).await;
    assert_eq!(of_c, [202; 20], "none of the other fires waits for team A's rows");
    assert!(answered_before < a.len(), "the others are answered before the last fire of team A");
    assert!(storm.iter().all(|status| [200, 503].contains(status)), "{storm:?}");
    // A runner repeats a fire that was answered 503.
    for wf in &a {
        assert_eq!(s.invoke(*wf, &time).await.body["reason"], "overlap");
    }
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'skipped_overlap'").await, 100);
    b.was_on_time(&s).await;
    slow.gate.add_permits(1_000);
    s.end().await;
}

/// The lists of one team take all connections that lists may have, because another session has locked a table of theirs.
#[tokio::test]
async fn waiting_lists_delay_no_fire() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let mut b = TeamB::start(&s).await;
    let mut lock = locked(&s, "LOCK TABLE deleted_workflows IN ACCESS EXCLUSIVE MODE").await;
    let editor = s.editor();
    let attack = Attack::start(40, move |_| editor.request(Method::GET, "/api/v1/runs"));
    s.until(IS_ANY_WAITING, 1).await;
    for _ in 0..10 {
        b.next_minute(&s).await;
    }
    attack.stop();
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.unwrap();
    let listed = attack.replies().await.iter().filter(|reply| reply.status == 200).count();
    assert!(listed <= 40, "{listed} lists were answered: before the fires, too");
    b.was_on_time(&s).await;
    s.end().await;
}
