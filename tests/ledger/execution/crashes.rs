//! SIGKILL of the app's process at each point of an edit, an invoke and a run; another process continues.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Answer, PATIENCE, Story, Way};

use crate::process::{App, LONG_LEASE, UNRENEWED, idle};
use crate::receiver::{Receiver, accept, run, until_state};

/// Sends a request to an app that dies while it handles it.
async fn ask(request: reqwest::RequestBuilder) -> Option<Answer> {
    // `None` if the answer is missing or incomplete.
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    let (headers, text) = (response.headers().clone(), response.text().await.ok()?);
    Some(Answer { status, headers, json: serde_json::from_str(&text).unwrap_or(Value::Null), text })
}

/// The app is killed at each point of the edit. The client repeats it, and the workflow changes once.
#[tokio::test]
async fn a_killed_edit_is_published_iff_committed() {
    let s = idle().await;
    for (point, committed) in [("A1", false), ("A2", false), ("A3", true)] {
        let wf = s.create("0 9 * * *", "UTC").await;
        s.publish().await;
        let victim = App::start(&s.dsn(), Some(&format!("{point}:1:kill"))).await;
        let edit = victim.editor(&s).request(reqwest::Method::PATCH, &format!("/api/v1/workflows/{wf}"));
        assert!(ask(edit.json(&json!({"cron_schedule": "0 17 * * *"}))).await.is_none(), "{point}: it answered");
        victim.assert_killed(point).await;
        let expected = if committed { "0 17 * * *" } else { "0 9 * * *" };
        assert_eq!(s.workflow(wf).await["cron_schedule"], expected, "{point}");
        assert_eq!(s.outbox_rows(wf).await, 1 + i64::from(committed), "{point}");
        s.publish().await;
        let published = if committed { "cron(0 17 * * ? *)" } else { "cron(0 9 * * ? *)" };
        assert_eq!(s.schedule(wf), format!("{published} UTC ENABLED"), "{point}");
        // A client without an answer repeats its request at another instance.
        let next = App::start(&s.dsn(), None).await;
        let edit = json!({"cron_schedule": "0 17 * * *"});
        let again = next.editor(&s).patch(&format!("/api/v1/workflows/{wf}"), &edit).await.expect(200);
        assert_eq!(again.json["revision"], 2, "{point}: changed once");
        next.stop().await;
        s.publish().await;
        assert_eq!(s.schedule(wf), "cron(0 17 * * ? *) UTC ENABLED", "{point}");
    }
    s.end().await;
}

/// The next whole minute: due since the workflow was created, and near enough to be accepted.
pub(crate) fn next_minute(s: &Story) -> DateTime<Utc> {
    s.clock.now().duration_trunc(TimeDelta::minutes(1)).unwrap() + TimeDelta::minutes(1)
}

/// It is not published, because EventBridge would also fire it when the minute comes.
pub(crate) async fn every_minute(s: &Story, receiver: &Receiver) -> WorkflowId {
    s.create_with(json!({"cron_schedule": "* * * * *", "action": receiver.action()})).await
}

pub(crate) fn invoke(app: &App, s: &Story, wf: WorkflowId, time: DateTime<Utc>) -> reqwest::RequestBuilder {
    let path = format!("/api/v1/cron/workflows/{wf}:invoke");
    app.runner(s).request(reqwest::Method::POST, &path).json(&json!({ "scheduled_time": time }))
}

/// Waits until the executor of an app offers its slots to fires, because it has made its first claim.
pub(crate) async fn wait_for_offered_slots(app: &App, s: &Story) {
    let wf = every_minute(s, &Receiver::kind().await).await;
    let answer = tests::send_request(invoke(app, s, wf, next_minute(s))).await.expect(202);
    until_state(s, answer.json["run_id"].as_str().unwrap().parse().unwrap(), "succeeded").await;
    s.archive(wf).await;
}

/// Ends the leases of a killed instance.
async fn end_leases(s: &Story) {
    s.execute("UPDATE runs SET lease_until = cronbox_now() WHERE state = 'running'").await;
}

/// The app is killed at each point of the invoke.
#[tokio::test]
async fn killed_and_repeated_invokes_make_one_run() {
    let s = idle().await;
    for (point, pass, committed) in [("I1", 1, false), ("I2", 2, true), ("I3", 1, true)] {
        let receiver = Receiver::kind().await;
        let wf = every_minute(&s, &receiver).await;
        let time = next_minute(&s);
        // At I3 the run would start beside the kill, and its request might be sent.
        let slots = if point == "I3" { "0" } else { "1000" };
        let fault = format!("{point}:{pass}:kill");
        let settings = [("CRONBOX_FAULT", fault.as_str()), ("CRONBOX_EXECUTOR_SLOTS", slots)];
        let victim = App::with(&s.dsn(), &[&UNRENEWED[..], &settings].concat()).await;
        if point == "I2" {
            // Then the fire has a slot until its run is passed on. A run without one could be claimed beside the kill.
            wait_for_offered_slots(&victim, &s).await;
        }
        assert!(ask(invoke(&victim, &s, wf, time)).await.is_none(), "{point}: it answered");
        victim.assert_killed(point).await;
        end_leases(&s).await;
        let next = App::with(&s.dsn(), &LONG_LEASE).await;
        let again = ask(invoke(&next, &s, wf, time)).await.unwrap();
        let accepted = again.json["accepted"].as_bool().unwrap();
        assert_eq!((again.status, accepted), if committed { (200, false) } else { (202, true) }, "{point}");
        let run = again.json["run_id"].as_str().unwrap().parse().unwrap();
        until_state(&s, run, "succeeded").await;
        let third = ask(invoke(&next, &s, wf, time)).await.unwrap();
        assert_eq!(third.json["run_id"].as_str().unwrap(), run.to_string(), "{point}");
        next.stop().await;
        assert_eq!((receiver.received().len(), s.runs_of(wf).await.len()), (1, 1), "{point}");
        assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision <> 'fired'").await, 0);
        s.archive(wf).await;
    }
    s.end().await;
}

/// The instance is killed at each point of the run.
#[tokio::test]
async fn runs_of_killed_instances_end_once_elsewhere() {
    let s = idle().await;
    for (point, attempts, effects) in [("I4", 2, 1), ("I5", 2, 2), ("I6", 1, 1)] {
        let receiver = Receiver::kind().await;
        let wf = every_minute(&s, &receiver).await;
        let time = next_minute(&s);
        let fault = format!("{point}:1:kill");
        // No lease expires by itself, because on a slow machine that would be one more attempt.
        let victim = App::with(&s.dsn(), &[&UNRENEWED[..], &[("CRONBOX_FAULT", fault.as_str())]].concat()).await;
        // The app may die before or after it answers.
        ask(invoke(&victim, &s, wf, time)).await;
        victim.assert_killed(point).await;
        end_leases(&s).await;
        let next = App::with(&s.dsn(), &LONG_LEASE).await;
        let listed = s.runs_of(wf).await;
        let id = listed[0]["id"].as_str().unwrap().parse().unwrap();
        let done = until_state(&s, id, "succeeded").await;
        assert_eq!((listed.len(), &done["attempt"]), (1, &json!(attempts)), "{point}");
        // The slot is free, so the next time does not overlap.
        let following = ask(invoke(&next, &s, wf, time + TimeDelta::minutes(1))).await.unwrap();
        assert_eq!(following.status, 202, "{point}: {}", following.text);
        until_state(&s, following.json["run_id"].as_str().unwrap().parse().unwrap(), "succeeded").await;
        next.stop().await;
        let calls: Vec<Value> = receiver.calls().into_iter().filter(|call| call["run_id"] == json!(id)).collect();
        assert_eq!(calls.len(), effects, "{point}: effects are at most one and the takeovers");
        let recovered = calls.iter().filter(|call| call["context"]["is_recovery"] == true).count();
        assert_eq!(recovered, usize::from(attempts > 1), "{point}: who repeats says so");
        s.archive(wf).await;
    }
    s.end().await;
}

/// Another instance has finished the run in the meantime.
#[tokio::test]
async fn instances_suspended_past_their_lease_change_nothing() {
    let s = idle().await;
    let receiver = Receiver::kind().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    let id = accept(&s, wf).await;
    // Long enough for the first attempt on a slow machine.
    let lease = [("CRONBOX_LOST_AFTER_SECS", "6"), ("CRONBOX_HEARTBEAT_MS", "250")];
    let frozen = App::with(&s.dsn(), &[&lease[..], &[("CRONBOX_FAULT", "I5:1:stop")]].concat()).await;
    receiver.until(1).await;
    let other = App::with(&s.dsn(), &LONG_LEASE).await;
    let done = until_state(&s, id, "succeeded").await;
    assert_eq!(done["attempt"], 2);
    frozen.signal("-CONT").await;
    s.until("SELECT count(*) FROM runs WHERE late_result ->> 'state' = 'succeeded'", 1).await;
    let mut after = run(&s, id).await;
    assert_eq!(after["late_result"].take()["attempt"], 1, "what the suspended attempt answered is shown");
    assert_eq!(after, done, "everything else is as it was");
    assert_eq!(receiver.received().len(), 2);
    frozen.stop().await;
    other.stop().await;
    s.end().await;
}

#[tokio::test]
async fn attempts_stop_when_renewal_fails() {
    let s = idle().await;
    let mut way = Way::to(&s.dsn()).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let wf = s.create_with(json!({"action": {"type": "http", "method": "POST", "url": url}})).await;
    let id = accept(&s, wf).await;
    // Long enough that the second attempt does not stop before the shutdown, too.
    let lease = [("CRONBOX_LOST_AFTER_SECS", "6"), ("CRONBOX_HEARTBEAT_MS", "250")];
    let cut_off = App::with(&way.dsn(&s.dsn()), &lease).await;
    let (mut connection, _) = silent.accept().await.unwrap();
    until_state(&s, id, "running").await;
    way.cut().await;
    let mut received = Vec::new();
    let hung_up = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut received);
    tokio::time::timeout(PATIENCE, hung_up).await.expect("the attempt has not stopped").ok();
    way.mend().await;
    let (_connection, _) = silent.accept().await.unwrap();
    let again = until_state(&s, id, "running").await;
    // On a busy machine, a lease may expire once more.
    assert!(again["attempt"].as_i64() >= Some(2), "it goes on once the database is back: {again}");
    cut_off.stop().await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'accepted' AND locked_by IS NULL").await, 1);
    s.publish().await;
    s.end_early().await;
}
