//! The ledger's statistics: correct in an example, limited to the caller's team, and zero for alarms if all is well.

use chrono::TimeDelta;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story};

use crate::execution::crashes::next_minute;
use crate::freezes::of_another_team;
use crate::process::{App, idle};
use crate::steps::{hourly, story_without_executor};

async fn stats(api: &Api, query: &str) -> Value {
    api.get(&format!("/api/v1/stats{query}")).await.expect(200).json
}

#[tokio::test]
async fn a_healthy_day_counts_no_failures() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    let reply = stats(&s.editor(), "").await;
    assert_eq!(reply["fire_delay"], json!({"count": 3, "p50_s": 0.0, "p95_s": 0.0, "max_s": 0}));
    assert_eq!((&reply["occurrences"]["fired"], &reply["executions"]["successful"]), (&json!(3), &json!(3)));
    assert_eq!(reply["executions"]["success_rate"], json!(1.0));
    for alarming in
        ["/occurrences/missed", "/occurrences/abandoned", "/executions/lost", "/recoveries/attempts", "/live_runs"]
    {
        assert_eq!(reply.pointer(alarming), Some(&json!(0)), "{alarming}");
    }
    assert_eq!(reply["oldest_unresolved"], Value::Null);
    assert_eq!(stats(&s.editor(), &format!("?workflow_id={id}&hours=1")).await["occurrences"]["fired"], json!(2));
    s.editor().get("/api/v1/stats?hours=0").await.refused(400, "invalid_field", Some("hours"));
    s.end().await;
}

#[tokio::test]
async fn missed_late_and_lost_runs_are_counted() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/15 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    s.execute(
        "UPDATE occurrences SET decision = 'missed', run_id = NULL WHERE scheduled_time = '2026-03-02T09:15:00Z'",
    )
    .await;
    s.execute("UPDATE occurrences SET lateness_s = 40 WHERE scheduled_time = '2026-03-02T09:30:00Z'").await;
    s.execute("UPDATE runs SET recoveries = 2 WHERE scheduled_time = '2026-03-02T09:45:00Z'").await;
    s.execute(
        "INSERT INTO runs_ended (id, workflow_id, trigger, state, scheduled_time, run_after, created_on, finished_on, recoveries)
         SELECT 'ffffffff-0000-7000-8000-000000000001', id, 'catch_up', 'abandoned', '2026-03-02T09:15:00Z', '2026-03-02T09:20:00Z',
                '2026-03-02T09:20:00Z', '2026-03-02T10:00:00Z', 3 FROM workflows",
    )
    .await;
    s.execute("UPDATE ledger SET watch_at = '2026-03-02T10:00:00Z'").await;
    let reply = stats(&s.editor(), &format!("?workflow_id={id}")).await;
    assert_eq!((&reply["occurrences"]["missed"], &reply["fire_delay"]["max_s"]), (&json!(1), &json!(40)));
    assert_eq!(
        reply["executions"],
        json!({"total": 6, "successful": 5, "lost": 1, "handed_over": 0, "cut_off": 0, "success_rate": 5.0 / 6.0})
    );
    let recoveries = json!({"attempts": 5, "successful": 1, "failed": 0, "abandoned": 1, "success_rate": 0.5});
    assert_eq!(reply["recoveries"], recoveries);
    assert_eq!(reply["ledger_lag_s"], json!(5 * 60), "ten minutes less the grace");
    let text = Api::without_key(s.url()).get("/metrics").await.expect(200).text;
    for line in [
        "cronbox_occurrences{decision=\"missed\"} 1",
        "cronbox_occurrences{decision=\"caught_up\"} 0",
        "cronbox_runs_lost 1",
        "cronbox_recovery_attempts 5",
        "cronbox_ledger_lag_seconds 300",
    ] {
        assert!(text.lines().any(|reply| reply == line), "{line} is not in\n{text}");
    }
    s.end_early().await;
}

#[tokio::test]
async fn a_team_sees_its_own_figures() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let team = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": team, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let stranger = Api::new(s.url(), key["key"].as_str().unwrap());
    assert_eq!(stats(&stranger, "").await["occurrences"]["fired"], json!(0));
    stranger.get(&format!("/api/v1/stats?workflow_id={id}")).await.refused(404, "not_found", None);
    assert_eq!(stats(&s.admin(), "").await["occurrences"]["fired"], json!(1));
    s.end().await;
}

/// What was counted and what the tables have, by minute, decision and state: rows of either that the other does not have.
const DIFFERENCES: &str = "
    WITH decided AS (
        SELECT w.team_id, date_trunc('minute', o.decided_on, 'UTC') AS minute, o.decision AS what,
               CASE o.decision WHEN 'fired' THEN rounded_lateness(o.lateness_s) ELSE 0 END AS late_s, count(*)::numeric AS times
          FROM occurrences o JOIN workflows w ON w.id = o.workflow_id GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT w.team_id, date_trunc('minute', r.finished_on, 'UTC'), r.state, -1, count(*)
          FROM runs r JOIN workflows w ON w.id = r.workflow_id WHERE r.finished_on IS NOT NULL GROUP BY 1, 2, 3
    ), counted AS (
        SELECT team_id, minute, what, late_s, sum(times) AS times
          FROM (SELECT team_id, minute, decision AS what, late_s, times FROM decision_minutes
                UNION ALL SELECT team_id, minute, decision, late_s, times FROM decision_sums WHERE team_id <> 0
                UNION ALL SELECT team_id, minute, state, -1, runs FROM run_end_minutes
                UNION ALL SELECT team_id, minute, state, -1, runs FROM run_end_sums WHERE team_id <> 0) AS c
         GROUP BY 1, 2, 3, 4 HAVING sum(times) <> 0
    )
    SELECT count(*) FROM ((TABLE decided EXCEPT TABLE counted) UNION ALL (TABLE counted EXCEPT TABLE decided)) AS d";

/// Sums of all teams that differ from the sums of the teams.
const UNEQUAL_SUMS: &str = "
    SELECT count(*) FROM (SELECT minute, decision, sum(times * CASE team_id WHEN 0 THEN -1 ELSE 1 END) AS times
                            FROM decision_sums GROUP BY 1, 2
                          UNION ALL
                          SELECT minute, state, sum(runs * CASE team_id WHEN 0 THEN -1 ELSE 1 END)
                            FROM run_end_sums GROUP BY 1, 2) AS s
     WHERE times <> 0";

/// Two instances decide, and one is killed between a decision and its answer; then decisions change.
#[tokio::test]
async fn counts_equal_the_rows_after_kills() {
    let s = idle().await;
    let mut workflows = Vec::new();
    for _ in 0..6 {
        workflows.push(s.create("* * * * *", "UTC").await);
    }
    let time = next_minute(&s);
    // Without slots, so that its last run does not wait for the end of its lease.
    let settings = [("CRONBOX_FAULT", "I2:3:kill"), ("CRONBOX_EXECUTOR_SLOTS", "0")];
    let (victim, other) = (App::with(&s.dsn(), &settings).await, App::start(&s.dsn(), None).await);
    let fire = |app: &App, wf: &WorkflowId| {
        let path = format!("/api/v1/cron/workflows/{wf}:invoke");
        app.runner(&s).request(reqwest::Method::POST, &path).json(&json!({ "scheduled_time": time })).send()
    };
    for wf in &workflows[3..] {
        assert_eq!(fire(&other, wf).await.unwrap().status(), 202);
    }
    let mut answered = 0;
    for wf in &workflows[..3] {
        answered += u32::from(fire(&victim, wf).await.is_ok());
    }
    assert_eq!(answered, 2, "the third decision is committed, and not answered");
    victim.assert_killed("I2").await;
    s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 6).await;
    assert_eq!(s.count(DIFFERENCES).await, 0);
    s.execute(
        "UPDATE occurrences SET decision = 'missed', run_id = NULL WHERE workflow_id = (SELECT min(id) FROM workflows)",
    )
    .await;
    assert_eq!(s.count(DIFFERENCES).await, 0);
    let began = stats(&s.editor(), "").await["occurrences"].clone();
    assert_eq!((&began["fired"], &began["missed"]), (&json!(5), &json!(1)));
    ledger::stats::add_up_minutes(&s.pool, s.clock.now() + TimeDelta::minutes(5)).await.unwrap();
    assert_eq!((s.count("SELECT count(*) FROM decision_minutes").await, s.count(UNEQUAL_SUMS).await), (0, 0));
    assert_eq!((s.count(DIFFERENCES).await, &stats(&s.editor(), "").await["occurrences"]), (0, &began));
    tokio::time::timeout(PATIENCE, other.stop()).await.expect("it does not stop");
    s.end_early().await;
}

/// The oldest statistic is a week long.
#[tokio::test]
async fn old_sums_are_removed() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    assert_eq!(s.job("statistics").await, app::jobs::Did::All("2 counts added up, 0 old sums removed".to_owned()));
    s.now_is("2026-03-10T09:10:00Z").await;
    assert_eq!(s.job("statistics").await, app::jobs::Did::All("0 counts added up, 4 old sums removed".to_owned()));
    s.end_early().await;
}

/// The counters of `/metrics` are made of these: the counts of both tables, by minute, of all teams.
#[tokio::test]
async fn minutes_have_the_same_counts_before_and_after_the_job() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:31:00Z").await;
    let from = "2026-03-02T09:00:00Z".parse().unwrap();
    let read = async || {
        let mut db = s.pool.acquire().await.unwrap();
        let decided = ledger::stats::read_decision_minutes(&mut db, from).await.unwrap();
        let ended = ledger::stats::read_end_minutes(&mut db, from).await.unwrap();
        let mut counts: Vec<_> = decided.iter().map(|one| (one.minute, one.what.as_str(), one.count)).collect();
        counts.extend(ended.iter().map(|one| (one.minute, one.what.as_str(), one.count)));
        counts.sort_unstable();
        counts
    };
    let counted = read().await;
    let minutes: Vec<String> =
        counted.iter().map(|(minute, what, count)| format!("{} {what} {count}", minute.format("%H:%M"))).collect();
    assert_eq!(minutes, ["09:00 fired 1", "09:00 succeeded 1", "09:30 fired 1", "09:30 succeeded 1"]);
    s.now_is("2026-03-02T09:40:00Z").await;
    s.job("statistics").await;
    assert_eq!(s.count("SELECT count(*) FROM decision_minutes").await, 0);
    assert_eq!(read().await, counted);
    s.end().await;
}

/// Each workflow and each run that has not ended is in one class.
#[tokio::test]
async fn the_present_state_counts_each_once() {
    let s = Story::with(StackOptions {
        now: Some("2026-03-02T09:00:00Z".parse().unwrap()),
        app: |config| config.executor_slots = 0,
        ..StackOptions::default()
    })
    .await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(s.create("0 3 * * *", "UTC").await);
    }
    for (wf, by) in [(ids[0], "cronbox"), (ids[1], "cronbox"), (ids[2], "client")] {
        let paused = "UPDATE workflows SET state = 'paused', paused_by = $2, revision = revision + 1 WHERE id = $1";
        sqlx::query(paused).bind(wf.0).bind(by).execute(&s.pool).await.unwrap();
    }
    for (wf, minutes) in [(ids[0], 9), (ids[3], 0), (ids[3], 2), (ids[4], 30), (ids[4], 90)] {
        let run = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
                   SELECT gen_random_uuid(), $1, 'manual', 'accepted', at, at FROM (SELECT cronbox_now() - make_interval(mins => $2)) AS t (at)";
        sqlx::query(run).bind(wf.0).bind(minutes).execute(&s.pool).await.unwrap();
    }
    let present = ledger::stats::read_present(&mut s.pool.acquire().await.unwrap()).await.unwrap();
    let (workflows, waiting) = (present.workflows, present.waiting);
    assert_eq!((workflows.active, workflows.paused_by_client, workflows.paused_by_cronbox), (2, 1, 2));
    assert_eq!((present.runs.accepted, present.runs.queued, present.runs.running), (5, 0, 0));
    let ages = [waiting.under_1m, waiting.under_5m, waiting.under_1h, waiting.over_1h];
    assert_eq!(ages, [1, 1, 1, 1], "a paused workflow's run does not wait for an executor");
    assert!((waiting.oldest_secs - 5_400.0).abs() < 1.0, "{}", waiting.oldest_secs);
    s.end_early().await;
}

/// What a freeze stops, a limit of the team holds back or was handed over for too long waits for no executor: the gauge would grow for as
/// long, and hide the runs of all other teams.
#[tokio::test]
async fn stopped_runs_wait_for_no_executor() {
    let s = story_without_executor("2026-03-02T09:00:00Z").await;
    let (frozen, busy, theirs) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await, of_another_team(&s).await);
    let run = "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
               SELECT gen_random_uuid(), $1, $2::text, 'accepted', CASE $2::text WHEN 'schedule' THEN at END, at, at
                 FROM (SELECT cronbox_now() - make_interval(mins => $3)) AS t (at)";
    for (wf, trigger, minutes) in [(frozen, "schedule", 70), (frozen, "manual", 50), (theirs, "schedule", 10)] {
        sqlx::query(run).bind(wf.0).bind(trigger).bind(minutes).execute(&s.pool).await.unwrap();
    }
    let oldest = async || {
        let present = ledger::stats::read_present(&mut s.pool.acquire().await.unwrap()).await.unwrap();
        format!("{:.0}", present.waiting.oldest_secs / 60.0)
    };
    assert_eq!(oldest().await, "70");
    s.editor().post("/api/v1/freezes", &json!({"reason": "night"})).await.expect(201);
    assert_eq!(oldest().await, "50", "a freeze stops no manual run");
    let running = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, started_on, attempt, locked_by, locked_at, lease_until)
                   SELECT gen_random_uuid(), $1, 'manual', 'running', now, now, now, 1, gen_random_uuid(), now, now + INTERVAL '2 minutes'
                     FROM (SELECT cronbox_now()) AS t (now)";
    sqlx::query(running).bind(busy.0).execute(&s.pool).await.unwrap();
    let limit = "INSERT INTO team_limits (team_id, running_runs) VALUES ($1, 1) ON CONFLICT (team_id) DO UPDATE SET running_runs = 1";
    sqlx::query(limit).bind(s.keys.team_id).execute(&s.pool).await.unwrap();
    assert_eq!(oldest().await, "10", "the run of another team is not hidden");
    s.execute("UPDATE runs SET handed_over_until = cronbox_now() - INTERVAL '1 second' WHERE state = 'accepted'").await;
    assert_eq!(oldest().await, "0");
    s.end_early().await;
}
