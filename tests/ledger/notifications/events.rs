//! Each event of a rule: written once, in the transaction that makes it.

use app::jobs::Did;
use notifications::condition::{ConditionCursors, Found, find_conditions};
use serde_json::json;
use tests::Story;

use super::team::{notifications, rule, send, texts, webhook};
use crate::catch_up::watchdog_races::WAITING;
use crate::database::query_plans::{one_connection, read_of};
use crate::receiver::{NOON, Receiver, accept, until_state};
use crate::steps::{session_without_limits, story_without_executor, wait_long_for_locks};

/// Where a channel of AWS leads.
const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:alerts";

/// A team with a channel that nothing is sent to in these stories.
async fn team() -> (Story, i64) {
    let s = Story::at(NOON).await;
    let channel = webhook(&s, &Receiver::kind().await).await;
    (s, channel)
}

#[tokio::test]
async fn an_automatic_pause_is_notified_at_once() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let channel = webhook(&s, &receiver).await;
    rule(&s, channel, json!({"event": "auto_paused"})).await;
    let action = Receiver::answering(&[(500, ""); 9]).await.action();
    let fields = json!({"name": "payroll", "action": action, "cron_schedule": "0 9 * * *", "pause_after_failures": 2});
    let workflow = s.create_with(fields).await;
    let other = s.create_with(json!({"name": "other", "cron_schedule": "0 9 * * *"})).await;
    s.pause(other).await;
    for _ in 0..2 {
        let run = accept(&s, workflow).await;
        until_state(&s, run, "failed").await;
    }
    s.until("SELECT count(*) FROM workflows WHERE paused_by = 'cronbox'", 1).await;
    s.now_is("2026-03-02T12:00:05Z").await;
    send(&s).await;
    let data = receiver.calls()[0]["data"].clone();
    assert_eq!(data["text"], "cronbox paused payroll: it failed 2 times in a row");
    let listed = |by: &str| format!("/api/v1/workflows?paused_by={by}&results=true");
    let names = async |by: &str| {
        let page = s.editor().get(&listed(by)).await.expect(200).json;
        page["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names("cronbox").await, names("client").await), (vec!["payroll".to_owned()], vec!["other".to_owned()]));
    let sorted = s.editor().get("/api/v1/workflows?paused_by=cronbox&sort=name&total=true").await.expect(200).json;
    assert_eq!((&sorted["total"], &sorted["items"][0]["paused_by"]), (&json!(1), &json!("cronbox")));
    // A trigger follows each write of the row.
    s.edit(workflow, json!({"description": "still paused", "cron_schedule": "1 9 * * *"})).await;
    assert_eq!(s.count("SELECT count(*) FROM notifications").await, 1, "only cronbox's own pause is an event");
    s.resume(workflow).await;
    assert_eq!(s.workflow(workflow).await["paused_by"], json!(null));
    s.end().await;
}

/// A success and failures of one workflow may end in one statement.
#[tokio::test]
async fn streaks_count_only_after_the_last_success() {
    let (s, channel) = team().await;
    for (event, threshold) in [("failures_in_a_row", 2), ("recovered", 2)] {
        rule(&s, channel, json!({"event": event, "threshold": threshold})).await;
    }
    let workflow = s.create_with(json!({"name": "payroll"})).await;
    let end = "INSERT INTO runs_ended (id, workflow_id, trigger, state, run_after, created_on, finished_on, error, team_id)
               SELECT gen_random_uuid(), $1, 'manual', state, cronbox_now(), cronbox_now(), cronbox_now() + minute * INTERVAL '1 minute',
                      'e', (SELECT team_id FROM workflows WHERE id = $1)
                 FROM unnest($2::text[]) WITH ORDINALITY AS ended (state, minute)";
    let ends = async |states: &[&str]| {
        let states: Vec<String> = states.iter().map(|state| (*state).to_owned()).collect();
        sqlx::query(end).bind(workflow.0).bind(states).execute(&s.pool).await.unwrap();
    };
    let failures = "SELECT COALESCE((SELECT failures FROM failure_streaks), 0)::bigint";
    ends(&["failed", "cancelled", "abandoned"]).await;
    assert_eq!(s.count(failures).await, 1, "cancelled and abandoned runs say nothing about the workflow");
    ends(&["succeeded", "failed"]).await;
    assert_eq!(s.count(failures).await, 1);
    assert_eq!(texts(&s).await.len(), 0, "one failure is less than the threshold");
    ends(&["failed", "timed_out", "failed"]).await;
    assert_eq!(s.count(failures).await, 4);
    ends(&["failed", "succeeded"]).await;
    assert_eq!(s.count(failures).await, 0);
    ends(&["succeeded"]).await;
    let events: Vec<String> =
        notifications(&s).await.iter().map(|one| one["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events, ["failures_in_a_row", "recovered"]);
    s.end_early().await;
}

#[tokio::test]
async fn an_outage_is_one_notification_per_workflow() {
    let (s, channel) = team().await;
    rule(&s, channel, json!({"event": "missed"})).await;
    let fields = json!({"name": "hourly", "cron_schedule": "0 * * * *", "timezone": "UTC", "catch_up_policy": "none"});
    s.create_with(fields).await;
    s.publish().await;
    s.now_is("2026-03-02T15:30:00Z").await;
    s.job("watchdog").await;
    let expected = "hourly did not run at 4 due times, 2026-03-02 12:00 UTC to 2026-03-02 15:00 UTC: \
                    no fire arrived in time, and the catch-up policy is none";
    assert_eq!(texts(&s).await, [expected]);
    s.job("watchdog").await;
    assert_eq!(texts(&s).await.len(), 1);
    s.end().await;
}

/// Each number is reached once, also if the first skip comes after another decision.
#[tokio::test]
async fn each_number_of_skips_is_notified() {
    let (s, channel) = team().await;
    for threshold in [1, 3, 3, 100] {
        rule(&s, channel, json!({"event": "skipped_overlap", "threshold": threshold})).await;
    }
    let receiver = Receiver::slow().await;
    let fields = json!({"name": "slow", "action": receiver.action(), "cron_schedule": "* * * * *", "timezone": "UTC"});
    let workflow = s.create_with(fields).await;
    s.publish().await;
    for minute in 1..=6 {
        let time = format!("2026-03-02T12:0{minute}:00Z");
        s.now_is(&time).await;
        s.invoke(workflow, &time).await;
        receiver.until(1).await;
    }
    let written =
        "SELECT EXTRACT(MINUTE FROM scheduled_time) || ': ' || (facts->>'times') FROM notifications ORDER BY 1";
    assert_eq!(s.table(written).await, "2: 1\n4: 3\n4: 3");
    receiver.let_answer(1);
    s.end().await;
}

#[tokio::test]
async fn skips_in_a_row_are_notified_once() {
    let (s, channel) = team().await;
    rule(&s, channel, json!({"event": "skipped_overlap", "threshold": 2})).await;
    let receiver = Receiver::slow().await;
    let fields = json!({"name": "slow", "action": receiver.action(), "cron_schedule": "* * * * *", "timezone": "UTC"});
    let workflow = s.create_with(fields).await;
    s.publish().await;
    for minute in 1..=5 {
        let time = format!("2026-03-02T12:0{minute}:00Z");
        s.now_is(&time).await;
        s.invoke(workflow, &time).await;
        receiver.until(1).await;
        let written = texts(&s).await.len();
        assert_eq!(written, usize::from(minute > 2), "{minute}");
    }
    assert_eq!(texts(&s).await, ["slow was skipped 2 times in a row, because a run before had not ended"]);
    receiver.let_answer(1);
    s.end().await;
}

#[tokio::test]
async fn long_conditions_are_notified_once() {
    let (s, channel) = team().await;
    let receiver = Receiver::slow().await;
    let fields =
        json!({"name": "slow", "action": receiver.action(), "cron_schedule": "0 9 * * *", "timeout_secs": 86400});
    let slow = s.create_with(fields).await;
    let paused = s.create_with(json!({"name": "paused", "cron_schedule": "0 9 * * *"})).await;
    s.publish().await;
    for (event, workflow) in
        [("run_long", None), ("paused_long", None), ("frozen_long", None), ("no_success", Some(slow))]
    {
        let mut fields = json!({"event": event, "after_secs": 3600});
        if let Some(workflow) = workflow {
            fields["workflow_id"] = json!(workflow);
        }
        rule(&s, channel, fields).await;
    }
    let run = accept(&s, slow).await;
    receiver.until(1).await;
    s.pause(paused).await;
    s.editor().post("/api/v1/freezes", &json!({"reason": "holiday"})).await.expect(201);
    s.now_is("2026-03-02T12:59:59Z").await;
    s.job("conditions").await;
    assert_eq!(texts(&s).await.len(), 0);
    s.now_is("2026-03-02T13:00:01Z").await;
    s.job("conditions").await;
    s.job("conditions").await;
    let all = texts(&s).await;
    assert_eq!(
        all,
        [
            "A run of slow has not ended 60 minutes after its start",
            "paused has been paused for more than 60 minutes",
            "The schedules have been frozen for more than 60 minutes: holiday",
            "slow has had no successful run for 60 minutes",
        ]
    );
    // A success ends the condition, and the next hour without one begins another.
    receiver.let_answer(1);
    until_state(&s, run, "succeeded").await;
    s.now_is("2026-03-02T13:30:00Z").await;
    s.job("conditions").await;
    assert_eq!(s.count("SELECT count(*) FROM notification_conditions").await, 0);
    s.now_is("2026-03-02T14:30:00Z").await;
    s.job("conditions").await;
    assert_eq!(texts(&s).await.len(), 5);
    s.end().await;
}

#[tokio::test]
async fn a_run_that_does_not_start_is_late() {
    let s = Story::with(local::stack::StackOptions {
        now: Some(NOON.parse().unwrap()),
        app: |config| config.executor_slots = 0,
        ..local::stack::StackOptions::default()
    })
    .await;
    let channel = webhook(&s, &Receiver::kind().await).await;
    rule(&s, channel, json!({"event": "run_late", "after_secs": 120})).await;
    let workflow = s.create_with(json!({"name": "payroll", "cron_schedule": "* * * * *", "timezone": "UTC"})).await;
    s.publish().await;
    s.now_is("2026-03-02T12:01:00Z").await;
    s.invoke(workflow, "2026-03-02T12:01:00Z").await;
    s.now_is("2026-03-02T12:03:00Z").await;
    s.job("conditions").await;
    assert_eq!(texts(&s).await, ["A run of payroll has not started 2 minutes after its time 2026-03-02 12:01 UTC"]);
    s.end_early().await;
}

/// Each team has a workflow and a rule about late runs.
const LATE_RULES: &str = "
    INSERT INTO workflows (team_id, name, action, revision, created_on, updated_on)
    SELECT id, 'late', '{\"type\": \"log\", \"message\": \"m\"}', 0, cronbox_now(), cronbox_now() FROM teams;
    INSERT INTO notification_rules (team_id, event, after_secs, group_secs, is_enabled, created_on, updated_on)
    SELECT id, 'run_late', 120, 0, true, cronbox_now(), cronbox_now() FROM teams";
/// The first team has so many late runs, and the second one has one.
const LATE_RUNS: &str = "
    INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
    SELECT gen_random_uuid(), w.id, 'schedule', 'accepted', n.due, n.due, n.due
      FROM workflows w,
           (SELECT nth, cronbox_now() - nth * INTERVAL '1 minute' - INTERVAL '1 hour' AS due FROM generate_series(1, $1) AS nth) AS n
     WHERE n.nth = 1 OR w.team_id = (SELECT min(id) FROM teams)";
/// The first team has 20 rules that are the same.
const MORE_RULES: &str = "
    INSERT INTO notification_rules (team_id, event, after_secs, group_secs, is_enabled, created_on, updated_on)
    SELECT team_id, event, after_secs, group_secs, is_enabled, created_on, updated_on
      FROM notification_rules, generate_series(1, 19)
     WHERE team_id = (SELECT min(id) FROM teams);
    ANALYZE";
/// The notifications of the second team.
const OF_THE_SECOND: &str = "SELECT count(*) FROM notifications WHERE team_id = (SELECT max(id) FROM teams)";

async fn late_runs(number: i32) -> Story {
    let s = story_without_executor(NOON).await;
    s.admin().post("/api/v1/teams", &json!({"name": "b"})).await.expect(201);
    s.execute(LATE_RULES).await;
    sqlx::query(LATE_RUNS).bind(number).execute(&mut session_without_limits(&s).await).await.unwrap();
    s
}

/// The runs of a backlog were notified by a pass before, so the next pass does not read them once more for each rule.
#[tokio::test]
async fn a_backlog_of_late_runs_is_read_in_parts() {
    let s = late_runs(12_000).await;
    s.execute(MORE_RULES).await;
    let (pool, cursors) = (one_connection(&s).await, ConditionCursors::default());
    let first = find_conditions(&pool, &cursors, s.clock.now()).await.unwrap();
    assert_eq!((first, s.count(OF_THE_SECOND).await), (Found { notifications: 10_001, failed: 0 }, 1));
    let before = read_of(&pool, "runs_live").await;
    find_conditions(&pool, &cursors, s.clock.now()).await.unwrap();
    let read = read_of(&pool, "runs_live").await - before;
    assert!(read < 6_000, "{read} entries of 12,001 runs");
    s.end_early().await;
}

#[tokio::test]
async fn each_late_run_of_a_backlog_is_notified() {
    let s = late_runs(12_000).await;
    let mut written = Vec::new();
    let cursors = ConditionCursors::default();
    for _ in 0..5 {
        written.push(find_conditions(&s.pool, &cursors, s.clock.now()).await.unwrap().notifications);
    }
    assert_eq!(written, [5_001, 5_000, 2_000, 0, 0]);
    s.execute("DELETE FROM notifications").await;
    assert_eq!(find_conditions(&s.pool, &cursors, s.clock.now()).await.unwrap().notifications, 2_001, "the end");
    assert_eq!(find_conditions(&s.pool, &cursors, s.clock.now()).await.unwrap().notifications, 5_000, "from the first");
    s.end_early().await;
}

/// The database refuses the notifications of the first team.
const ONE_TEAM_IS_NOT_NOTIFIED: &str = "
    CREATE FUNCTION refuse_notification() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.team_id = (SELECT min(id) FROM teams) THEN
            RAISE EXCEPTION 'not notified';
        END IF;
        RETURN NEW;
    END
    $$;
    CREATE TRIGGER refuse_notification BEFORE INSERT ON notifications FOR EACH ROW EXECUTE FUNCTION refuse_notification()";

#[tokio::test]
async fn conditions_of_a_failing_team_stop_no_other() {
    let s = late_runs(1).await;
    s.execute(ONE_TEAM_IS_NOT_NOTIFIED).await;
    let failed = s.try_job("conditions").await.unwrap_err();
    assert!(failed.to_string().starts_with("1 teams or channels failed"), "{failed:#}");
    assert_eq!(s.count(OF_THE_SECOND).await, 1);
    s.end_early().await;
}

#[tokio::test]
async fn the_day_before_is_verified_by_a_job() {
    let (s, channel) = team().await;
    rule(&s, channel, json!({"event": "verify_difference"})).await;
    let fields = json!({"name": "hourly", "cron_schedule": "0 * * * *", "timezone": "UTC", "catch_up_policy": "none"});
    s.create_with(fields).await;
    s.publish().await;
    s.now_is("2026-03-03T00:01:00Z").await;
    s.job("watchdog").await;
    s.job("verify").await;
    assert_eq!(
        s.count("SELECT count(*) FROM daily_verifications WHERE finished_on IS NOT NULL").await,
        0,
        "not settled"
    );
    s.now_is("2026-03-03T00:30:00Z").await;
    s.job("watchdog").await;
    s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T18:00Z'").await;
    s.job("verify").await;
    s.job("verify").await;
    let day =
        "SELECT due || ' due, ' || differences || ' differ' FROM daily_verifications WHERE finished_on IS NOT NULL";
    assert_eq!(s.table(day).await, "12 due, 1 differ");
    let days = s.admin().get("/api/v1/verify/days").await.expect(200).json;
    let listed: Vec<_> =
        days["items"].as_array().unwrap().iter().map(|day| (&day["day"], &day["differences"])).collect();
    assert_eq!(listed, [(&json!("2026-03-02"), &json!(1))]);
    assert_eq!(texts(&s).await, ["The ledger of hourly differs at 2026-03-02 18:00 UTC: missing"]);
    s.end_early().await;
}

/// A workflow of every hour whose lost times nothing catches up, on the day after its first one, which is verified.
async fn verified_first_day(s: &Story) {
    let fields = json!({"name": "hourly", "cron_schedule": "0 * * * *", "timezone": "UTC", "catch_up_policy": "none"});
    s.create_with(fields).await;
    s.publish().await;
    s.now_is("2026-03-03T00:30:00Z").await;
    s.job("watchdog").await;
    s.job("verify").await;
}

/// The job verifies each day that it has not verified, also those of an outage.
#[tokio::test]
async fn the_days_of_an_outage_are_verified_after_it() {
    let (s, _) = team().await;
    verified_first_day(&s).await;
    assert_eq!(s.job("verify").await, Did::Nothing, "until the next day has ended");
    s.now_is("2026-03-06T00:30:00Z").await;
    s.job("watchdog").await;
    s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-03T18:00Z'").await;
    while s.job("verify").await != Did::Nothing {}
    let days =
        "SELECT string_agg(day || ' ' || due || ' due ' || differences, ', ' ORDER BY day) FROM daily_verifications
                 WHERE finished_on IS NOT NULL";
    let found = "2026-03-02 12 due 0, 2026-03-03 24 due 1, 2026-03-04 24 due 0, 2026-03-05 24 due 0";
    assert_eq!(s.table(days).await, found);

    // An older instance, which knows only the day before, verified the last day first.
    s.execute("DELETE FROM daily_verifications WHERE day BETWEEN '2026-03-03' AND '2026-03-04'").await;
    while s.job("verify").await != Did::Nothing {}
    assert_eq!(s.table(days).await, found);

    // A day that was begun, and whose rows are pruned now, does not delay the others.
    s.execute("UPDATE daily_verifications SET finished_on = NULL WHERE day = '2026-03-04'").await;
    let pruned = "INSERT INTO prune_marks VALUES ('occurrences', '2026-03-05T00:00Z')
                  ON CONFLICT (subject) DO UPDATE SET pruned_before = excluded.pruned_before";
    s.execute(pruned).await;
    while s.job("verify").await != Did::Nothing {}
    let unproven = "SELECT count(*) FROM daily_verifications WHERE unproven = 1 AND finished_on IS NOT NULL";
    assert_eq!(s.count(unproven).await, 1);
    s.end_early().await;
}

/// Two turns of the job `verify`, both of which wait for what this statement has locked before either goes on. A turn keeps nothing in
/// its process, so they are those of two instances.
async fn verify_twice_behind(s: &Story, lock: &'static str) {
    let mut holder = session_without_limits(s).await;
    sqlx::raw_sql(lock).execute(&mut holder).await.unwrap();
    let release = async {
        s.until(WAITING, 2).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    };
    // A turn that fails ends the test.
    tokio::join!(s.job("verify"), s.job("verify"), release);
}

/// Both begin a day at once, and both have compared a day before either has stored it.
#[tokio::test]
async fn two_instances_verify_a_day_once() {
    let (s, channel) = team().await;
    rule(&s, channel, json!({"event": "verify_difference"})).await;
    verified_first_day(&s).await;
    s.now_is("2026-03-06T00:30:00Z").await;
    s.job("watchdog").await;
    s.execute("DELETE FROM occurrences WHERE scheduled_time IN ('2026-03-03T18:00Z', '2026-03-04T18:00Z')").await;
    wait_long_for_locks(&s).await;

    // Each of them waits to insert its row of the day.
    let begun = "BEGIN; INSERT INTO daily_verifications (day, started_on) VALUES ('2026-03-03', cronbox_now())";
    verify_twice_behind(&s, begun).await;
    // Each of them waits to store its part of the day.
    s.execute("INSERT INTO daily_verifications (day, started_on) VALUES ('2026-03-04', cronbox_now())").await;
    verify_twice_behind(&s, "BEGIN; SELECT FROM daily_verifications WHERE day = '2026-03-04' FOR UPDATE").await;

    let days = "SELECT string_agg(day || ' ' || due || ' due ' || differences, ', ' ORDER BY day)
                  FROM daily_verifications WHERE finished_on IS NOT NULL";
    assert_eq!(s.table(days).await, "2026-03-02 12 due 0, 2026-03-03 24 due 1, 2026-03-04 24 due 1");
    let differs = |day: &str| format!("The ledger of hourly differs at {day} 18:00 UTC: missing");
    assert_eq!(texts(&s).await, [differs("2026-03-03"), differs("2026-03-04")]);
    s.end_early().await;
}

#[tokio::test]
async fn an_edit_that_cannot_be_published_is_notified() {
    let (s, channel) = team().await;
    for event in ["sync_failed", "drift_repaired"] {
        rule(&s, channel, json!({"event": event})).await;
    }
    let workflow = s.create_with(json!({"name": "payroll", "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    s.publish().await;
    s.execute("UPDATE publications SET drift = 'changed', due_at = cronbox_now(), spec_hash = NULL").await;
    s.publish().await;
    assert_eq!(texts(&s).await, ["The schedule of payroll in EventBridge differed (changed) and is repaired"]);
    s.execute("UPDATE publications SET error_class = 'permanent', last_error = 'no such role', due_at = NULL").await;
    s.execute("UPDATE publications SET error_class = 'permanent', last_error = 'no such role'").await;
    assert_eq!(texts(&s).await[1..], [REFUSED]);
    s.edit(workflow, json!({"cron_schedule": "1 9 * * *"})).await;
    s.end().await;
}

/// What the team reads of it.
const REFUSED: &str = "EventBridge refuses the schedule of payroll: change its cron, timezone or dates, or ask an operator for the reason";
/// As AWS answers if a policy denies a call, for one of the workflows; and the publisher's own sentence, for the other one.
const FAILED: &str = "
    UPDATE publications SET error_class = 'permanent', due_at = NULL, last_error = 'User: arn:aws:sts::123456789012:assumed-role/p is not authorized'
     WHERE workflow_id = (SELECT id FROM workflows WHERE name = 'payroll');
    UPDATE publications SET error_class = 'permanent', due_at = NULL, last_error = 'the stored cron cannot be read: x'
     WHERE workflow_id = (SELECT id FROM workflows WHERE name = 'unreadable')";
/// The facts of the version before.
const FACTS_WITH_WORDS: &str = r#"
    UPDATE notifications SET facts = '{"error": "User: arn:aws:sts::123456789012:assumed-role/p is not authorized", "revision": 1}'
     WHERE NOT facts ? 'error'"#;

/// The words of EventBridge name the account and its roles. Neither a new row has them, nor what is shown and sent of an old one.
#[tokio::test]
async fn notifications_have_no_words_of_aws() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let channel = webhook(&s, &receiver).await;
    rule(&s, channel, json!({"event": "sync_failed", "group_secs": 0})).await;
    for name in ["payroll", "unreadable"] {
        s.create_with(json!({"name": name, "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    }
    s.publish().await;
    s.execute(FAILED).await;
    let facts = s.table("SELECT (facts - 'revision')::text FROM notifications ORDER BY id").await;
    let unreadable = r#"{"error": "the stored cron cannot be read: x", "error_class": "permanent"}"#;
    assert_eq!(facts, [r#"{"error_class": "permanent"}"#, unreadable].join("\n"));
    let shown = [REFUSED, "EventBridge refuses the schedule of unreadable: the stored cron cannot be read: x"];
    assert_eq!(texts(&s).await, shown);

    s.execute(FACTS_WITH_WORDS).await;
    assert_eq!(texts(&s).await, shown);
    send(&s).await;

    let sent = receiver.calls();
    let mut items: Vec<_> = sent.iter().flat_map(|one| one["data"]["notifications"].as_array().unwrap()).collect();
    items.sort_by_key(|item| item["id"].as_i64());
    let texts: Vec<_> = items.iter().map(|item| item["text"].as_str().unwrap()).collect();
    assert_eq!(texts, shown);
    let errors: Vec<_> = items.iter().map(|item| item["facts"]["error"].as_str().unwrap()).collect();
    let refused =
        "EventBridge refuses the schedule: change its cron, timezone or dates, or ask an operator for the reason";
    assert_eq!(errors, [refused, "the stored cron cannot be read: x"]);
    assert!(sent.iter().all(|message| !message.to_string().contains("arn:")), "{sent:?}");
    s.end_early().await;
}

/// A rule of a workflow is about no other one, and a rule of a team about no other team.
#[tokio::test]
async fn rules_are_about_their_workflow_and_team() {
    let (s, channel) = team().await;
    let failing = Receiver::answering(&[(500, ""); 9]).await.action();
    let one = s.create_with(json!({"name": "one", "action": failing})).await;
    let other = s.create_with(json!({"name": "other", "action": failing})).await;
    rule(&s, channel, json!({"event": "run_failed", "workflow_id": one})).await;
    let team = s.admin().post("/api/v1/teams", &json!({"name": "b"})).await.expect(201).id();
    let fields = json!({"team_id": team, "name": "n", "kind": "aws", "target_arn": TOPIC, "default_rules": true});
    let foreign = s.admin().post("/api/v1/notification-channels", &fields).await.expect(201).id();
    let defaults = s.admin().get(&format!("/api/v1/notification-rules?team_id={team}")).await.expect(200).json;
    assert_eq!(defaults["items"].as_array().unwrap().len(), 6);
    let refused = json!({"event": "run_failed", "channel_ids": [channel, foreign]});
    s.editor().post("/api/v1/notification-rules", &refused).await.refused(400, "invalid_field", Some("channel_ids"));
    for workflow in [one, other] {
        let run = accept(&s, workflow).await;
        until_state(&s, run, "failed").await;
    }
    let all = notifications(&s).await;
    assert_eq!(all.iter().map(|one| one["workflow_name"].clone()).collect::<Vec<_>>(), [json!("one")]);
    let path = format!("/api/v1/notifications/{}", all[0]["id"]);
    let mine = s.editor().post_empty(&format!("{path}:acknowledge")).await.expect(200).json;
    assert!(mine["acknowledged_by"].is_string());
    assert_eq!(s.editor().get("/api/v1/notifications?acknowledged=false").await.expect(200).json["items"], json!([]));
    s.end().await;
}
