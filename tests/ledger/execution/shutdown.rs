//! Shutdown: running attempts may end, and the rest is handed over to another instance. None of it counts as lost.

use clap::Parser as _;
use executor::claim::{self, Claimed, Lease, Slots, Unknown};
use executor::hand_over::Sent;
use ledger::runs::{RunState, Trigger};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tests::{LossyWay, PATIENCE, Story};
use tokio::net::TcpListener;

use crate::execution::pause_and_archive::claimable;
use crate::process::{App, LONG_LEASE, UNRENEWED, idle};
use crate::receiver::{Receiver, accept, run, until_state};
use crate::steps::{fire_on_time, hourly, start_run, story_without_executor, timeline};

/// Longer than any test takes.
const LONG: [(&str, &str); 2] = [("CRONBOX_SHUTDOWN_DRAIN_SECS", "3600"), LONG_LEASE[0]];

/// The executor claims only when the API notifies it, so neither a poll nor a job releases a claim whose reply was lost.
/// Each turn of the jobs `recovery` and `timeouts` would notify it, too.
const ONLY_NOTIFIED: [(&str, &str); 2] = [("CRONBOX_EXECUTOR_POLL_MS", "3600000"), ("CRONBOX_JOBS_ENABLED", "false")];

async fn recoveries(s: &Story) -> Value {
    s.editor().get("/api/v1/stats").await.expect(200).json["recoveries"].clone()
}

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    config: app::Config,
}

/// A deployment waits for running attempts. `make up` and the tests do not wait that long.
#[tokio::test]
async fn the_default_drain_limit_is_110_seconds() {
    let Settings { config } = Settings::parse_from(["app", "--database-url", "unused"]);
    assert_eq!(config.shutdown_drain_secs, 110);
    let s = idle().await;
    assert_eq!(s.app().config.shutdown_drain_secs, 2);
    s.end().await;
}

/// At the limit, the shutdown interrupts one run of each `on_lost`. Another instance continues the one with `retry`.
#[tokio::test]
async fn shutdown_hands_over_without_a_loss() {
    let s = idle().await;
    let (retried, excluded) = (Receiver::slow().await, Receiver::slow().await);
    let hourly = |receiver: &Receiver, on_lost| json!({"action": receiver.action(), "on_lost": on_lost});
    let goes_on = accept(&s, s.create_with(hourly(&retried, "retry")).await).await;
    let cut_off = accept(&s, s.create_with(hourly(&excluded, "abandon")).await).await;
    let first = App::with(&s.dsn(), &LONG_LEASE).await;
    retried.until(1).await;
    excluded.until(1).await;
    first.stop().await;
    let ended = run(&s, cut_off).await;
    assert_eq!((&ended["state"], &ended["error"]), (&json!("abandoned"), &json!("cut_off_by_shutdown")));
    assert_eq!(run(&s, goes_on).await["state"], "accepted");
    let second = App::with(&s.dsn(), &LONG_LEASE).await;
    retried.let_answer(2);
    assert_eq!(until_state(&s, goes_on, "succeeded").await["attempt"], 2);
    second.stop().await;
    let said: Vec<Value> = retried.calls().iter().map(|call| call["context"]["is_recovery"].clone()).collect();
    assert_eq!(said, [false, true], "the second call says that there was one before");
    assert_eq!(excluded.received().len(), 1, "a second call is what its owner excluded");
    assert_eq!(recoveries(&s).await["attempts"], 0);
    let executions = s.editor().get("/api/v1/stats").await.expect(200).json["executions"].clone();
    assert_eq!(
        (&executions["lost"], &executions["handed_over"], &executions["cut_off"]),
        (&json!(0), &json!(1), &json!(1))
    );
    s.end().await;
}

/// An attempt that ends within the limit is not handed over.
#[tokio::test]
async fn draining_attempt_ends_where_it_began() {
    let s = idle().await;
    let receiver = Receiver::slow().await;
    let id = accept(&s, s.create_with(json!({"action": receiver.action()})).await).await;
    let mut app = App::with(&s.dsn(), &LONG).await;
    receiver.until(1).await;
    app.signal("-TERM").await;
    app.until_stopping().await;
    receiver.let_answer(1);
    app.ended().await;
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 1);
    assert_eq!(receiver.received().len(), 1);
    s.end().await;
}

/// A request without a body counts as sent, too, although the HTTP client never polls its body.
#[tokio::test]
async fn bodyless_attempt_ends_where_it_began() {
    let s = idle().await;
    let receiver = Receiver::slow().await;
    let action = json!({"type": "http", "method": "GET", "url": receiver.url, "body": ""});
    let id = accept(&s, s.create_with(json!({"action": action})).await).await;
    let mut app = App::with(&s.dsn(), &LONG).await;
    receiver.until(1).await;
    app.signal("-TERM").await;
    app.until_stopping().await;
    receiver.let_answer(1);
    app.ended().await;
    let ended = run(&s, id).await;
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(1)), "{ended}");
    s.end().await;
}

#[tokio::test]
async fn second_signal_hands_over_at_once() {
    let s = idle().await;
    let receiver = Receiver::slow().await;
    let id = accept(&s, s.create_with(json!({"action": receiver.action()})).await).await;
    let mut app = App::with(&s.dsn(), &LONG).await;
    receiver.until(1).await;
    app.signal("-INT").await;
    app.until_stopping().await;
    app.signal("-INT").await;
    app.ended().await;
    assert_eq!(run(&s, id).await["state"], "accepted");
    let next = App::with(&s.dsn(), &LONG_LEASE).await;
    receiver.let_answer(2);
    until_state(&s, id, "succeeded").await;
    assert_eq!((receiver.received().len(), recoveries(&s).await["attempts"].clone()), (2, json!(0)));
    next.stop().await;
    s.end().await;
}

/// A fire that arrives while attempts drain is accepted, and another instance executes its run.
#[tokio::test]
async fn invoke_is_served_while_attempts_drain() {
    let s = idle().await;
    let receiver = Receiver::slow().await;
    accept(&s, s.create_with(json!({"action": receiver.action()})).await).await;
    // It is not published, because EventBridge would also fire it when the minute comes.
    let wf = s.create_with(json!({"cron_schedule": "* * * * *"})).await;
    let mut app = App::with(&s.dsn(), &LONG).await;
    receiver.until(1).await;
    app.signal("-TERM").await;
    app.until_stopping().await;
    // The app logs the signal before it begins to drain. It writes this row after that.
    s.until("SELECT count(*) FROM instances WHERE stops", 1).await;
    let time = crate::execution::crashes::next_minute(&s);
    let fire = app.runner(&s).request(Method::POST, &format!("/api/v1/cron/workflows/{wf}:invoke"));
    let answer = tests::send_request(fire.json(&json!({ "scheduled_time": time }))).await.expect(202);
    let id = answer.json["run_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(run(&s, id).await["state"], "accepted", "it claims nothing any more");
    receiver.let_answer(1);
    app.ended().await;
    let next = App::start(&s.dsn(), None).await;
    until_state(&s, id, "succeeded").await;
    next.stop().await;
    s.archive(wf).await;
    s.end().await;
}

/// The receiver accepts the connection and never answers the TLS handshake, so no byte of the request was sent.
#[tokio::test]
async fn unsent_attempt_is_handed_over_at_once() {
    let s = idle().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let action = json!({"type": "http", "method": "POST", "url": format!("https://{}", silent.local_addr().unwrap())});
    let id = accept(&s, s.create_with(json!({"action": action, "on_lost": "abandon"})).await).await;
    let mut app = App::with(&s.dsn(), &LONG).await;
    let connected = tokio::time::timeout(PATIENCE, silent.accept()).await;
    let (_connection, _) = connected.expect("no connection").unwrap();
    app.signal("-TERM").await;
    app.ended().await;
    let waits = run(&s, id).await;
    assert_eq!((&waits["state"], &waits["error"]), (&json!("accepted"), &Value::Null), "{waits}");
    s.execute("UPDATE runs SET state = 'cancelled', finished_on = run_after").await;
    s.end().await;
}

/// The reply to the last claim is lost while another attempt drains. No request of that claim was sent.
#[tokio::test]
async fn unknown_claim_waits_for_no_drain() {
    let s = idle().await;
    let way = LossyWay::to(&s.dsn()).await;
    let (slow, receiver) = (Receiver::slow().await, Receiver::kind().await);
    let draining = accept(&s, s.create_with(json!({"action": slow.action()})).await).await;
    let mut app = App::with(&way.dsn(&s.dsn()), &[&LONG[..], &ONLY_NOTIFIED].concat()).await;
    slow.until(1).await;
    way.lose_rows_of("claim runs");
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    let fired = app.editor(&s).post(&format!("/api/v1/schedules/{wf}:fire"), &json!({})).await.expect(202);
    let id = fired.json["run_id"].as_str().unwrap().parse().unwrap();
    tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("no claim");
    app.signal("-TERM").await;
    assert_eq!(until_state(&s, id, "accepted").await["attempt"], 1);
    assert_eq!(run(&s, draining).await["state"], "running", "the other one still drains");
    slow.let_answer(1);
    app.ended().await;
    let next = App::start(&s.dsn(), None).await;
    until_state(&s, id, "succeeded").await;
    next.stop().await;
    s.end().await;
}

/// A sent attempt cannot be handed over in time, so the process drops it. The reply to another claim is lost, too.
#[tokio::test]
async fn forgotten_attempts_are_no_unknown_claims() {
    let s = idle().await;
    let way = LossyWay::to(&s.dsn()).await;
    let (slow, receiver) = (Receiver::slow().await, Receiver::kind().await);
    let sent = accept(&s, s.create_with(json!({"action": slow.action(), "on_lost": "abandon"})).await).await;
    let mut app = App::with(&way.dsn(&s.dsn()), &[&LONG[..], &UNRENEWED, &ONLY_NOTIFIED].concat()).await;
    slow.until(1).await;
    way.lose_rows_of("claim runs");
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    app.editor(&s).post(&format!("/api/v1/schedules/{wf}:fire"), &json!({})).await.expect(202);
    tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("no claim");
    let mut session = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM runs FOR UPDATE").execute(&mut session).await.unwrap();
    app.signal("-INT").await;
    app.until_stopping().await;
    app.signal("-INT").await;
    // The process hands over the claim first, which fails; then the attempt, whose limit is shorter.
    let claim_waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                          AND wait_event_type = 'Lock' AND query LIKE '%hand over unknown claims%'";
    let attempt_waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                            AND wait_event_type = 'Lock' AND query LIKE '%lock a run that is handed over%'";
    let claim_comes_again = async {
        s.until(attempt_waits, 1).await;
        s.until(claim_waits, 1).await;
    };
    tokio::select! {
        () = app.ended() => {}
        () = claim_comes_again => {}
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut session).await.unwrap();
    app.ended().await;
    assert_eq!(run(&s, sent).await["state"], "running", "it may have run, so on_lost decides once its lease is over");
    s.execute(
        "UPDATE runs SET state = 'cancelled', finished_on = COALESCE(started_on, run_after),
                         locked_by = NULL, locked_at = NULL, lease_until = NULL
          WHERE finished_on IS NULL",
    )
    .await;
    s.publish().await;
    s.end_early().await;
}

/// Archiving has requested the stop of a run, and the shutdown comes before the heartbeat that would notify the
/// executor.
#[tokio::test]
async fn cut_off_run_names_its_stop_reason() {
    let s = idle().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    let id = accept(&s, wf).await;
    let app = App::with(&s.dsn(), &UNRENEWED).await;
    receiver.until(1).await;
    s.archive(wf).await;
    app.stop().await;
    let ended = run(&s, id).await;
    assert_eq!((&ended["state"], &ended["error"]), (&json!("cancelled"), &json!("the workflow was archived")));
    s.publish().await;
    s.end().await;
}

/// The `CRONBOX_RECOVERY_MAX_AGE_SECS` of an instance that hands over.
const A_DAY_SECS: f64 = 86_400.0;

/// Claims all due runs for an instance.
async fn claim_all(s: &Story, instance: uuid::Uuid) -> Vec<Claimed> {
    let (lease, slots) = (Lease { instance, secs: 120.0 }, Slots::all_free(10));
    let mut connection = s.pool.acquire().await.unwrap();
    let claimed = claim::claim_due_runs(&mut connection, lease, &slots, &[], s.clock.now()).await.unwrap();
    assert!(!claimed.is_empty(), "nothing is due");
    claimed
}

/// Claims all due runs for an instance, and hands them over as in its shutdown.
async fn handed_over(s: &Story, sent: Sent) {
    let instance = uuid::Uuid::new_v4();
    for run in claim_all(s, instance).await {
        let mut tx = db::begin_transaction(&s.pool).await.unwrap();
        let state = executor::hand_over::hand_over(&mut tx, instance, run.fence(), sent, A_DAY_SECS, s.clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(state, Some(RunState::Accepted));
    }
}

/// Claims all due runs for an instance that does not get the reply.
async fn claim_lost(s: &Story) {
    let instance = uuid::Uuid::new_v4();
    let claimed = i64::try_from(claim_all(s, instance).await.len()).unwrap();
    let mut connection = s.pool.acquire().await.unwrap();
    let unknown = claim::find_unknown(&mut connection, instance, &[]).await.unwrap();
    let handed_over = claim::hand_over_unknown(&mut connection, instance, &unknown, A_DAY_SECS).await.unwrap();
    assert_eq!(handed_over, Unknown { handed_over: claimed, locked: 0 });
}

/// An environment is scaled to zero over a weekend. Runs that it hands over unsent must expire like runs that were
/// never claimed.
#[tokio::test]
async fn unsent_fires_expire_after_their_window() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 3600})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    handed_over(&s, Sent::Nothing).await;
    claim_lost(&s).await;
    s.now_is("2026-03-02T10:00:05Z").await;
    assert_eq!(claimable(&s).await, 1, "as old as the window");
    s.now_is("2026-03-05T09:00:00Z").await;
    assert_eq!(claimable(&s).await, 0, "whether or not the job has come by");
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule abandoned");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z abandoned");
    assert_eq!(s.runs_of(wf).await[0]["error"], "no executor started it within the catch-up window");
    let id = s.runs_of(wf).await[0]["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(timeline(&s, id).await, ["1 handed_over 09:00:05 -", "2 handed_over 09:00:05 -"]);
    s.end_early().await;
}

/// A shutdown ends the runs of archived workflows, also if no cancel request was recorded.
#[tokio::test]
async fn runs_of_archived_workflows_end_at_shutdown() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    for (sent, end) in [(Sent::Nothing, RunState::Cancelled), (Sent::Perhaps, RunState::Abandoned)] {
        s.now_is("2026-03-02T08:30:00Z").await;
        let wf = hourly(&s, json!({"on_lost": "retry"})).await;
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
        let instance = uuid::Uuid::new_v4();
        let run = claim_all(&s, instance).await.remove(0);
        s.archive(wf).await;
        s.execute("UPDATE runs SET cancel_requested_on = NULL, cancel_reason = NULL").await;
        let mut tx = db::begin_transaction(&s.pool).await.unwrap();
        let state = executor::hand_over::hand_over(&mut tx, instance, run.fence(), sent, A_DAY_SECS, s.clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(state, Some(end), "{sent:?}");
    }
    s.end_early().await;
}

/// A run was handed over unsent, so it has not started. The next fire must wait for it and not be skipped.
#[tokio::test]
async fn a_fire_waits_for_an_unsent_predecessor() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    handed_over(&s, Sent::Nothing).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule queued");
    s.end_early().await;
}

/// After a pause, an unsent run waits for a slot again. A newer fire then replaces it, and the proof permits that.
#[tokio::test]
async fn a_newer_fire_replaces_an_unsent_one() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    handed_over(&s, Sent::Nothing).await;
    s.now_is("2026-03-02T09:20:00Z").await;
    s.pause(wf).await;
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-02T08:00:00Z").await, "accepted");
    s.now_is("2026-03-02T09:30:00Z").await;
    s.resume(wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    let runs = s.runs(wf).await;
    assert!(runs.ends_with("2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule queued"), "{runs}");
    s.now_is("2026-03-02T10:30:00Z").await;
    s.job("watchdog").await;
    let verified = s.admin().get("/api/v1/verify?from=2026-03-02T08:31:00Z&to=2026-03-02T10:20:00Z").await.expect(200);
    assert_eq!(verified.json["differences"], json!([]), "{}", verified.text);
    s.end_early().await;
}

/// Interrupted runs may have reached their receivers, so no catch-up window ends them. They continue within a day or
/// never.
#[tokio::test]
async fn cut_off_runs_expire_after_a_day() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (wf, manual) = (hourly(&s, json!({"catch_up_window_secs": 3600})).await, s.create_with(json!({})).await);
    accept(&s, manual).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    handed_over(&s, Sent::Perhaps).await;
    // A claim whose reply is lost must not renew the run's age.
    claim_lost(&s).await;
    s.now_is("2026-03-03T09:00:05Z").await;
    s.job("queue").await;
    assert_eq!(claimable(&s).await, 2, "a day later");
    s.now_is("2026-03-03T09:00:06Z").await;
    assert_eq!(claimable(&s).await, 0, "more than a day later");
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule abandoned");
    assert_eq!(s.runs(manual).await, "untimed manual abandoned");
    assert_eq!(s.table("SELECT DISTINCT error FROM runs").await, "handed_over_not_taken");
    s.end_early().await;
}
