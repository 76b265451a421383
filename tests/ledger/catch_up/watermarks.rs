//! The watermarks of the watchdog: what is decided as usual costs nothing for each workflow, and no time is lost by it.

use schedule::WorkflowId;
use serde_json::json;
use tests::{CountingWay, Story};

use super::watchdog_races::lock_workflow;
use crate::steps::{fire_on_time, hourly, story_without_executor};

const WORKFLOWS: i64 = 1_000;

/// A thousand workflows that are due each minute since 08:30:30.
async fn a_thousand() -> Story {
    let s = story_without_executor("2026-03-02T08:30:30Z").await;
    s.execute(
        "INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on, watch_at)
         SELECT 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', '* * * * *', 1, now(), now(), '2026-03-02T08:30:30Z'
           FROM generate_series(1, 1000) n;
         INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1, '2026-03-02T08:30:30Z', '* * * * *', 'active' FROM workflows",
    )
    .await;
    s
}

/// Runs the watchdog; returns what it did, and how many statements it needed.
async fn counted_pass(s: &Story, way: &CountingWay) -> (ledger::watchdog::Pass, u64) {
    let options = app::config::database_options(&way.dsn(&s.dsn()), 4);
    let pool = db::connect_pool(&options).await.unwrap();
    way.take_rows();
    let kept = s.app().config.ledger_kept();
    let pass = ledger::watchdog::decide_overdue_times(&pool, kept, s.clock.now()).await.unwrap();
    let statements = way.take_rows().values().map(|rows| rows.statements).sum();
    pool.close().await;
    (pass, statements)
}

/// Which rows were written last by which transaction.
async fn written(s: &Story) -> String {
    s.table(
        "SELECT md5(string_agg(line, ',' ORDER BY line))
           FROM (SELECT 'ledger ' || workflow_id || ' ' || xmin AS line FROM ledger
                  UNION ALL
                 SELECT 'workflow ' || id || ' ' || xmin || ' ' || xmax FROM workflows
                  UNION ALL
                 SELECT 'occurrence ' || id || ' ' || xmin FROM occurrences) AS written",
    )
    .await
}

/// A thousand workflows with 30 undecided minutes. One by one they took 15 statements each.
#[tokio::test]
async fn an_outage_costs_few_statements() {
    let s = a_thousand().await;
    let way = CountingWay::to(&s.dsn()).await;
    s.now_is("2026-03-02T09:05:30Z").await;
    let (pass, statements) = counted_pass(&s, &way).await;
    assert_eq!((pass.missed, pass.caught_up, pass.failed), (29_000, 1_000, 0), "08:31 to 08:59, and 09:00");
    assert!(statements <= 300, "{statements} statements");
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 30 * WORKFLOWS);
    let runs = "SELECT count(*) FROM runs r JOIN occurrences o ON o.run_id = r.id AND o.id = r.occurrence_id
                 WHERE o.decision = 'caught_up' AND r.state = 'accepted' AND r.trigger = 'catch_up'";
    assert_eq!(s.count(runs).await, WORKFLOWS);
    let (pass, _) = counted_pass(&s, &way).await;
    assert_eq!(pass, ledger::watchdog::Pass::default(), "each time is decided once");
    s.end_early().await;
}

/// Ten minutes of a thousand workflows, each of which fired: a pass reads that, and changes only its watermarks.
#[tokio::test]
async fn quiet_passes_write_no_workflow() {
    let s = a_thousand().await;
    let way = CountingWay::to(&s.dsn()).await;
    s.now_is("2026-03-02T08:35:31Z").await;
    counted_pass(&s, &way).await;
    s.execute_long(
        "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), w.id, due, 'fired', gen_random_uuid(), 0, due, due, due
           FROM workflows w
          CROSS JOIN generate_series('2026-03-02T08:31:00Z'::timestamptz, '2026-03-02T08:41:00Z', INTERVAL '1 min') AS due",
    )
    .await;
    let before = written(&s).await;
    s.now_is("2026-03-02T08:46:00Z").await;
    let (pass, statements) = counted_pass(&s, &way).await;
    assert_eq!(pass, ledger::watchdog::Pass::default());
    assert!(statements <= 80, "{statements} statements for eight shards");
    assert_eq!(written(&s).await, before, "no row of a workflow is changed or locked");
    let moved = "SELECT count(*) FROM watchdog_shards WHERE decided_through = '2026-03-02T08:41:00Z'";
    assert_eq!(s.count(moved).await, 8);
    s.end_early().await;
}

#[tokio::test]
async fn an_undecided_time_is_found() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (fired, silent) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    s.now_is("2026-03-02T08:36:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.count("SELECT count(*) FROM ledger WHERE watch_at IS NULL").await, 2, "they follow");
    fire_on_time(&s, fired, "2026-03-02T09:00:00Z").await;
    s.now_is("2026-03-02T09:05:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.occurrences(fired).await, "2026-03-02T09:00Z fired");
    assert_eq!(s.occurrences(silent).await, "2026-03-02T09:00Z caught_up");
    s.end_early().await;
}

/// A follower is edited after a time of its first version became due: both versions keep their times.
#[tokio::test]
async fn edits_of_followers_lose_no_time() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    s.now_is("2026-03-02T08:36:00Z").await;
    s.job("watchdog").await;
    s.now_is("2026-03-02T09:02:00Z").await;
    s.edit(wf, json!({"cron_schedule": "45 * * * *"})).await;
    for now in ["2026-03-02T09:04:00Z", "2026-03-02T09:06:00Z", "2026-03-02T09:20:00Z", "2026-03-02T10:00:00Z"] {
        s.now_is(now).await;
        s.job("watchdog").await;
    }
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed\n2026-03-02T09:45Z caught_up");
    assert_eq!(s.count("SELECT count(*) FROM ledger WHERE watch_at IS NULL AND cron = '45 * * * *'").await, 1);
    s.end_early().await;
}

/// A paused workflow follows its shard. Then its pause gets an end, and nothing resumes it for long after that.
#[tokio::test]
async fn late_resumes_lose_no_time() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (wf, other) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    s.pause(wf).await;
    s.now_is("2026-03-02T08:36:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.count("SELECT count(*) FROM ledger WHERE watch_at IS NULL AND cron IS NULL").await, 1);
    let until = json!({"until": "2026-03-02T08:50:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    let holder = lock_workflow(&s, wf).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.occurrences(other).await, "2026-03-02T09:00Z caught_up");
    holder.rollback().await.unwrap();
    s.job("watchdog").await;
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z caught_up", "the pause ended at 08:50");
    s.publish().await;
    s.end_early().await;
}

/// During a deployment an instance of the version before edits a follower: it knows only the columns of `workflows`.
#[tokio::test]
async fn edits_of_older_instances_are_watched() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    hourly(&s, json!({})).await;
    s.now_is("2026-03-02T08:36:00Z").await;
    s.job("watchdog").await;
    s.now_is("2026-03-02T09:02:00Z").await;
    s.execute(
        "INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, timezone, state)
         SELECT id, 2, '2026-03-02T09:02:00Z', '30 * * * *', timezone, 'active' FROM workflows;
         UPDATE workflows
            SET cron_schedule = '30 * * * *', version = 2, revision = 2,
                watch_at = LEAST(watch_at, '2026-03-02T09:02:00Z'),
                ledger_cursor = COALESCE(ledger_cursor, '2026-03-02T09:01:59Z'),
                schedule_activated_at = '2026-03-02T09:02:00Z'",
    )
    .await;
    s.now_is("2026-03-02T10:00:00Z").await;
    s.job("watchdog").await;
    assert_eq!(
        s.table("SELECT decision FROM occurrences ORDER BY scheduled_time").await,
        "missed\ncaught_up",
        "09:00 of the first version, and 09:30 of the second"
    );
    s.end_early().await;
}

/// The watermark moves past a workflow that another transaction has locked, because it is checked on its own then.
#[tokio::test]
async fn a_locked_follower_stops_no_watermark() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    s.now_is("2026-03-02T08:36:00Z").await;
    s.job("watchdog").await;
    let holder = lock_workflow(&s, wf).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.occurrences(wf).await, "");
    let passed = "SELECT count(*) FROM watchdog_shards WHERE decided_through = '2026-03-02T09:05:00Z'";
    assert_eq!(s.count(passed).await, 1, "of the shard that has a workflow");
    holder.rollback().await.unwrap();
    s.job("watchdog").await;
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z caught_up");
    s.end_early().await;
}

/// As long as a pass has the lease of a shard, no other decides its times. When the lease has ended, the next one does.
#[tokio::test]
async fn dead_owners_of_shards_are_replaced() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflows: Vec<WorkflowId> = vec![hourly(&s, json!({})).await, hourly(&s, json!({})).await];
    s.now_is("2026-03-02T09:10:00Z").await;
    // An instance was killed in the shard of the first workflow.
    let lease = "UPDATE watchdog_shards SET epoch = epoch + 1, lease_until = cronbox_now() + INTERVAL '60 s'
                  WHERE shard = $1 % 8";
    sqlx::query(lease).bind(workflows[0].0).execute(&s.pool).await.unwrap();
    s.job("watchdog").await;
    assert_eq!(s.occurrences(workflows[0]).await, "");
    assert_eq!(s.occurrences(workflows[1]).await, "2026-03-02T09:00Z caught_up");
    s.now_is("2026-03-02T09:11:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.occurrences(workflows[0]).await, "2026-03-02T09:00Z caught_up");
    s.end_early().await;
}

/// Eight passes at once share the shards; each time has one decision and one run.
#[tokio::test]
async fn concurrent_passes_share_an_outage() {
    let s = a_thousand().await;
    s.now_is("2026-03-02T09:05:30Z").await;
    let (now, kept) = (s.clock.now(), s.app().config.ledger_kept());
    let passes = (0..8).map(|_| ledger::watchdog::decide_overdue_times(&s.pool, kept, now));
    let passes: Vec<_> = futures::future::join_all(passes).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(passes.iter().map(|pass| pass.caught_up).sum::<u64>(), 1_000);
    assert_eq!(passes.iter().map(|pass| pass.missed).sum::<u64>(), 29_000);
    assert!(passes.iter().filter(|pass| pass.caught_up > 0).count() > 1, "{passes:?}");
    assert_eq!(s.count("SELECT count(*) FROM runs").await, WORKFLOWS);
    s.end_early().await;
}
