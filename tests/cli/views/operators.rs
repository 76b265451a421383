//! The commands of operators, in the order of a story: dead letters, a refused schedule, a drift and the audit log.

use std::time::{Duration, Instant};

use tests::find_kept_port;

use super::Views;
use crate::Person;

/// What the publisher writes if EventBridge refuses the schedules of the last edits.
const REFUSED: &str = "UPDATE outbox_events SET failed_on = cronbox_now(), attempt_count = 1,
    error_message = 'EventBridge refuses the schedule: no' WHERE processed_on IS NULL";

/// Runs all of them.
pub(super) async fn show_commands(views: &mut Views) {
    teams(views).await;
    keys(views).await;
    outbox(views).await;
    drift(views).await;
    dead_letters(views).await;
    ledger(views).await;
    audit(views).await;
    jobs(views).await;
}

async fn teams(views: &mut Views) {
    views.show_both_admin(&["team", "create", "payroll"], &["team", "create", "shop"]).await;
    views.show_both_admin(&["team", "rename", "2", "salaries"], &["team", "rename", "3", "shops"]).await;
    views.show_admin(&["team", "ls"]).await;
    views.show_admin(&["team", "limits", "1"]).await;
    views.show_both_admin(&["team", "delete", "2", "--yes"], &["team", "delete", "3", "--yes"]).await;
}

async fn keys(views: &mut Views) {
    let create = |name: &'static str| ["key", "create", name, "--kind", "team", "--team", "1", "--role", "editor"];
    views.show_both_admin(&create("ci"), &create("laptop")).await;
    let mut created = Vec::new();
    for name in ["rotated", "turned"] {
        created.push(views.admin.json(&create(name)).await);
    }
    // A key is not rotated at once after it was created.
    views.s.execute("UPDATE api_keys SET created_on = created_on - interval '1 day'").await;
    let of = |at: usize| Person::with_key(&views.s, created[at]["key"].as_str().unwrap());
    let words = ["key", "rotate"];
    let (table, json) = (of(0).run(&words).await, of(1).run(&["key", "rotate", "-o", "json"]).await);
    views.record(&words, &table, &words, &json);
    // The app writes the uses of keys once a minute by the machine's clock. The story may take longer, so they are written here.
    views.s.execute("UPDATE api_keys SET last_used_on = cronbox_now(), last_used_from = '127.0.0.1'").await;
    views.show_admin(&["key", "ls"]).await;
    let id = |at: usize| created[at]["id"].as_str().unwrap().to_owned();
    views.show_both_admin(&["key", "revoke", &id(0)], &["key", "revoke", &id(1)]).await;
}

/// Four schedules that EventBridge refuses.
async fn outbox(views: &mut Views) {
    views.s.publish().await;
    for name in ["a", "b", "c", "d"] {
        views.editor.ok(&["workflow", "create", name, "--log", "m", "--cron", "0 7 * * *"]).await;
    }
    views.s.execute(REFUSED).await;
    views.s.execute("UPDATE publications SET error_class = 'permanent', last_error = 'EventBridge refuses the schedule: no', due_at = NULL WHERE workflow_id IN (SELECT aggregate_id FROM outbox_events WHERE failed_on IS NOT NULL)").await;
    views.show_admin(&["outbox", "ls"]).await;
    let rows = views.admin.ok(&["outbox", "ls", "-o", "name"]).await;
    let rows: Vec<&str> = rows.lines().collect();
    views.show_both_admin(&["outbox", "retry", rows[0]], &["outbox", "retry", rows[1]]).await;
    views.show_both_admin(&["outbox", "discard", rows[2]], &["outbox", "discard", rows[3]]).await;
    views.s.publish().await;
}

/// A schedule that was deleted manually, and one of no workflow.
async fn drift(views: &mut Views) {
    views.show_admin(&["drift", "check"]).await;
    // A sweep skips recent publications.
    views.s.execute("UPDATE publications SET applied_on = applied_on - INTERVAL '1 hour'").await;
    let gone = views.s.scheduler.delete_schedule().group_name(local::stack::GROUP).name("wf-1-dev");
    gone.send().await.unwrap();
    views.s.create_orphan(schedule::WorkflowId(4711)).await;
    let publisher = views.s.another_publisher().unwrap();
    publisher.sweep_schedules(Instant::now() + Duration::from_secs(60)).await.unwrap();
    views.show_admin(&["drift", "show"]).await;
    views.s.publish().await;
}

/// The app is away while schedules fire, each in a minute of its own, so that the messages have an order.
async fn dead_letters(views: &mut Views) {
    for minute in 1..=4 {
        let (name, cron) = (format!("lost {minute}"), format!("{minute} 9 * * *"));
        let policy = format!("catch_up_policy={}", if minute < 3 { "skip" } else { "none" });
        views.editor.ok(&["workflow", "create", &name, "--log", "m", "--cron", &cron, "--set", &policy]).await;
    }
    views.s.publish().await;
    let nowhere = format!("http://127.0.0.1:{}", find_kept_port());
    views.s.deliver_to(&nowhere).unwrap();
    views.s.clock_to("2026-03-02T09:20:00Z").await;
    views.s.deliver_to(views.s.url()).unwrap();
    let queue = format!("{}/123456789012/cronbox-runner-dlq", views.s.scheduler_url());
    let at = ["--queue", queue.as_str()];
    views.show_admin(&[&["dlq", "ls"], &at[..]].concat()).await;
    let ids = views.admin.ok(&[&["dlq", "ls", "-o", "name"], &at[..]].concat()).await;
    let ids: Vec<&str> = ids.lines().collect();
    let of = |verb: &'static str, nth: usize| [&["dlq", verb, ids[nth]], &at[..]].concat();
    // The first one is of the orphan, whose workflow does not exist.
    views.show_admin(&of("show", 1)).await;
    views.show_both_admin(&of("redrive", 1), &of("redrive", 0)).await;
    views.show_both_admin(&of("discard", 2), &of("discard", 3)).await;
    views.s.runs_end().await;
}

/// The watchdog decides what no fire has reached; one decision is removed from the ledger.
async fn ledger(views: &mut Views) {
    views.s.now_is("2026-03-02T09:40:00Z").await;
    views.s.job("watchdog").await;
    let span = ["--from", "2026-03-02T08:59:00Z", "--to", "2026-03-02T09:20:00Z"];
    views.show_admin(&[&["missed"], &span[..]].concat()).await;
    views.s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T09:03:00Z'").await;
    views.show_admin(&[&["verify"], &span[..]].concat()).await;
}

async fn audit(views: &mut Views) {
    views.s.job("audit").await;
    views.show_admin(&["audit", "ls", "--limit", "4"]).await;
    views.show_admin(&["audit", "verify"]).await;
    let tamper = "BEGIN; SET LOCAL session_replication_role = replica;
        UPDATE audit_chain SET hash = sha256(hash) WHERE sequence = 1 AND team_id = 0; COMMIT";
    sqlx::raw_sql(tamper).execute(&views.s.pool).await.unwrap();
    views.show_admin(&["audit", "verify"]).await;
}

/// A job that has run, and one that fails.
async fn jobs(views: &mut Views) {
    let jobs =
        "INSERT INTO jobs (name, last_run, last_duration_ms, last_result, last_error, next_run, run_count, error_count)
        VALUES ('prune', cronbox_now(), 12000, 'success', NULL, cronbox_now(), 7, 0),
               ('watchdog', cronbox_now(), NULL, 'failed', 'the database does not answer', cronbox_now(), 7, 1),
               ('audit', NULL, NULL, NULL, NULL, cronbox_now(), 0, 0)";
    views.s.execute(jobs).await;
    views.show_admin(&["jobs"]).await;
}
