//! Floods of requests and fires of one team, each while the fires of another one are delivered.

use std::net::UdpSocket;
use std::sync::{LazyLock, mpsc};
use std::time::Instant;

use chrono::TimeDelta;
use futures::future::join_all;
use reqwest::{Method, Response};
use serde_json::json;
use tests::{Api, PATIENCE, Story};

use super::attack::Attack;
use super::team_b::TeamB;
use super::{every_minute, locked, minutes_after_noon, noon, story};

/// A key that may only read.
async fn viewer(s: &Story) -> Api {
    let body = json!({"name": "viewer", "kind": "team", "team_id": s.keys.team_id, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    Api::new(s.url(), key["key"].as_str().unwrap())
}

/// 200 workflows with descriptions of 8 KB and inputs of 244 KB (125,000 values, as they were permitted before), and a run
/// of each with a result of 64 KiB. The first statement compresses the inputs, and the second one copies them as they are.
const LARGE: &str = r#"
    INSERT INTO workflows (team_id, name, description, action, starting_inputs, created_on, updated_on)
    SELECT min(id), 'large 0', repeat('𝄞', 2000), '{"type": "log", "message": "m"}',
           (SELECT jsonb_build_object('a', jsonb_agg(1)) FROM generate_series(1, 125000)), now(), now()
      FROM teams;
    INSERT INTO workflows (team_id, name, description, action, starting_inputs, created_on, updated_on)
    SELECT team_id, 'large ' || nth, description, action, starting_inputs, now(), now()
      FROM workflows, generate_series(1, 199) AS nth
     WHERE name = 'large 0';
    INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on)
    SELECT gen_random_uuid(), id, 'manual', 'succeeded', now(), now(), now() FROM workflows WHERE name LIKE 'large %';
    INSERT INTO run_results (run_id, result)
    SELECT id, jsonb_build_object('status', 200, 'body', repeat('x', 65536)) FROM runs WHERE state = 'succeeded'"#;
/// One page of each would have 50 MB of inputs, 13 MB of results and 1.7 MB of descriptions.
const LISTS: [&str; 4] = ["/api/v1/workflows?limit=200", "/api/v1/runs?limit=200", "/api/v1/stats", "/metrics"];
/// The items of a page, and what is around them.
const MOST_BYTES: usize = 1024 * 1024 + 200;

/// One list of a viewer took 800 MB, and forty of them turned the fires of all teams into 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_lists_delay_no_fire() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let mut b = TeamB::start(&s).await;
    s.execute(LARGE).await;
    let viewer = viewer(&s).await;
    let attack = Attack::start(40, move |nth| viewer.request(Method::GET, LISTS[nth % LISTS.len()]));
    for _ in 0..3 {
        attack.goes_on().await;
        b.next_minute(&s).await;
    }
    let replies = attack.replies().await;
    b.was_on_time(&s).await;
    let largest = replies.iter().map(|reply| reply.bytes).max();
    assert!(largest.is_some_and(|bytes| bytes <= MOST_BYTES), "{largest:?} bytes");
    assert!(replies.iter().any(|reply| reply.status == 200 && reply.bytes > 500_000), "a full page is answered");
    s.end().await;
}

const LARGEST_ENTRY: &str = "SELECT max(octet_length(audit_log::text))::bigint FROM audit_log";

/// Each edit stored its inputs three times, and the edits of one team had all connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_edits_delay_no_fire() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let mut b = TeamB::start(&s).await;
    let mut paths = Vec::new();
    for _ in 0..8 {
        paths.push(format!("/api/v1/workflows/{}", s.create("0 9 * * *", "UTC").await));
    }
    // Random, so that Postgres cannot compress it.
    let noise: String = (0..15_000).map(|_| format!("{:016x}", rand::random::<u64>())).collect();
    let editor = s.editor();
    let attack = Attack::start(40, move |nth| {
        let patch = json!({"starting_inputs": {"different": rand::random::<u32>(), "noise": noise}});
        editor.request(Method::PATCH, &paths[nth % paths.len()]).json(&patch)
    });
    for _ in 0..3 {
        attack.goes_on().await;
        b.next_minute(&s).await;
    }
    let replies = attack.replies().await;
    b.was_on_time(&s).await;
    assert!(replies.iter().any(|reply| reply.status == 200), "{replies:?}");
    assert!(s.count(LARGEST_ENTRY).await < 10_000, "{} bytes", s.count(LARGEST_ENTRY).await);
    s.end().await;
}

/// Threads of the runtime for work that blocks: so few that a story can take all of them.
const BLOCKING_THREADS: usize = 4;

/// Previews and pages are computed on threads that may be blocked. While these threads are busy, no preview is answered,
/// and each fire is.
#[test]
fn previews_delay_no_fire() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(fire_during_previews());
}

async fn fire_during_previews() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let mut b = TeamB::start(&s).await;
    let next = format!("/api/v1/schedules/{}/next?n=100", s.create("0 9 29 2 *", "Europe/Paris").await);
    let explained = json!({"cron": "0 9 * * 1-5", "timezone": "Europe/Paris", "count": 100});
    let viewer = viewer(&s).await;
    let busy = take_blocking_threads();
    let attack = Attack::start(40, move |nth| match nth % 3 {
        0 => viewer.request(Method::POST, "/api/v1/cron:explain").json(&explained),
        1 => viewer.request(Method::GET, &next),
        _ => viewer.request(Method::GET, "/api/v1/workflows"),
    });
    for _ in 0..10 {
        b.next_minute(&s).await;
    }
    assert_eq!(attack.succeeded(), 0, "it was computed on a thread that decides fires");
    drop(busy);
    let replies = attack.replies().await;
    b.was_on_time(&s).await;
    assert!(replies.iter().any(|reply| reply.status == 200), "{replies:?}");
    s.end().await;
}

/// Takes all threads for work that blocks; dropping what it returns frees them.
fn take_blocking_threads() -> Vec<mpsc::Sender<()>> {
    let mut all = Vec::new();
    for _ in 0..BLOCKING_THREADS {
        let (free, until_free) = mpsc::channel();
        tokio::task::spawn_blocking(move || until_free.recv().ok());
        all.push(free);
    }
    all
}

/// Streams of events of team A, as many as ten keys may open.
async fn open_streams(s: &Story) -> Vec<Response> {
    let mut streams = Vec::new();
    for _ in 0..10 {
        let viewer = viewer(s).await;
        for _ in 0..5 {
            let stream = viewer.request(Method::GET, "/api/v1/events").header("accept", "text/event-stream");
            streams.push(stream.send().await.unwrap());
        }
    }
    assert!(streams.iter().all(|stream| stream.status() == 200), "{streams:?}");
    streams
}

async fn until_ended(mut stream: Response) {
    while let Ok(Some(_)) = stream.chunk().await {}
}

/// Another session has locked the events, so that each read of a stream takes as long as it may, and ends its stream. The
/// streams of a team have one connection for that, so all other reads are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_streams_delay_no_read() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let path = format!("/api/v1/workflows/{}", s.create("0 9 * * *", "UTC").await);
    let streams = open_streams(&s).await;
    let mut lock = locked(&s, "LOCK TABLE events IN ACCESS EXCLUSIVE MODE").await;
    let streams: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(until_ended(stream))).collect();
    let (admin, began) = (s.admin(), Instant::now());
    while streams.iter().filter(|stream| stream.is_finished()).count() < 2 {
        assert!(began.elapsed() < PATIENCE, "no stream reads");
        admin.get(&path).await.expect(200);
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.unwrap();
    assert_eq!(s.app().pools.reads.current_use().timed_out, 0, "no read was refused a connection");
    s.end().await;
}

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// The rows of team A are locked, so that each of its fires is decided by itself, and waits. So is a fire of a paused
/// workflow of another team: it finds a place, because team A has four at most.
#[tokio::test]
async fn waiting_fires_leave_others_a_place() {
    let s = story(|config| config.heartbeat_ms = 50).await;
    let mut b = TeamB::start(&s).await;
    let action = json!({"type": "log", "message": "hi"});
    let (a, paused) = (every_minute(&s, "a", 40, &action).await, every_minute(&s, "paused", 1, &action).await[0]);
    s.admin().post(&format!("/api/v1/workflows/{paused}:pause"), &json!({"reason": "test"})).await.expect(200);
    wait_long_for_locks(&s).await;
    let mut lock = locked(&s, "SELECT FROM workflows WHERE name LIKE 'a %' FOR NO KEY UPDATE").await;
    s.set_clock(noon() + TimeDelta::seconds(65)).await;
    let time = minutes_after_noon(1);
    let flood = join_all(a.iter().map(|wf| s.invoke(*wf, &time)));
    let others = async {
        s.until(WAITING, 4).await;
        let answer = s.invoke(paused, &time).await;
        assert_eq!((answer.status, &answer.body["reason"]), (200, &json!("paused")));
        b.next_minute(&s).await;
        assert_eq!(s.count(WAITING).await, 4, "team A still waits");
        sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.unwrap();
    };
    let (answers, ()) = tokio::join!(flood, others);
    // On a busy machine, some have waited for their place as long as a fire may.
    assert!(answers.iter().all(|answer| [202, 503].contains(&answer.status)), "{answers:?}");
    b.was_on_time(&s).await;
    s.end().await;
}

/// Removes the limits of the connections that decide fires, so that they wait as long as the story has its lock.
async fn wait_long_for_locks(s: &Story) {
    let (pool, mut connections) = (s.app().pools.fires.raw_pool(), Vec::new());
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = pool.acquire().await.unwrap();
        sqlx::raw_sql("SET lock_timeout = 0; SET statement_timeout = 0").execute(&mut *connection).await.unwrap();
        connections.push(connection);
    }
}

/// A name server that never answers.
static SILENT: LazyLock<UdpSocket> = LazyLock::new(|| UdpSocket::bind("127.0.0.1:0").unwrap());

/// The names in the URLs of team A cannot be resolved: its edits wait, and another team's edits and fires do not. A workflow
/// that does not exist is not found before its name is resolved.
#[test]
fn silent_name_servers_delay_no_fire() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(fire_during_lookups());
}

async fn fire_during_lookups() {
    let s = story(|config| {
        config.heartbeat_ms = 50;
        config.egress_nameservers = vec![SILENT.local_addr().unwrap()];
    })
    .await;
    let mut b = TeamB::start(&s).await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let editor = s.editor();
    let attack = Attack::start(60, move |nth| {
        let id = if nth % 4 == 0 { 99_999_999 } else { wf.0 };
        let url = format!("https://{:x}.slow.example/", rand::random::<u64>());
        let action = json!({"type": "http", "method": "GET", "url": url});
        editor.request(Method::PATCH, &format!("/api/v1/workflows/{id}")).json(&json!({ "action": action }))
    });
    for _ in 0..3 {
        attack.goes_on().await;
        every_minute(&s, &format!("c{}", rand::random::<u32>()), 1, &json!({"type": "log", "message": "c"})).await;
        b.next_minute(&s).await;
    }
    let replies = attack.replies().await;
    b.was_on_time(&s).await;
    // A missing workflow is answered without a lookup, so it is answered far more often than an edit that waits for one.
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    assert!(count(404) > count(200) && count(200) >= 3, "{replies:?}");
    s.end().await;
}
