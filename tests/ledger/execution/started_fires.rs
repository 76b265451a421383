//! A fresh fire starts its run on the instance that decides it: no claim, and nothing is lost with a reply.

use schedule::WorkflowId;
use serde_json::json;
use tests::{Answer, CountingWay, LossyWay, PATIENCE, Story};
use uuid::Uuid;

use crate::execution::crashes::{every_minute, invoke, next_minute, wait_for_offered_slots};
use crate::process::{App, idle};
use crate::receiver::{Receiver, run, until_state};

/// No job of the app writes beside its fires, and no lease ends.
const SETTINGS: [(&str, &str); 2] = [("CRONBOX_JOBS_ENABLED", "false"), ("CRONBOX_LOST_AFTER_SECS", "3600")];

fn run_in(answer: &Answer) -> Uuid {
    answer.json["run_id"].as_str().unwrap().parse().unwrap()
}

/// Delivers a fire that is accepted; returns its run.
async fn fire(app: &App, s: &Story, wf: WorkflowId) -> Uuid {
    run_in(&tests::send_request(invoke(app, s, wf, next_minute(s))).await.expect(202))
}

/// An app whose executor offers its slots, because it has made its first claim.
async fn offering_app(s: &Story, dsn: &str) -> App {
    let app = App::with(dsn, &SETTINGS).await;
    wait_for_offered_slots(&app, s).await;
    app
}

#[tokio::test]
async fn fresh_fires_need_no_claim() {
    let s = idle().await;
    let way = CountingWay::to(&s.dsn()).await;
    let app = offering_app(&s, &way.dsn(&s.dsn())).await;
    let receiver = Receiver::kind().await;
    let wf = every_minute(&s, &receiver).await;
    way.take_rows();
    let id = fire(&app, &s, wf).await;
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 1);
    let rows = way.take_rows();
    let claimed = rows.get("claim runs").map_or(0, |rows| rows.all);
    assert_eq!((claimed, rows["read started runs"].all), (0, 1), "{rows:?}");
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(receiver.calls()[0]["context"]["is_recovery"], false);
    app.stop().await;
    s.archive(wf).await;
    s.end().await;
}

/// An admin has limited the runs of the team over all instances, so only a claim can start one. While the database waits
/// for its acceptance, nothing starts at all.
#[tokio::test]
async fn limited_and_held_fires_need_claims() {
    let s = idle().await;
    let way = CountingWay::to(&s.dsn()).await;
    let app = offering_app(&s, &way.dsn(&s.dsn())).await;
    let receiver = Receiver::kind().await;
    let (limited, held) = (every_minute(&s, &receiver).await, every_minute(&s, &receiver).await);
    way.take_rows();
    s.execute("INSERT INTO team_limits (team_id, running_runs) SELECT id, 5 FROM teams").await;
    let id = fire(&app, &s, limited).await;
    until_state(&s, id, "succeeded").await;
    s.execute("UPDATE team_limits SET running_runs = NULL").await;
    s.execute("UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'restored'").await;
    let id = fire(&app, &s, held).await;
    assert_eq!(run(&s, id).await["state"], "accepted");
    s.execute("UPDATE database_identity SET held_on = NULL, held_reason = NULL").await;
    until_state(&s, id, "succeeded").await;
    let rows = way.take_rows();
    assert_eq!((rows["claim runs"].all, rows.contains_key("read started runs")), (2, false), "{rows:?}");
    app.stop().await;
    for wf in [limited, held] {
        s.archive(wf).await;
    }
    s.end().await;
}

/// The reply to the commit of a decision is lost, and in another case what the attempt needs. Nothing was sent of either,
/// so the run is handed over, whatever `on_lost` says, and a repeated fire finds it.
#[tokio::test]
async fn lost_replies_of_decisions_run_once() {
    let s = idle().await;
    for statement in ["COMMIT", "read started runs"] {
        // After a loss every claim hands over what commits late, and meanwhile no fire starts its run. So each case has an
        // app that has lost nothing.
        let way = LossyWay::to(&s.dsn()).await;
        let app = offering_app(&s, &way.dsn(&s.dsn())).await;
        let receiver = Receiver::kind().await;
        let body = json!({"cron_schedule": "* * * * *", "action": receiver.action(), "on_lost": "abandon"});
        let (wf, time) = (s.create_with(body).await, next_minute(&s));
        way.lose_reply_to(statement);
        tests::send_request(invoke(&app, &s, wf, time)).await;
        tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect(statement);
        let again = tests::send_request(invoke(&app, &s, wf, time)).await.expect(200);
        assert_eq!(again.json["reason"], "duplicate", "{statement}");
        let done = until_state(&s, run_in(&again), "succeeded").await;
        assert_eq!((&done["attempt"], s.runs_of(wf).await.len()), (&json!(2), 1), "{statement}: {done}");
        assert_eq!(receiver.received().len(), 1, "{statement}");
        assert_eq!(receiver.calls()[0]["context"]["is_recovery"], false, "{statement}: no recovery");
        app.stop().await;
        s.archive(wf).await;
    }
    s.end().await;
}

/// The connection of a decision breaks while its commit waits for a replica, so the run appears after the hand-over, with a
/// lease of this instance. The story writes that row.
#[tokio::test]
async fn a_decision_that_commits_late_is_handed_over() {
    let s = idle().await;
    let way = LossyWay::to(&s.dsn()).await;
    let app = offering_app(&s, &way.dsn(&s.dsn())).await;
    let receiver = Receiver::kind().await;
    let (wf, time) = (every_minute(&s, &receiver).await, next_minute(&s));
    way.lose_reply_to("COMMIT");
    tests::send_request(invoke(&app, &s, wf, time)).await;
    tokio::time::timeout(PATIENCE, way.wait_until_lost()).await.expect("no decision");
    let seen = run_in(&tests::send_request(invoke(&app, &s, wf, time)).await.expect(200));
    assert_eq!(until_state(&s, seen, "succeeded").await["attempt"], 2, "the hand-over is over");

    let late = s.create_with(json!({"action": receiver.action(), "on_lost": "abandon"})).await;
    let id = Uuid::new_v4();
    let committed = "INSERT INTO runs (id, workflow_id, trigger, state, attempt, run_after, created_on, started_on,
                                       locked_by, locked_at, lease_until)
                     SELECT $1, $2, 'manual', 'running', 1, $3, $3, $3, i.id, $3, $3 + INTERVAL '1 hour'
                       FROM instances AS i WHERE i.slots > 0";
    let committed = sqlx::query(committed).bind(id).bind(late.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    assert_eq!(committed.rows_affected(), 1);
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 2);
    assert_eq!(receiver.calls()[1]["context"]["is_recovery"], false, "nothing was sent before");
    app.stop().await;
    for wf in [wf, late] {
        s.archive(wf).await;
    }
    s.end().await;
}

/// The action of a fire has not ended at the limit of the shutdown: its run continues elsewhere, as after a claim.
#[tokio::test]
async fn shutdown_hands_over_started_fires() {
    let s = idle().await;
    let mut app = offering_app(&s, &s.dsn()).await;
    let receiver = Receiver::slow().await;
    let wf = every_minute(&s, &receiver).await;
    let id = fire(&app, &s, wf).await;
    receiver.until(1).await;
    app.signal("-TERM").await;
    app.ended().await;
    let waits = run(&s, id).await;
    assert_eq!((&waits["state"], &waits["attempt"]), (&json!("accepted"), &json!(1)), "{waits}");
    receiver.let_answer(2);
    let next = App::with(&s.dsn(), &SETTINGS).await;
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 2);
    assert_eq!(receiver.received().len(), 2);
    next.stop().await;
    s.archive(wf).await;
    s.end().await;
}
