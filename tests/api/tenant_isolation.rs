//! Tenant isolation: the API answers for another team's object as for one that does not exist, and no team delays the
//! fires, the runs or the edits of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgPool, Transaction};
use reqwest::{Method, RequestBuilder};
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story};
use tokio::net::TcpListener;

/// The number of backends that wait for a lock.
pub(crate) const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

/// The answer is the same as that for an object that does not exist.
#[tokio::test]
async fn objects_of_other_teams_answer_404() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let run = s.runs_of(id).await[0]["id"].as_str().unwrap().to_owned();
    let span = json!({"start": "2026-03-02T08:00:00Z", "end": "2026-03-02T09:00:15Z", "only": "all"});
    let requested = s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), &span).await.expect(202);
    let backfill = requested.json["id"].as_str().unwrap().to_owned();
    let stranger = stranger(&s).await;
    let missing_run = "00000000-0000-7000-8000-000000000000";
    let cases: [(Method, String, String, Value); 20] = [
        (Method::GET, format!("/api/v1/workflows/{id}"), "/api/v1/workflows/999999".into(), Value::Null),
        (Method::PATCH, format!("/api/v1/workflows/{id}"), "/api/v1/workflows/999999".into(), json!({"name": "x"})),
        (Method::PATCH, format!("/api/v1/workflows/{id}"), "/api/v1/workflows/999999".into(), json!({"name": ""})),
        (Method::POST, format!("/api/v1/workflows/{id}:archive"), "/api/v1/workflows/999999:archive".into(), json!({})),
        (Method::POST, format!("/api/v1/workflows/{id}:pause"), "/api/v1/workflows/999999:pause".into(), json!({})),
        (Method::POST, format!("/api/v1/workflows/{id}:resume"), "/api/v1/workflows/999999:resume".into(), json!({})),
        (Method::GET, format!("/api/v1/schedules/{id}"), "/api/v1/schedules/999999".into(), Value::Null),
        (
            Method::PUT,
            format!("/api/v1/schedules/{id}"),
            "/api/v1/schedules/999999".into(),
            json!({"cron_schedule": "x"}),
        ),
        (Method::PATCH, format!("/api/v1/schedules/{id}"), "/api/v1/schedules/999999".into(), json!({"timezone": "x"})),
        (Method::DELETE, format!("/api/v1/schedules/{id}"), "/api/v1/schedules/999999".into(), Value::Null),
        (Method::GET, format!("/api/v1/schedules/{id}/next"), "/api/v1/schedules/999999/next".into(), Value::Null),
        (Method::GET, format!("/api/v1/schedules/{id}/runs"), "/api/v1/schedules/999999/runs".into(), Value::Null),
        (
            Method::GET,
            format!("/api/v1/schedules/{id}/occurrences"),
            "/api/v1/schedules/999999/occurrences".into(),
            Value::Null,
        ),
        (Method::POST, format!("/api/v1/schedules/{id}:fire"), "/api/v1/schedules/999999:fire".into(), json!({})),
        (Method::POST, format!("/api/v1/schedules/{id}:backfill"), "/api/v1/schedules/999999:backfill".into(), span),
        (Method::GET, format!("/api/v1/backfills/{backfill}"), format!("/api/v1/backfills/{missing_run}"), Value::Null),
        (
            Method::POST,
            format!("/api/v1/backfills/{backfill}:cancel"),
            format!("/api/v1/backfills/{missing_run}:cancel"),
            json!({}),
        ),
        (Method::POST, format!("/api/v1/runs/{run}:cancel"), format!("/api/v1/runs/{missing_run}:cancel"), json!({})),
        (Method::POST, format!("/api/v1/runs/{run}:retry"), format!("/api/v1/runs/{missing_run}:retry"), json!({})),
        (Method::GET, format!("/api/v1/runs/{run}"), format!("/api/v1/runs/{missing_run}"), Value::Null),
    ];
    for (method, theirs, missing, body) in cases {
        let [theirs, missing] = [theirs, missing].map(|path| {
            let request = stranger.request(method.clone(), &path);
            tests::send_request(if body.is_null() { request } else { request.json(&body) })
        });
        let (theirs, missing) = (theirs.await, missing.await);
        theirs.refused(404, "not_found", None);
        let without_id = |answer: &tests::Answer| answer.text.replace(answer.json["request_id"].as_str().unwrap(), "");
        assert_eq!((theirs.status, without_id(&theirs)), (missing.status, without_id(&missing)));
    }
    s.end().await;
}

#[tokio::test]
async fn lists_show_only_the_own_team() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let span = json!({"start": "2026-03-02T08:00:00Z", "end": "2026-03-02T09:00:15Z", "only": "all"});
    s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), &span).await.expect(202);
    let stranger = stranger(&s).await;
    let team = s.keys.team_id;
    for path in [
        "/api/v1/workflows".to_owned(),
        format!("/api/v1/workflows?team_id={team}"),
        "/api/v1/workflows?q=workflow".to_owned(),
        "/api/v1/schedules".to_owned(),
        "/api/v1/runs".to_owned(),
        format!("/api/v1/runs?workflow_id={id}"),
        "/api/v1/backfills".to_owned(),
        format!("/api/v1/backfills?workflow_id={id}"),
    ] {
        assert_eq!(stranger.get(&path).await.expect(200).json["items"], json!([]), "{path}");
        assert_ne!(s.editor().get(&path).await.expect(200).json["items"], json!([]), "{path}");
    }
    let theirs = json!({"name": "x", "team_id": team, "action": {"type": "log", "message": "hi"}});
    stranger.post("/api/v1/workflows", &theirs).await.refused(400, "unknown_team", Some("team_id"));
    s.end().await;
}

/// The edits of one team used all connections, while each waited for the lock of the same row. Fires of other teams were
/// answered after the runner's limit, and heartbeats failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_of_one_row_block_nothing_else() {
    let s = Story::with_app(|config| (config.heartbeat_ms, config.edit_lock_timeout_ms) = (50, 600_000)).await;
    let edited = s.create("0 9 * * *", "UTC").await;
    let stranger = another_team(&s, "strangers").await;
    let fired = minutely(&stranger).await;
    let _receiver = run_without_end(&s, &stranger).await;
    let pools = &s.app().pools;
    without_timeouts(&pools.edits).await;
    let holder = lock_workflow(&s, edited).await;
    let (editor, refused) = (s.editor(), Arc::new(AtomicUsize::new(0)));
    let edits: Vec<_> = (0..250)
        .map(|_| {
            let (editor, refused) = (editor.clone(), Arc::clone(&refused));
            tokio::spawn(async move {
                let answer = editor.patch(&format!("/api/v1/workflows/{edited}"), &json!({"description": "x"})).await;
                refused.fetch_add(usize::from(answer.status == 429), Ordering::SeqCst);
                answer
            })
        })
        .collect();
    // One edit waits for the lock, a hundred for their turn, and the others are refused.
    until(|| refused.load(Ordering::SeqCst) >= 100).await;
    let edits_now = pools.edits.current_use();
    assert!(edits_now.used < 4 && edits_now.waiting == 0, "the others wait in the process: {edits_now:?}");
    fire_next_minute(&s, fired).await;
    lease_is_renewed(&s).await;
    stranger.patch(&format!("/api/v1/workflows/{fired}"), &json!({"description": "x"})).await.expect(200);
    assert!(edits.iter().any(|edit| !edit.is_finished()), "the row is still locked");
    holder.rollback().await.unwrap();
    for edit in edits {
        let answer = edit.await.unwrap();
        // On a busy machine, the first may have reached the limit of a statement, and the last that of a request.
        assert!(matches!(answer.status, 200 | 408 | 429 | 503), "{answer:?}");
        assert!(answer.status != 429 || answer.json["code"] == "edit_queue_full", "{answer:?}");
    }
    assert_no_timeouts(&s);
    s.end_early().await;
}

/// One viewer's lists turned the fires of all teams into 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_use_no_connection_of_fires() {
    let s = Story::with_app(|config| config.heartbeat_ms = 50).await;
    let stranger = another_team(&s, "strangers").await;
    let fired = minutely(&stranger).await;
    let _receiver = run_without_end(&s, &stranger).await;
    let pools = &s.app().pools;
    without_timeouts(&pools.reads).await;
    // A team uses a third of the connections at most, so four callers list.
    let mut callers = vec![s.admin(), s.editor()];
    for name in ["b", "c"] {
        callers.push(another_team(&s, name).await);
    }
    let mut tx = begin_holder(&s).await;
    sqlx::raw_sql("LOCK TABLE deleted_workflows IN ACCESS EXCLUSIVE MODE").execute(&mut *tx).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let lists: Vec<_> = callers
        .iter()
        .flat_map(|caller| std::iter::repeat_n(caller.clone(), 10))
        .map(|caller| {
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    caller.get("/api/v1/runs").await;
                }
            })
        })
        .collect();
    let all = usize::try_from(pools.reads.raw_pool().options().get_max_connections()).unwrap();
    until(|| pools.reads.current_use().used == all && pools.reads.current_use().waiting > 0).await;
    fire_next_minute(&s, fired).await;
    lease_is_renewed(&s).await;
    stranger.patch(&format!("/api/v1/workflows/{fired}"), &json!({"description": "x"})).await.expect(200);
    is_over.store(true, Ordering::SeqCst);
    tx.rollback().await.unwrap();
    for list in lists {
        list.await.unwrap();
    }
    assert_no_timeouts(&s);
    s.end_early().await;
}

/// An edit whose client was answered 408 while it waited for its turn was made later, over the edits of the meantime.
#[tokio::test]
async fn edits_begin_within_their_time() {
    let s = Story::with_app(|config| (config.request_timeout_ms, config.edit_lock_timeout_ms) = (4_000, 600_000)).await;
    let id = s.create("0 9 * * *", "UTC").await;
    without_timeouts(&s.app().pools.edits).await;
    let holder = lock_workflow(&s, id).await;
    let path = format!("/api/v1/workflows/{id}");
    let (editor, first_path) = (s.editor(), path.clone());
    let first = tokio::spawn(async move { editor.patch(&first_path, &json!({"description": "first"})).await });
    s.until(WAITING, 1).await;
    s.editor().patch(&path, &json!({"description": "late"})).await.refused(408, "request_timeout", None);
    // The first one waits for the row in its transaction, and is made.
    until(|| s.app().requests.len() == 1).await;
    holder.rollback().await.unwrap();
    until(|| s.app().requests.is_empty()).await;
    first.await.unwrap();
    assert_eq!(s.table("SELECT description FROM workflows").await, "first");
    s.end().await;
}

/// A cancellation waits for the row of its run, and as many waited in the pool as a team requested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellations_leave_connections_to_other_teams() {
    let s = Story::with_app(|config| (config.executor_slots, config.edit_lock_timeout_ms) = (0, 600_000)).await;
    let (id, editor) = (s.create("0 9 * * *", "UTC").await, s.editor());
    let fired = editor.post_empty(&format!("/api/v1/schedules/{id}:fire")).await.expect(202);
    let path = format!("/api/v1/runs/{}:cancel", fired.json["run_id"].as_str().unwrap());
    let stranger = another_team(&s, "strangers").await;
    let edited = minutely(&stranger).await;
    let pools = &s.app().pools;
    without_timeouts(&pools.edits).await;
    let mut holder = begin_holder(&s).await;
    sqlx::raw_sql("SELECT FROM runs_live FOR UPDATE").execute(&mut *holder).await.unwrap();
    let cancellations: Vec<_> = (0..40)
        .map(|_| {
            let (editor, path) = (editor.clone(), path.clone());
            tokio::spawn(async move { editor.post_empty(&path).await })
        })
        .collect();
    until(|| s.app().requests.len() >= cancellations.len()).await;
    s.until(SHARE_OF_EDITS_WAITS, 1).await;
    let edits_now = pools.edits.current_use();
    assert_eq!(edits_now.waiting, 0, "the others wait in the process: {edits_now:?}");
    stranger.patch(&format!("/api/v1/workflows/{edited}"), &json!({"description": "x"})).await.expect(200);
    holder.rollback().await.unwrap();
    for cancellation in cancellations {
        let answer = cancellation.await.unwrap();
        assert!(matches!(answer.status, 200 | 408 | 503), "{answer:?}");
    }
    assert_eq!(s.table("SELECT state FROM runs").await, "cancelled");
    assert_no_timeouts(&s);
    s.end_early().await;
}

/// A channel with a rule, and a notification and a message that was not delivered.
async fn notify(s: &Story) -> i64 {
    let channel = json!({"name": "n", "kind": "aws", "target_arn": "arn:aws:sns:eu-west-1:123456789012:alerts"});
    let channel = s.editor().post("/api/v1/notification-channels", &channel).await.expect(201).id();
    let rule = json!({"event": "run_failed", "channel_ids": [channel]});
    s.editor().post("/api/v1/notification-rules", &rule).await.expect(201);
    s.execute(
        "INSERT INTO notifications (rule_id, team_id, event, subject, happened_on)
         SELECT id, team_id, event, 'x', cronbox_now() FROM notification_rules;
         INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, created_on)
         SELECT '0195573e-0000-7000-8000-000000000000', id, team_id, 'run_failed', 1, 'failed', cronbox_now()
           FROM notification_channels",
    )
    .await;
    channel
}

/// Each of these edits waits for another row than that of a workflow. A dry run has no limit that would end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_edits_leave_connections_to_other_teams() {
    let s = Story::with_app(|config| {
        (config.executor_slots, config.edit_lock_timeout_ms, config.bad_keys_per_min) = (0, 600_000, 0);
    })
    .await;
    let (channel, editor) = (notify(&s).await, s.editor());
    let notification = editor.get("/api/v1/notifications").await.expect(200).json["items"][0]["id"].to_string();
    let made = editor.post_empty("/api/v1/sign-in-links").await.expect(201).json;
    let (_, link) = made["path"].as_str().unwrap().split_once('?').unwrap();
    let stranger = another_team(&s, "strangers").await;
    let edited = minutely(&stranger).await;
    without_timeouts(&s.app().pools.edits).await;
    let dry = |path: &str, body: &Value| editor.request(Method::POST, &format!("{path}?dry_run=true")).json(body);
    let none = json!({});
    let key = "SELECT FROM api_keys WHERE team_id = (SELECT team_id FROM notification_channels) FOR UPDATE";
    let by_link = Api::without_key(s.url()).request(Method::POST, "/sign-in/link");
    let by_link = by_link.header("sec-fetch-site", "same-origin").body(link.to_owned());
    let cases: [(&str, &'static str, RequestBuilder); 6] = [
        (
            "a test of a channel",
            "SELECT FROM teams WHERE id = (SELECT team_id FROM notification_channels) FOR NO KEY UPDATE",
            dry(&format!("/api/v1/notification-channels/{channel}:test"), &none),
        ),
        (
            "a retry of a message",
            "SELECT FROM notification_messages FOR UPDATE",
            dry("/api/v1/notification-messages/0195573e-0000-7000-8000-000000000000:retry", &none),
        ),
        (
            "an acknowledgement",
            "SELECT FROM notifications FOR UPDATE",
            dry(&format!("/api/v1/notifications/{notification}:acknowledge"), &none),
        ),
        ("a rotation", key, dry("/api/v1/keys/self:rotate", &json!({"overlap_secs": 0}))),
        ("a new link", key, dry("/api/v1/sign-in-links", &none)),
        (
            "a sign-in by a link",
            "SELECT FROM sign_in_links FOR UPDATE",
            by_link.header("content-type", "application/x-www-form-urlencoded"),
        ),
    ];
    for (name, lock, request) in cases {
        let mut holder = begin_holder(&s).await;
        sqlx::raw_sql(lock).execute(&mut *holder).await.unwrap();
        let edits: Vec<_> = (0..40).map(|_| tokio::spawn(tests::send_request(request.try_clone().unwrap()))).collect();
        until(|| s.app().requests.len() >= edits.len()).await;
        s.until(SHARE_OF_EDITS_WAITS, 1).await;
        let edits_now = s.app().pools.edits.current_use();
        assert_eq!(edits_now.waiting, 0, "{name}: the others wait in the process: {edits_now:?}");
        stranger.patch(&format!("/api/v1/workflows/{edited}"), &json!({"description": name})).await.expect(200);
        holder.rollback().await.unwrap();
        for edit in edits {
            let answer = edit.await.unwrap();
            assert_ne!(answer.status, 500, "{name}: {answer:?}");
        }
        until(|| s.app().requests.is_empty()).await;
    }
    assert_no_timeouts(&s);
    s.end_early().await;
}

/// The workflow of a backfill was read with the counts of its runs, by a connection for edits and before the turn of its team.
#[tokio::test]
async fn backfills_of_other_teams_count_no_runs() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    let span = json!({"start": "2026-03-01T08:00:00Z", "end": "2026-03-02T08:00:00Z", "timing": "now"});
    let requested = s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), &span).await.expect(202);
    let path = format!("/api/v1/backfills/{}:cancel", requested.json["id"].as_str().unwrap());
    let stranger = stranger(&s).await;
    let mut holder = begin_holder(&s).await;
    sqlx::raw_sql("LOCK TABLE runs_live IN ACCESS EXCLUSIVE MODE").execute(&mut *holder).await.unwrap();
    stranger.post_empty(&path).await.refused(404, "not_found", None);
    holder.rollback().await.unwrap();
    s.end_early().await;
}

/// Whether as many backends wait for a lock as one team may use connections for edits: nine of twelve.
const SHARE_OF_EDITS_WAITS: &str =
    "SELECT count(*) / 9 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

/// The answer to an edit of a schedule was read by a connection of the lists.
#[tokio::test]
async fn answers_to_edits_wait_for_no_list() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let reads = &s.app().pools.reads;
    let mut lists = Vec::new();
    for _ in 0..reads.raw_pool().options().get_max_connections() {
        lists.push(reads.acquire().await.unwrap());
    }
    let path = format!("/api/v1/schedules/{id}");
    s.editor().patch(&path, &json!({"cron_schedule": "0 10 * * *"})).await.expect(200);
    let put = s.editor().request(Method::PUT, &path).json(&json!({"cron_schedule": "0 11 * * *"}));
    tests::send_request(put).await.expect(200);
    drop(lists);
    s.end().await;
}

/// Any caller may name any id, so this must not lock the row, nor wait for it.
#[tokio::test]
async fn workflows_of_other_teams_are_not_locked() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let stranger = another_team(&s, "strangers").await;
    let holder = lock_workflow(&s, id).await;
    let patch = json!({"description": "x"});
    let path = format!("/api/v1/workflows/{id}");
    let answer = stranger.patch(&path, &patch);
    tokio::time::timeout(PATIENCE, answer).await.expect("it waits for the lock").refused(404, "not_found", None);
    stranger.post_empty(&format!("/api/v1/schedules/{id}:fire")).await.refused(404, "not_found", None);
    holder.rollback().await.unwrap();
    s.end().await;
}

/// A workflow that is due each minute.
async fn minutely(team: &Api) -> WorkflowId {
    let body = json!({"name": "minutely", "cron_schedule": "* * * * *", "overlap_policy": "concurrent",
                      "max_concurrent": 100, "action": {"type": "log", "message": "hi"}});
    WorkflowId(team.post("/api/v1/workflows", &body).await.expect(201).id())
}

/// Starts a run whose receiver never answers, and waits until it executes.
async fn run_without_end(s: &Story, team: &Api) -> TcpListener {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", receiver.local_addr().unwrap());
    let body = json!({"name": "endless", "action": {"type": "http", "method": "POST", "url": url}});
    let id = team.post("/api/v1/workflows", &body).await.expect(201).id();
    team.post_empty(&format!("/api/v1/schedules/{id}:fire")).await.expect(202);
    s.until("SELECT count(*) FROM runs WHERE state = 'running'", 1).await;
    receiver
}

/// Delivers the fire of the next minute, which a clock may permit five minutes early.
async fn fire_next_minute(s: &Story, workflow: WorkflowId) {
    let next = s.clock.now() + TimeDelta::minutes(1);
    let minute = DateTime::<Utc>::from_timestamp(next.timestamp() / 60 * 60, 0).unwrap();
    let answer = s.invoke(workflow, &minute.to_rfc3339()).await;
    assert_eq!((answer.status, &answer.body["accepted"]), (202, &json!(true)), "{}", answer.body);
}

/// Waits until a heartbeat has renewed the lease of the run that has no end.
async fn lease_is_renewed(s: &Story) {
    let lease = "SELECT lease_until::text FROM runs WHERE state = 'running' AND workflow_id =
                    (SELECT id FROM workflows WHERE name = 'endless')";
    let (before, began) = (s.table(lease).await, Instant::now());
    assert!(!before.is_empty(), "the run was stopped");
    while s.table(lease).await == before {
        assert!(began.elapsed() < PATIENCE, "no heartbeat renews the lease");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE attempt > 1 OR recoveries > 0").await, 0);
}

/// Asserts that each fire, heartbeat, edit and job got its connection in time.
fn assert_no_timeouts(s: &Story) {
    let pools = &s.app().pools;
    for (name, pool) in
        [("fires", &pools.fires), ("leases", &pools.leases), ("work", &pools.work), ("edits", &pools.edits)]
    {
        assert_eq!(pool.current_use().timed_out, 0, "{name}");
    }
}

/// Removes the limits of all connections of a pool, so that they wait as long as the test holds a lock.
pub(crate) async fn without_timeouts(pool: &PgPool) {
    let mut connections = Vec::new();
    for _ in 0..pool.raw_pool().options().get_max_connections() {
        let mut connection = pool.raw_pool().acquire().await.unwrap();
        sqlx::raw_sql("SET lock_timeout = 0; SET statement_timeout = 0").execute(&mut *connection).await.unwrap();
        connections.push(connection);
    }
}

async fn until(is_met: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < PATIENCE, "the barrier is never reached");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A transaction for locks. It may be idle for as long as the test needs: the usual limit is ten seconds.
pub(crate) async fn begin_holder(s: &Story) -> Transaction {
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::raw_sql("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *tx).await.unwrap();
    tx
}

/// Locks a workflow's row, so that other transactions wait for it.
pub(crate) async fn lock_workflow(s: &Story, workflow: WorkflowId) -> Transaction {
    let mut tx = begin_holder(s).await;
    let lock = "SELECT 1 FROM workflows WHERE id = $1 FOR NO KEY UPDATE";
    sqlx::query(lock).bind(workflow.0).execute(&mut *tx).await.unwrap();
    tx
}

async fn stranger(s: &Story) -> Api {
    another_team(s, "strangers").await
}

/// An editor of a team that did not exist before.
pub(crate) async fn another_team(s: &Story, name: &str) -> Api {
    let team = s.admin().post("/api/v1/teams", &json!({"name": name})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": team, "role": "editor"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    Api::new(s.url(), key["key"].as_str().unwrap())
}
