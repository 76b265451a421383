//! Pruning: removes old rows in batches, but keeps rows that still guard against a fire of the past.

use app::jobs::Did;
use app::jobs::prune::Settings;
use chrono::{DateTime, TimeDelta, Utc};
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::json;
use tests::{CountingWay, Story};
use workflows::id::first_id_of;

use crate::backfills::requests::{ask, finished_backfill, morning, outage};
use crate::catch_up::watchdog_races::WAITING;
use crate::database::query_plans::{one_connection, read_of};
use crate::steps::{fire, session_without_limits};

const NOW: &str = "2026-06-01T00:00:00Z";
const SETTINGS: Settings = Settings { outbox_days: 7, outbox_failed_days: 30, retention_days: 90, audit_days: 400 };

async fn story() -> Story {
    let now = Some("2026-01-01T00:00:00Z".parse().unwrap());
    let s = Story::with(StackOptions { now, app: |config| config.executor_slots = 0, ..StackOptions::default() }).await;
    s.publish().await;
    s
}

/// Inserts occurrences that were decided this many days before [`NOW`].
async fn occurrences(s: &Story, workflow: WorkflowId, ages: &[i64]) {
    let decided = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
                   VALUES (gen_random_uuid(), $1, $2, 'fired', gen_random_uuid(), 0, $2, $2, $2)";
    for age in ages {
        let time = NOW.parse::<DateTime<Utc>>().unwrap() - TimeDelta::days(*age);
        sqlx::query(decided).bind(workflow.0).bind(time).execute(&s.pool).await.unwrap();
    }
}

/// The ages of the remaining occurrences in days before [`NOW`].
async fn ages(s: &Story) -> String {
    s.table("SELECT EXTRACT(DAY FROM '2026-06-01T00:00:00Z' - scheduled_time)::text FROM occurrences ORDER BY 1").await
}

fn removed(outbox: u64, runs: u64, occurrences: u64, disagreements: u64) -> Did {
    Did::All(format!(
        "old rows removed: {outbox} outbox rows, {runs} runs, {occurrences} occurrences, {disagreements} disagreements, \
         0 schedule versions, 0 backfills, 0 publications"
    ))
}

async fn watched_up_to_now(s: &Story) {
    s.execute("UPDATE ledger SET cursor = '2026-06-01T00:00:00Z'").await;
}

#[tokio::test]
async fn prune_removes_old_occurrences_except_the_newest() {
    let s = story().await;
    let [busy, idle] = [s.create("0 0 * * *", "UTC").await, s.create("0 0 * * *", "UTC").await];
    occurrences(&s, busy, &[100, 91, 89, 1]).await;
    occurrences(&s, idle, &[140, 130]).await;
    s.now_is(NOW).await;
    watched_up_to_now(&s).await;
    let said = removed(0, 0, 3, 0);
    assert_eq!(s.job("prune").await, said);
    assert_eq!(ages(&s).await, "1\n130\n89");
    assert_eq!(s.job("prune").await, Did::Nothing);
    s.publish().await;
    s.end().await;
}

/// A dead letter may repeat it for 14 days, and a late fire within the catch-up window.
#[tokio::test]
async fn occurrences_stay_while_their_fire_may_repeat() {
    let s = Story::with(StackOptions {
        now: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        app: |config| {
            config.executor_slots = 0;
            config.retention_days = 1;
        },
        ..StackOptions::default()
    })
    .await;
    let usual = s.create("0 0 * * *", "UTC").await;
    let long = s.create_with(json!({"cron_schedule": "0 0 * * *"})).await;
    // A longer retention permitted this window.
    s.execute("UPDATE workflows SET catch_up_window_secs = 2592000 WHERE id = (SELECT max(id) FROM workflows)").await;
    occurrences(&s, usual, &[17, 16, 14, 0]).await;
    occurrences(&s, long, &[33, 32, 30, 17, 0]).await;
    s.now_is(NOW).await;
    // The watchdog has not passed these times, and would record removed ones as missed.
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 9);
    watched_up_to_now(&s).await;
    s.job("prune").await;
    let left = "SELECT count(*) FROM occurrences WHERE workflow_id = (SELECT min(id) FROM workflows)";
    assert_eq!(s.count(left).await, 2, "15 days at the least: dead letters are kept for 14");
    assert_eq!(ages(&s).await, "0\n0\n14\n17\n30");
    s.publish().await;
    s.end().await;
}

/// The time may have run, so its fire is declined.
#[tokio::test]
async fn fires_of_pruned_times_decide_nothing() {
    let s = Story::with(StackOptions {
        now: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        app: |config| config.retention_days = 20,
        ..StackOptions::default()
    })
    .await;
    let wf = s.create("0 0 * * *", "UTC").await;
    occurrences(&s, wf, &[25, 0]).await;
    s.now_is(NOW).await;
    watched_up_to_now(&s).await;
    s.job("prune").await;
    assert_eq!(ages(&s).await, "0");
    assert_eq!(fire(&s, wf, "2026-05-07T00:00:00Z").await, "too_old", "it may have run, 25 days ago");
    assert_eq!(ages(&s).await, "0", "unknown, so nothing is claimed");
    s.publish().await;
    s.end().await;
}

/// After a prune, a longer catch-up window must not reach times whose rows are removed.
#[tokio::test]
async fn times_older_than_the_retention_never_run() {
    let s = Story::with(StackOptions {
        now: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        app: |config| config.retention_days = 15,
        ..StackOptions::default()
    })
    .await;
    let wf = s.create_with(json!({"cron_schedule": "0 0 * * *", "catch_up_policy": "run_all"})).await;
    occurrences(&s, wf, &[16, 0]).await;
    s.now_is(NOW).await;
    watched_up_to_now(&s).await;
    s.job("prune").await;
    assert_eq!(ages(&s).await, "0");
    let (path, raised) = (format!("/api/v1/workflows/{wf}"), json!({"catch_up_window_secs": 30 * 24 * 3600}));
    s.editor().patch(&path, &raised).await.refused(400, "invalid_field", Some("catch_up_window_secs"));
    // A longer retention permitted this window.
    s.execute("UPDATE workflows SET catch_up_window_secs = 2592000").await;
    s.editor().patch(&path, &json!({"name": "other"})).await.expect(200);
    assert_eq!(fire(&s, wf, "2026-05-16T00:00:00Z").await, "too_old", "16 days ago it may have run");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    assert_eq!(fire(&s, wf, "2026-05-17T00:00:00Z").await, "accepted", "exactly as old as the retention");
    s.publish().await;
    s.end().await;
}

/// Published rows are removed after a week, failed rows and ended runs after 90 days.
#[tokio::test]
async fn outbox_rows_and_runs_have_own_retentions() {
    let s = story().await;
    let wf = s.create("0 0 * * *", "UTC").await;
    s.publish().await;
    let rows = "INSERT INTO outbox_events (aggregate_type, aggregate_id, op, created_on, processed_on, failed_on)
                SELECT 'workflow', $1, 'upsert', at, CASE WHEN failed THEN NULL ELSE at END, CASE WHEN failed THEN at END
                  FROM unnest(ARRAY[6, 8, 89, 91]) AS days,
                       LATERAL (SELECT '2026-06-01T00:00:00Z'::timestamptz - make_interval(days => days) AS at) AS t,
                       unnest(ARRAY[true, false]) AS failed";
    sqlx::query(rows).bind(wf.0).execute(&s.pool).await.unwrap();
    let runs = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on)
                SELECT gen_random_uuid(), $1, 'manual', CASE WHEN ended THEN 'succeeded' ELSE 'queued' END, at, at, CASE WHEN ended THEN at END
                  FROM unnest(ARRAY[89, 91]) AS days,
                       LATERAL (SELECT '2026-06-01T00:00:00Z'::timestamptz - make_interval(days => days) AS at) AS t,
                       unnest(ARRAY[true, false]) AS ended";
    sqlx::query(runs).bind(wf.0).execute(&s.pool).await.unwrap();
    s.now_is(NOW).await;
    // The row of the creation is old, too.
    let said = removed(5, 1, 0, 0);
    assert_eq!(s.job("prune").await, said);
    assert_eq!(s.count("SELECT count(*) FROM outbox_events WHERE failed_on IS NOT NULL").await, 3);
    assert_eq!(s.count("SELECT count(*) FROM outbox_events WHERE processed_on IS NOT NULL").await, 1);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'queued'").await, 2, "what has not ended stays");
    s.end_early().await;
}

#[tokio::test]
async fn prune_removes_a_backlog_in_turns() {
    let s = story().await;
    let wf = s.create("0 0 * * *", "UTC").await;
    s.publish().await;
    // Of so many random ids, one may belong to a day that has a partition.
    let runs = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on)
                SELECT (left($3::text, 24) || lpad(to_hex(n), 12, '0'))::uuid, $1, 'manual', 'succeeded', $2, $2, $2
                  FROM generate_series(1, 20500) AS n";
    let now = s.clock.now();
    let mut session = session_without_limits(&s).await;
    sqlx::query(runs).bind(wf.0).bind(now).bind(first_id_of(now).to_string()).execute(&mut session).await.unwrap();
    s.now_is(NOW).await;
    assert!(matches!(s.job("prune").await, Did::Some(_)), "the next turn is at once");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 500);
    assert!(matches!(s.job("prune").await, Did::All(_)));
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    s.end().await;
}

/// 09:00 in Vancouver is 16:00 UTC.
#[tokio::test]
async fn disagreements_go_after_the_retention() {
    let s = story().await;
    let wf = s.create("0 9 * * *", "America/Vancouver").await;
    let disagreements = "SELECT count(*) FROM fire_disagreements";
    for time in ["2026-03-20T17:00:00Z", "2026-03-22T17:00:00Z"] {
        s.now_is(time).await;
        let path = format!("/api/v1/cron/workflows/{wf}:invoke");
        let fire = json!({"scheduled_time": time, "revision": 1});
        assert_eq!(s.scheduler_key().post(&path, &fire).await.expect(200).json["reason"], "not_due");
    }
    assert_eq!(s.count(disagreements).await, 2);
    // 91 and 89 days after the fires.
    s.now_is("2026-06-19T18:00:00Z").await;
    assert_eq!(s.job("prune").await, removed(0, 0, 0, 1));
    assert_eq!(s.count(disagreements).await, 1);
    s.end_early().await;
}

/// The zone data of a past time are kept as long as the time itself, and the newest data always.
#[tokio::test]
async fn zone_data_go_after_the_retention() {
    let s = story().await;
    s.execute(
        "DELETE FROM zone_changes;
         DELETE FROM zone_data;
         INSERT INTO zone_data (version, archive) VALUES ('2025a', ''), ('2025b', ''), ('2025c', '');
         INSERT INTO zone_changes (version, in_force_from)
         VALUES ('2025a', '2025-01-01Z'), ('2025b', '2025-07-01Z'), ('2025c', '2026-03-01Z'), ('2025b', '2026-05-01Z')",
    )
    .await;
    let left = "SELECT string_agg(version, ' ' ORDER BY id) FROM zone_changes";
    s.now_is("2026-05-29T00:00:00Z").await;
    s.job("prune").await;
    assert_eq!(s.table(left).await, "2025b 2025c 2025b", "2025b was in force 90 days ago");
    s.now_is("2026-12-01T00:00:00Z").await;
    s.job("prune").await;
    assert_eq!(s.table(left).await, "2025b");
    assert_eq!(s.table("SELECT string_agg(version, ' ') FROM zone_data").await, "2025b");
    s.end_early().await;
}

/// The runs and occurrences of a workflow.
async fn count_rows(s: &Story, workflow: WorkflowId) -> i64 {
    let rows = "SELECT (SELECT count(*) FROM runs WHERE workflow_id = $1)
                     + (SELECT count(*) FROM occurrences WHERE workflow_id = $1)";
    sqlx::query_scalar(rows).bind(workflow.0).fetch_one(&s.pool).await.unwrap()
}

/// A delete answers at once, however many rows there are; the job removes them in batches, and then the tombstone.
#[tokio::test]
async fn rows_of_deleted_workflows_are_removed_later() {
    let s = story().await;
    let (deleted, kept) = (s.create("0 0 * * *", "UTC").await, s.create("0 0 * * *", "UTC").await);
    for wf in [deleted, kept] {
        let rows = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
                    SELECT gen_random_uuid(), $1, time, 'fired', gen_random_uuid(), 0, time, time, time
                      FROM generate_series('2026-01-01T00:00:00Z'::timestamptz, '2026-01-01T23:59:00Z', INTERVAL '1 min') AS time";
        sqlx::query(rows).bind(wf.0).execute(&s.pool).await.unwrap();
        let runs = "INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, finished_on)
                    SELECT run_id, workflow_id, id, 'schedule', 'succeeded', scheduled_time, scheduled_time, scheduled_time, scheduled_time
                      FROM occurrences WHERE workflow_id = $1";
        sqlx::query(runs).bind(wf.0).execute(&s.pool).await.unwrap();
    }
    s.delete(deleted).await;
    assert_eq!(count_rows(&s, deleted).await, 2 * 1_440, "the delete itself removes none");
    let listed = s.editor().get("/api/v1/runs?limit=200").await.expect(200).json;
    let mut listed = listed["items"].as_array().unwrap().iter();
    assert!(listed.all(|run| run["workflow_id"] == json!(kept.0)), "nor does a list show them");
    s.job("prune").await;
    assert_eq!(count_rows(&s, deleted).await, 0);
    assert_eq!(count_rows(&s, kept).await, 2 * 1_440);
    assert_eq!(s.count("SELECT count(*) FROM deleted_workflows").await, 0);
    assert_eq!(s.count("SELECT pruned_workflow_id FROM database_identity").await, deleted.0, "its id stays known");
    s.publish().await;
    s.end_early().await;
}

/// A team deletes 250 workflows: one turn removes the rows of all of them, and checks each once.
#[tokio::test]
async fn a_turn_removes_many_deleted_workflows() {
    let s = story().await;
    s.execute(
        "INSERT INTO workflows (team_id, name, action, created_on, updated_on)
         SELECT 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', now(), now() FROM generate_series(1, 250) n;
         INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), id, '2026-01-01T00:00:00Z', 'missed', 0, '2026-01-01T00:05:00Z', '2026-01-01T00:05:00Z', '2026-01-01T00:05:00Z'
           FROM workflows;
         DELETE FROM workflows",
    )
    .await;
    let way = CountingWay::to(&s.dsn()).await;
    let pool = db::connect_pool(&app::config::database_options(&way.dsn(&s.dsn()), 2)).await.unwrap();
    way.take_rows();
    let pass = app::jobs::prune::remove_old_rows(&pool, SETTINGS, s.clock.now()).await.unwrap();
    let rows = way.take_rows();
    assert_eq!((pass.occurrences, pass.may_be_more), (250, false));
    assert_eq!(s.count("SELECT count(*) FROM deleted_workflows").await, 0);
    assert_eq!(rows["find_deleted"].statements, 4, "three batches, and the end");
    pool.close().await;
    s.end_early().await;
}

/// An operator inserts a deleted workflow again, with its old id.
#[tokio::test]
async fn workflows_put_back_keep_their_rows() {
    let s = story().await;
    let wf = s.create("0 0 * * *", "UTC").await;
    occurrences(&s, wf, &[1]).await;
    s.execute("INSERT INTO deleted_workflows SELECT id, now() FROM workflows").await;
    s.now_is(NOW).await;
    s.job("prune").await;
    assert_eq!(ages(&s).await, "1");
    assert_eq!(s.count("SELECT count(*) FROM deleted_workflows").await, 0, "its runs are listed again");
    s.publish().await;
    s.end_early().await;
}

/// A recovery has locked a run and then changes its occurrence, while a client deletes the workflow.
#[tokio::test]
async fn deletes_and_recoveries_do_not_deadlock() {
    let s = story().await;
    let wf = s.create("0 0 * * *", "UTC").await;
    s.now_is("2026-01-02T00:00:05Z").await;
    assert_eq!(fire(&s, wf, "2026-01-02T00:00:00Z").await, "accepted");
    let mut recovery = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT 1 FROM runs FOR UPDATE").execute(&mut *recovery).await.unwrap();
    let recovering = async {
        s.until(WAITING, 1).await;
        let change = "UPDATE occurrences SET updated_on = updated_on";
        sqlx::query(change).execute(&mut *recovery).await.expect("the delete has locked no occurrence");
        recovery.commit().await.unwrap();
    };
    tokio::join!(s.delete(wf), recovering);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'cancelled'").await, 1);
    s.publish().await;
    s.end_early().await;
}

/// 15,000 workflows have one old occurrence each, which stays. A turn reads them in windows, each of them once.
#[tokio::test]
async fn kept_occurrences_are_read_once() {
    let s = story().await;
    s.execute_long(
        "INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on, watch_at)
         SELECT 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', '0 0 * * *', 1, now(), now(), '2026-06-01T00:00:00Z'
           FROM generate_series(1, 15000) n;
         INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), id, '2026-01-01T00:00:00Z', 'missed', 0, '2026-01-01T00:05:00Z', '2026-01-01T00:05:00Z', '2026-01-01T00:05:00Z'
           FROM workflows",
    )
    .await;
    s.now_is(NOW).await;
    let way = CountingWay::to(&s.dsn()).await;
    let pool = db::connect_pool(&app::config::database_options(&way.dsn(&s.dsn()), 2)).await.unwrap();
    way.take_rows();
    let pass = app::jobs::prune::remove_old_rows(&pool, SETTINGS, s.clock.now()).await.unwrap();
    let rows = way.take_rows();
    assert_eq!((pass.occurrences, pass.may_be_more), (0, false));
    assert_eq!(rows["advance_window"].statements, 3, "two windows, and the end");
    assert_eq!(rows["remove old occurrences"].statements, 2);
    pool.close().await;
    s.end_early().await;
}

#[tokio::test]
async fn publications_of_deleted_workflows_are_removed() {
    let s = story().await;
    let (deleted, _kept) = (s.create("0 0 * * *", "UTC").await, s.create("0 0 * * *", "UTC").await);
    s.publish().await;
    s.delete(deleted).await;
    s.publish().await;
    s.now_is("2026-03-20T00:00:00Z").await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM publications").await, 2, "a late request may still create the schedule");
    s.now_is(NOW).await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM publications").await, 1);
    assert_eq!(fire(&s, deleted, NOW).await, "410 workflow_gone");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn versions_without_kept_times_are_removed() {
    let s = story().await;
    let wf = s.create("0 0 * * *", "UTC").await;
    for (now, cron) in [("2026-01-10T12:00:00Z", "0 1 * * *"), ("2026-05-20T12:00:00Z", "0 2 * * *")] {
        s.now_is(now).await;
        s.edit(wf, json!({"cron_schedule": cron})).await;
    }
    let versions = "SELECT string_agg(cron, ', ' ORDER BY revision) FROM schedule_versions";
    s.now_is(NOW).await;
    s.job("prune").await;
    assert_eq!(s.table(versions).await, "0 0 * * *, 0 1 * * *, 0 2 * * *", "the watchdog still needs them");
    watched_up_to_now(&s).await;
    s.job("prune").await;
    assert_eq!(s.table(versions).await, "0 1 * * *, 0 2 * * *", "the second one was in force 90 days ago");
    s.publish().await;
    s.end_early().await;
}

/// 20,000 versions of yesterday stay for 89 more days, and no turn until then reads them.
#[tokio::test]
async fn kept_versions_are_not_read() {
    let s = story().await;
    s.create("0 0 * * *", "UTC").await;
    s.now_is(NOW).await;
    watched_up_to_now(&s).await;
    s.execute_long(
        "INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1 + n, '2026-05-31T00:00:00Z'::timestamptz + n * INTERVAL '1 s', '0 0 * * *', 'active'
           FROM workflows, generate_series(1, 20000) AS n;
         ANALYZE schedule_versions",
    )
    .await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "schedule_versions").await;
    let pass = app::jobs::prune::remove_old_rows(&pool, SETTINGS, s.clock.now()).await.unwrap();
    let read = read_of(&pool, "schedule_versions").await - before;
    assert_eq!((pass.versions, pass.may_be_more), (0, false));
    assert!(read < 100, "{read} versions and index entries");
    pool.close().await;
    s.end_early().await;
}

/// A turn removes a bounded number of versions of one workflow, and the next turn follows at once.
#[tokio::test]
async fn many_old_versions_are_removed_in_turns() {
    let s = story().await;
    s.create("0 0 * * *", "UTC").await;
    s.now_is(NOW).await;
    watched_up_to_now(&s).await;
    s.execute_long(
        "INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1 + n, '2026-01-02T00:00:00Z'::timestamptz + n * INTERVAL '1 s', '0 0 * * *', 'active'
           FROM workflows, generate_series(1, 205000) AS n",
    )
    .await;
    assert!(matches!(s.job("prune").await, Did::Some(_)), "the next turn is at once");
    assert_eq!(s.count("SELECT count(*) FROM schedule_versions").await, 1 + 5_000);
    assert!(matches!(s.job("prune").await, Did::All(_)));
    assert_eq!(s.count("SELECT revision FROM schedule_versions").await, 205_001, "it was in force 90 days ago");
    s.end_early().await;
}

/// Versions that cannot be removed keep no other rows, and the turn fails at its end.
#[tokio::test]
async fn a_failing_statement_stops_no_other_prune() {
    let s = story().await;
    let wf = s.create("0 0 * * *", "UTC").await;
    s.now_is("2026-01-10T12:00:00Z").await;
    s.edit(wf, json!({"cron_schedule": "0 1 * * *"})).await;
    s.execute(
        "CREATE FUNCTION refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no removal'; END $$;
         CREATE TRIGGER refuse_removal BEFORE DELETE ON schedule_versions FOR EACH ROW EXECUTE FUNCTION refuse_removal();
         CREATE TRIGGER refuse_removal BEFORE DELETE ON run_attempts FOR EACH ROW EXECUTE FUNCTION refuse_removal();
         INSERT INTO run_attempts (run_id, attempt, ended_on, outcome)
         VALUES ('019b0000-0000-7000-8000-000000000001', 1, '2026-01-10T12:00:00Z', 'lost');
         INSERT INTO idempotency_keys (actor, key_hash, request_hash, created_on)
         VALUES ('a', sha256('k'), sha256('r'), '2026-01-10T12:00:00Z');
         INSERT INTO freezes (id, reason, starts_on, ends_on, actor, created_on)
         VALUES (gen_random_uuid(), 'r', '2026-01-10T12:00:00Z', '2026-01-10T13:00:00Z', 'a', '2026-01-10T12:00:00Z')",
    )
    .await;
    s.now_is(NOW).await;
    watched_up_to_now(&s).await;

    let failed = s.try_job("prune").await.unwrap_err();

    assert!(format!("{failed:#}").contains("not these: attempts, schedule versions"), "{failed:#}");
    let left = "SELECT (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM freezes)";
    assert_eq!(s.count(left).await, 0);
    s.execute("DROP TRIGGER refuse_removal ON schedule_versions; DROP TRIGGER refuse_removal ON run_attempts").await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM run_attempts").await, 0);
    assert_eq!(s.table("SELECT cron FROM schedule_versions").await, "0 1 * * *");
    s.publish().await;
    s.end().await;
}

/// Of each table more old rows than a turn removed before; what a turn leaves, the next one removes at once.
#[tokio::test]
async fn no_table_keeps_a_backlog_of_old_rows() {
    let s = story().await;
    s.create("0 0 * * *", "UTC").await;
    s.execute_long(
        "INSERT INTO bulk_operations (id, team_id, verb, state, total, processed, actor, created_on, finished_on)
         SELECT ('019b0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 1, 'pause', 'finished', 500, 500, 'a',
                '2026-01-01T00:00:00Z', '2026-01-01T00:10:00Z'
           FROM generate_series(1, 30) AS n;
         INSERT INTO bulk_items (operation_id, nth, workflow_id, outcome)
         SELECT id, nth, 1, 'done' FROM bulk_operations, generate_series(1, 500) AS nth;
         INSERT INTO run_attempts (run_id, attempt, ended_on, outcome)
         SELECT ('019b0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 1, '2026-01-01T00:00:00Z', 'failed'
           FROM generate_series(1, 25000) AS n;
         INSERT INTO idempotency_keys (actor, key_hash, request_hash, created_on)
         SELECT 'a', sha256(n::text::bytea), sha256('r'), '2026-01-01T00:00:00Z' FROM generate_series(1, 105000) AS n;
         INSERT INTO console_sessions (id, digest, issuer, subject, created_on, expires_on)
         SELECT gen_random_uuid(), sha256(n::text::bytea), 'i', 's', '2026-01-01T00:00:00Z', '2026-01-01T12:00:00Z'
           FROM generate_series(1, 2500) AS n;
         INSERT INTO freezes (id, reason, starts_on, ends_on, actor, created_on)
         SELECT gen_random_uuid(), 'r', '2026-01-01T00:00:00Z', '2026-01-01T00:10:00Z', 'a', '2026-01-01T00:00:00Z'
           FROM generate_series(1, 2500);
         INSERT INTO backfills (id, workflow_id, start_at, end_at, run_order, only_decided, max_concurrent, state, total,
                                requested_by, created_on, updated_on, finished_on)
         SELECT gen_random_uuid(), id, '2025-12-01T00:00:00Z', '2025-12-02T00:00:00Z', 'oldest_first', 'missing', 1,
                'finished', 0, 'a', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z'
           FROM workflows, generate_series(1, 20500);
         INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state, created_on)
         SELECT 1, 1, 'run_failed', n::text, '2026-01-01T00:00:00Z', 'routed', '2026-01-01T00:00:00Z'
           FROM generate_series(1, 25000) AS n;
         INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, created_on)
         SELECT ('019b0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 1, 1, 'run_failed', 1, 'sent',
                '2026-01-01T00:00:00Z'
           FROM generate_series(1, 25000) AS n",
    )
    .await;
    s.now_is(NOW).await;
    assert!(matches!(s.job("prune").await, Did::Some(_)), "the next turn is at once");
    while let Did::Some(_) = s.job("prune").await {}
    let left = "SELECT (SELECT count(*) FROM bulk_operations) || ' ' || (SELECT count(*) FROM bulk_items) || ' '
                       || (SELECT count(*) FROM run_attempts) || ' ' || (SELECT count(*) FROM idempotency_keys) || ' '
                       || (SELECT count(*) FROM console_sessions) || ' ' || (SELECT count(*) FROM freezes) || ' '
                       || (SELECT count(*) FROM backfills) || ' ' || (SELECT count(*) FROM notifications) || ' '
                       || (SELECT count(*) FROM notification_messages)";
    assert_eq!(s.table(left).await, "0 0 0 0 0 0 0 0 0");
    s.publish().await;
    s.end_early().await;
}

/// Tombstones without rows are something that a turn did, so those behind them do not wait for a day; also if a tombstone
/// with a higher id was removed before, as in each database that was upgraded.
#[tokio::test]
async fn many_empty_tombstones_are_removed_at_once() {
    let s = story().await;
    s.execute("UPDATE database_identity SET pruned_workflow_id = 2000000").await;
    s.execute("INSERT INTO deleted_workflows SELECT 1000000 + n, now() FROM generate_series(1, 2500) AS n").await;
    s.now_is(NOW).await;
    assert!(matches!(s.job("prune").await, Did::Some(_)), "the next turn is at once");
    assert!(matches!(s.job("prune").await, Did::All(_)));
    assert_eq!(s.count("SELECT count(*) FROM deleted_workflows").await, 0);
    assert_eq!(s.count("SELECT pruned_workflow_id FROM database_identity").await, 2_000_000, "it never sinks");
    s.end_early().await;
}

/// What ends the rows of each table that has a time. A table that only the job `prune` bounds is in its list of subjects.
const ENDS: [(&str, &str); 9] = [
    (
        "the job prune",
        "backfills bulk_operations console_sessions daily_verifications deleted_workflows failure_streaks \
         fire_disagreements freezes idempotency_keys notification_messages notifications publications run_attempts \
         schedule_versions sign_in_links zone_changes zone_data",
    ),
    ("the job events", "events"),
    ("the drop of their partitions", "audit_log occurrences outbox_events runs"),
    ("the job audit or the drop of a month", "audit_chain failed_logins"),
    ("the job statistics", "decision_minutes decision_sums run_end_minutes run_end_sums"),
    ("their instance or publisher", "dead_letters instances orphans publishers sweeps"),
    (
        "the object that they belong to, of which a team has a limited number or a key of the operators makes each",
        "api_keys job_failures ledger notification_channels notification_conditions notification_rules team_data_keys \
         team_requested_fires team_secrets teams workflows",
    ),
    ("their notification", "notification_items"),
    (
        "nothing: they have one row, or a fixed number",
        "audit_chain_start config_generation database_identity event_listeners jobs partition_bounds prune_marks \
         statistics_start watchdog_shards",
    ),
];

/// So that no table is added whose rows stay for ever. Only the tests have a clock that can be set.
#[tokio::test]
async fn the_rows_of_each_table_end() {
    let s = story().await;
    let tables = "SELECT c.relname::text FROM pg_class c
                   WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
                     AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'workflows'::regclass)
                     AND EXISTS (SELECT FROM pg_attribute a
                                  WHERE a.attrelid = c.oid AND a.atttypid = 'timestamptz'::regtype AND NOT a.attisdropped)
                     AND c.relname NOT IN ('_sqlx_migrations', 'settable_clock')
                   ORDER BY c.relname";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&s.pool).await.unwrap();
    let mut ended: Vec<&str> = ENDS.iter().flat_map(|(_, tables)| tables.split_whitespace()).collect();
    ended.sort_unstable();
    assert_eq!(tables, ended, "say in ENDS what ends the rows of the table, and add it to the subjects of prune");
    s.publish().await;
    s.end_early().await;
}

/// A backfill ended 89 days ago, and then 100 days ago; its runs go first.
#[tokio::test]
async fn backfills_go_after_their_runs() {
    let (s, wf) = outage(StackOptions::default()).await;
    let requested = ask(&s, wf, &morning(json!({}))).await.expect(202).json;
    assert_eq!(finished_backfill(&s, &requested).await["succeeded"], 3);
    let left = "SELECT (SELECT count(*) FROM backfills) || ' ' || (SELECT count(*) FROM runs)";
    s.now_is("2026-05-30T12:10:00Z").await;
    s.job("prune").await;
    assert_eq!(s.table(left).await, "1 3");
    s.now_is("2026-06-10T12:10:00Z").await;
    s.job("prune").await;
    assert_eq!(s.table(left).await, "0 0");
    s.publish().await;
    s.end_early().await;
}

/// The attempts of a run are kept as long as the run; freezes that have ended long ago go, too.
#[tokio::test]
async fn old_attempts_and_freezes_are_removed() {
    let s = story().await;
    s.now_is(NOW).await;
    let now: DateTime<Utc> = NOW.parse().unwrap();
    for age in [91, 89] {
        let on = now - TimeDelta::days(age);
        let attempt = "INSERT INTO run_attempts (run_id, attempt, ended_on, outcome) VALUES ($1, 1, $2, 'lost')";
        sqlx::query(attempt).bind(workflows::id::make_id(on)).bind(on).execute(&s.pool).await.unwrap();
        let freeze = "INSERT INTO freezes (id, reason, starts_on, ends_on, actor, created_on)
                      VALUES (gen_random_uuid(), $1, $2, $2 + INTERVAL '1 hour', 'a', $2)";
        sqlx::query(freeze).bind(age.to_string()).bind(on).execute(&s.pool).await.unwrap();
    }
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM run_attempts").await, 1);
    assert_eq!(s.table("SELECT reason FROM freezes").await, "89");
    s.end_early().await;
}
