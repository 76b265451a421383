//! The database's clock decides, whatever an instance's own clock shows.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use local::stack::StackOptions;
use schedule::{Clock, WorkflowId};
use serde_json::{Value, json};
use tests::Story;

use crate::process::{App, idle};
use crate::receiver::{Receiver, accept, until_state};
use crate::steps::{claimed, fire, hourly, story_without_executor};

/// A stack on running clocks without an executor, whose database's clock is behind by `by`. Returns the database's
/// time.
async fn ahead_of_database(by: TimeDelta) -> (Story, DateTime<Utc>) {
    let app = |config: &mut app::Config| config.executor_slots = 0;
    let s = Story::with(StackOptions { app, ..StackOptions::default() }).await;
    let shown = (Clock::System.now() - by).duration_trunc(TimeDelta::minutes(1)).unwrap();
    s.set_database_clock(shown).await;
    (s, shown)
}

async fn every_minute(s: &Story) -> WorkflowId {
    s.create_with(json!({"cron_schedule": "* * * * *", "catch_up_policy": "run_all"})).await
}

/// The differences that the proof finds in a span.
async fn differences(s: &Story, from: DateTime<Utc>, to: DateTime<Utc>) -> Value {
    let at = |time: DateTime<Utc>| time.format("%FT%TZ").to_string();
    let found = s.admin().get(&format!("/api/v1/verify?from={}&to={}", at(from), at(to))).await.expect(200);
    found.json["differences"].clone()
}

/// Runs the watchdog, which decides all times that are due by the story's clock.
async fn watched(s: &Story) {
    s.job("watchdog").await;
}

const DECISIONS: &str = "SELECT count(*) FROM occurrences";

#[tokio::test]
async fn clock_ahead_decides_no_time_early() {
    for by in [TimeDelta::minutes(5), TimeDelta::hours(12)] {
        let (s, start) = ahead_of_database(by).await;
        every_minute(&s).await;
        // The first due time is in the minute of the creation or in the next one.
        s.set_database_clock(start + TimeDelta::seconds(299)).await;
        watched(&s).await;
        assert_eq!(s.count(DECISIONS).await, 0, "{by} ahead: nothing is older than the grace");
        s.set_database_clock(start + TimeDelta::seconds(361)).await;
        watched(&s).await;
        let late = "SELECT count(*) FROM occurrences WHERE lateness_s NOT BETWEEN 300 AND 361";
        assert!(s.count(DECISIONS).await > 0, "{by} ahead: due now");
        assert_eq!(s.count(late).await, 0, "{by} ahead: by the database's time");
        s.publish().await;
        s.end_early().await;
    }
}

#[tokio::test]
async fn clock_ahead_ends_no_run() {
    let (s, start) = {
        let s = Story::with(StackOptions {
            app: |config| (config.lost_after_secs, config.heartbeat_ms) = (24 * 60 * 60, 20),
            ..StackOptions::default()
        });
        let s = s.await;
        let start = (Clock::System.now() - TimeDelta::hours(12)).duration_trunc(TimeDelta::minutes(1)).unwrap();
        s.set_database_clock(start).await;
        (s, start)
    };
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "timeout_secs": 300})).await;
    let fired = s.editor().post(&format!("/api/v1/schedules/{wf}:fire"), &json!({})).await.expect(202);
    let id = fired.json["run_id"].as_str().unwrap().parse().unwrap();
    receiver.until(1).await;
    s.set_database_clock(start + TimeDelta::seconds(355)).await;
    // A run without a renewal after its timeout would count as lost, not as stuck.
    s.until("SELECT count(*) FROM runs WHERE locked_at = cronbox_now()", 1).await;
    s.job("timeouts").await;
    s.job("recovery").await;
    assert_eq!(crate::receiver::run(&s, id).await["state"], "running", "by the database's time it may go on");
    receiver.let_answer(1);
    let done = until_state(&s, id, "succeeded").await;
    assert_eq!(done["attempt"], 1);
    s.end().await;
}

#[tokio::test]
async fn clock_ahead_accepts_by_database_time() {
    let (s, start) = ahead_of_database(TimeDelta::hours(12)).await;
    let wf = every_minute(&s).await;
    let due = start + TimeDelta::minutes(1);
    s.set_database_clock(due + TimeDelta::seconds(5)).await;
    let time = due.format("%FT%TZ").to_string();
    assert_eq!(fire(&s, wf, &time).await, "accepted", "it is on time by the database's clock");
    let early = (due + TimeDelta::minutes(30)).format("%FT%TZ").to_string();
    assert_eq!(fire(&s, wf, &early).await, "503 clock_skew", "and the future by it");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn edit_of_clock_behind_follows_decisions() {
    let (s, start) = ahead_of_database(TimeDelta::seconds(-120)).await;
    let wf = every_minute(&s).await;
    let due = start + TimeDelta::minutes(1);
    s.set_database_clock(due + TimeDelta::seconds(5)).await;
    assert_eq!(fire(&s, wf, &due.format("%FT%TZ").to_string()).await, "accepted");
    s.edit(wf, json!({"cron_schedule": "0 0 1 1 *"})).await;
    s.set_database_clock(start + TimeDelta::minutes(20)).await;
    watched(&s).await;
    assert_eq!(differences(&s, start, start + TimeDelta::minutes(10)).await, json!([]));
    s.publish().await;
    s.end_early().await;
}

/// After a failover to a server whose clock is behind, the business clock goes back.
#[tokio::test]
async fn edit_after_clock_stepped_back_follows_decisions() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (fired, watched_through) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    s.now_is("2026-03-02T09:00:05Z").await;
    assert_eq!(fire(&s, fired, "2026-03-02T09:00:00Z").await, "accepted");
    s.now_is("2026-03-02T09:20:00Z").await;
    watched(&s).await;
    s.now_is("2026-03-02T08:59:30Z").await;
    s.edit(fired, json!({"cron_schedule": "30 * * * *"})).await;
    let decided: DateTime<Utc> = "2026-03-02T09:00:00Z".parse().unwrap();
    assert!(since_when(&s).await > decided, "existing decisions do not change");
    s.edit(watched_through, json!({"cron_schedule": "5,30 * * * *"})).await;
    s.now_is("2026-03-02T09:50:00Z").await;
    watched(&s).await;
    let (from, to) = ("2026-03-02T08:31:00Z".parse().unwrap(), "2026-03-02T09:40:00Z".parse().unwrap());
    assert_eq!(differences(&s, from, to).await, json!([]));
    s.end_early().await;
}

/// Since when the newest version is in force.
async fn since_when(s: &Story) -> DateTime<Utc> {
    let newest = "SELECT valid_from FROM schedule_versions ORDER BY revision DESC LIMIT 1";
    sqlx::query_scalar(newest).fetch_one(&s.pool).await.unwrap()
}

/// The time that was decided is hours after the edit, so only the statistics show that there may be one.
#[tokio::test]
async fn edit_after_hours_back_follows_decisions() {
    edit_hours_before_a_decision(Watchdog::Follows).await;
}

/// As above, and the watchdog last ran hours before the edit, so its cursor says nothing about the decision.
#[tokio::test]
async fn edit_after_hours_back_without_watchdog() {
    edit_hours_before_a_decision(Watchdog::Stands).await;
}

#[derive(PartialEq)]
enum Watchdog {
    Follows,
    Stands,
}

async fn edit_hours_before_a_decision(watchdog: Watchdog) {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let daily = s.create("0 12 * * *", "UTC").await;
    s.now_is("2026-03-02T11:59:58Z").await;
    if watchdog == Watchdog::Follows {
        watched(&s).await;
    }
    assert_eq!(fire(&s, daily, "2026-03-02T12:00:00Z").await, "accepted");
    s.now_is("2026-03-02T08:59:30Z").await;
    s.edit(daily, json!({"cron_schedule": "30 * * * *"})).await;
    let decided: DateTime<Utc> = "2026-03-02T12:00:00Z".parse().unwrap();
    assert_eq!(since_when(&s).await, decided + TimeDelta::microseconds(1), "existing decisions do not change");
    s.now_is("2026-03-02T13:10:00Z").await;
    watched(&s).await;
    let (from, to) = ("2026-03-02T08:31:00Z".parse().unwrap(), "2026-03-02T13:00:00Z".parse().unwrap());
    assert_eq!(differences(&s, from, to).await, json!([]));
    s.end_early().await;
}

/// After a failover to a server whose clock is behind, a publication and a run that were already due must not wait.
#[tokio::test]
async fn database_clock_stepped_back_delays_nothing() {
    let (s, start) = ahead_of_database(TimeDelta::minutes(5)).await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let id = accept(&s, wf).await;
    sqlx::query("UPDATE runs SET run_after = $1").bind(start).execute(&s.pool).await.unwrap();
    s.set_database_clock(start - TimeDelta::minutes(10)).await;
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) UTC ENABLED");
    let due = sqlx::query_scalar::<_, bool>("SELECT run_after <= cronbox_now() FROM runs WHERE id = $1");
    assert!(due.bind(id).fetch_one(&s.pool).await.unwrap());
    s.end_early().await;
}

/// A lease whose owner died with the old server must end after its own 60 s, not after the step and 60 s.
#[tokio::test]
async fn database_clock_stepped_back_prolongs_no_lease() {
    let (s, start) = ahead_of_database(TimeDelta::minutes(5)).await;
    let wf = s.create("0 9 * * *", "UTC").await;
    // The state after a publisher and an instance were killed.
    s.execute(
        "UPDATE publications SET lease_owner = 'x', lease_until = cronbox_now() + INTERVAL '60 seconds';
         INSERT INTO publishers (owner, live_until) VALUES ('x', cronbox_now() + INTERVAL '60 seconds');
         INSERT INTO sweeps (requested_by, requested_on, locked_by, locked_until)
         VALUES ('x', cronbox_now(), 'x', cronbox_now() + INTERVAL '60 seconds');
         INSERT INTO jobs (name, next_run, locked_by, locked_until)
         VALUES ('watchdog', cronbox_now(), gen_random_uuid(), cronbox_now() + INTERVAL '60 seconds')
         ON CONFLICT (name) DO UPDATE SET locked_by = excluded.locked_by, locked_until = excluded.locked_until",
    )
    .await;
    let stepped = start - TimeDelta::minutes(10);
    s.set_database_clock(stepped).await;
    let live = "SELECT (SELECT count(*) FROM publications WHERE lease_until > cronbox_now())
                     + (SELECT count(*) FROM publishers WHERE live_until > cronbox_now())
                     + (SELECT count(*) FROM sweeps WHERE locked_until > cronbox_now())
                     + (SELECT count(*) FROM jobs WHERE name = 'watchdog' AND locked_until > cronbox_now())";
    assert_eq!(s.count(live).await, 4, "an owner that lives keeps its lease");
    s.set_database_clock(stepped + TimeDelta::seconds(61)).await;
    assert_eq!(s.count(live).await, 0);
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) UTC ENABLED");
    s.end_early().await;
}

/// A run whose owner died with the old server is lost after its own lease, not after the step and the lease.
#[tokio::test]
async fn database_clock_stepped_back_prolongs_no_run() {
    let (s, start) = ahead_of_database(TimeDelta::minutes(5)).await;
    let wf = s.create("0 9 * * *", "UTC").await;
    accept(&s, wf).await;
    claimed(&s, wf).await;
    let stepped = start - TimeDelta::minutes(10);
    s.set_database_clock(stepped).await;
    let live = "SELECT count(*) FROM runs WHERE state = 'running' AND lease_until > cronbox_now()";
    assert_eq!(s.count(live).await, 1, "an owner that lives keeps its lease");
    s.set_database_clock(stepped + TimeDelta::seconds(121)).await;
    assert_eq!(s.count(live).await, 0);
    s.job("recovery").await;
    assert_eq!(s.runs(wf).await, "untimed manual accepted");
    s.publish().await;
    s.end_early().await;
}

/// The instance's clock is wrong from its start. It must register and take no jobs, but still accept fires and execute
/// runs.
#[tokio::test]
async fn large_skew_takes_no_jobs_but_serves() {
    let s = idle().await;
    let ahead = App::with(&s.dsn(), &[("CRONBOX_CLOCK_OFFSET_SECS", "300")]).await;
    let ready = ahead.runner(&s).get("/readyz").await.expect(200).json;
    assert_eq!(ready["takes_jobs"], false);
    assert!(ready["clock_skew_seconds"].as_f64().unwrap() > 200.0, "{ready}");
    let metrics = ahead.runner(&s).get("/metrics").await.expect(200).text;
    let shown = metrics.lines().find_map(|line| line.strip_prefix("cronbox_clock_skew_seconds ")).unwrap();
    assert!(shown.parse::<f64>().unwrap() > 200.0, "{metrics}");
    let wf = s.create_with(json!({"cron_schedule": "* * * * *"})).await;
    let id = accept(&s, wf).await;
    until_state(&s, id, "succeeded").await;
    let next = s.clock.now().duration_trunc(TimeDelta::minutes(1)).unwrap() + TimeDelta::minutes(1);
    let body = json!({ "scheduled_time": next });
    ahead.runner(&s).post(&format!("/api/v1/cron/workflows/{wf}:invoke"), &body).await.expect(202);
    assert_eq!(s.count("SELECT count(*) FROM jobs").await, 0, "it looked for jobs at its start, or not at all");
    ahead.stop().await;
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn small_skew_is_shown_and_takes_jobs() {
    let s = idle().await;
    let behind = App::with(&s.dsn(), &[("CRONBOX_CLOCK_OFFSET_SECS", "-10")]).await;
    let ready = behind.runner(&s).get("/readyz").await.expect(200).json;
    assert_eq!(ready["takes_jobs"], true);
    let skew = ready["clock_skew_seconds"].as_f64().unwrap();
    assert!((-11.0..-2.0).contains(&skew), "{ready}");
    s.until("SELECT count(*) FROM jobs WHERE run_count > 0 AND name = 'recovery'", 1).await;
    behind.stop().await;
    s.end().await;
}
