//! The commands of users, in the order of a story.

use super::Views;

const FILE: &str = "version: cronbox/v1
owner: files
workflows:
  - name: of a file
    cron_schedule: 0 7 * * *
    action: {type: log, message: m}
";

/// Runs all of them.
pub(super) async fn show_commands(views: &mut Views) {
    workflows(views).await;
    schedules(views).await;
    runs(views).await;
    backfills(views).await;
    bulk(views).await;
    freezes(views).await;
    notifications(views).await;
    files(views).await;
    changes(views).await;
}

async fn workflows(views: &mut Views) {
    let create = |name: &'static str| {
        ["workflow", "create", name, "--log", "pay", "--cron", "0 9 * * *", "--timezone", "Europe/Paris"]
    };
    views.show_both(&create("payroll"), &create("second")).await;
    views.editor.ok(&["workflow", "create", "manual", "--log", "m", "--label", "owner=shop"]).await;
    views.s.publish().await;
    views
        .show_both(
            &["workflow", "edit", "payroll", "--description", "salaries"],
            &["workflow", "edit", "second", "--description", "x"],
        )
        .await;
    views.show(&["workflow", "edit", "payroll", "--cron", "0 10 * * *", "--dry-run"]).await;
    views.show(&["workflow", "pause", "manual", "--reason", "stocktaking", "--until", "2030-01-01T00:00:00Z"]).await;
    views.show(&["workflow", "resume", "manual"]).await;
    views.show_both(&["workflow", "restore", "payroll", "1"], &["workflow", "restore", "second", "1"]).await;
    for name in ["old", "older"] {
        views.editor.ok(&["workflow", "create", name, "--log", "m"]).await;
    }
    views.show_both(&["workflow", "archive", "old"], &["workflow", "archive", "older"]).await;
    views.show_both(&["workflow", "fire", "payroll", "--wait"], &["workflow", "fire", "second", "--wait"]).await;
    views.s.publish().await;
    views.s.runs_end().await;
    views.show(&["workflow", "ls"]).await;
    views.show(&["workflow", "get", "payroll"]).await;
    views.show(&["workflow", "history", "payroll"]).await;
}

async fn schedules(views: &mut Views) {
    views.show(&["schedule", "ls"]).await;
    views.show(&["schedule", "next", "payroll", "-n", "2"]).await;
    views.show(&["schedule", "explain", "0", "9", "*", "*", "MON-FRI", "--timezone", "Europe/Paris"]).await;
    let span = ["--from", "2026-02-27T00:00:00Z", "--to", "2026-03-01T00:00:00Z", "--timing", "now"];
    let backfill = |name: &'static str| [&["schedule", "backfill", name], &span[..]].concat();
    views.show(&[&backfill("payroll")[..], &["--dry-run"]].concat()).await;
    views.show_both(&backfill("payroll"), &backfill("second")).await;
    views.show(&["timezones", "paris"]).await;
    let explain = ["cron", "explain", "0 9 * * *", "--timezone", "Europe/Paris", "--from", "2026-03-01T00:00:00Z"];
    views.show(&[&explain[..], &["--count", "2"]].concat()).await;
}

async fn runs(views: &mut Views) {
    let run = views.first(&["run", "ls"]).await;
    views.show(&["run", "ls", "--state", "succeeded", "--limit", "1"]).await;
    views.show(&["run", "get", &run]).await;
    views.show(&["run", "retry", &run, "--wait"]).await;
    // The first run waits for an answer until the listener is dropped, and the next ones wait for the first.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", silent.local_addr().unwrap());
    views.editor.ok(&["workflow", "create", "slow", "--target", &target, "--overlap", "queue"]).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(views.editor.json(&["workflow", "fire", "slow"]).await["id"].as_str().unwrap().to_owned());
    }
    views.show_both(&["run", "cancel", &ids[1]], &["run", "cancel", &ids[2]]).await;
    views.show(&["bulk", "cancel", "--run", &ids[3]]).await;
    views.s.job("bulk").await;
    drop(silent);
    views.s.runs_end().await;
    views.show(&["top"]).await;
}

async fn backfills(views: &mut Views) {
    views.show(&["backfill", "ls"]).await;
    let id = views.first(&["backfill", "ls"]).await;
    views.show(&["backfill", "get", &id]).await;
    for verb in ["pause", "resume", "cancel"] {
        views.show(&["backfill", verb, &id]).await;
    }
}

async fn bulk(views: &mut Views) {
    let manual = views.first(&["workflow", "ls", "-q", "manual"]).await;
    for verb in ["pause", "resume", "fire"] {
        views.show(&["bulk", verb, "--workflow", &manual]).await;
        views.s.job("bulk").await;
        views.s.runs_end().await;
    }
    let run = views.first(&["run", "ls", "--state", "succeeded"]).await;
    views.show(&["bulk", "retry", "--run", &run]).await;
    views.show(&["bulk", "archive", "--workflow", &manual, "--dry-run"]).await;
    views.show_admin(&["bulk", "delete", "--team", "1", "-q", "old"]).await;
    let id = views.first(&["bulk", "ls"]).await;
    views.show_admin(&["bulk", "stop", &id]).await;
    views.s.job("bulk").await;
    views.s.runs_end().await;
    let id = views.admin.ok(&["bulk", "ls", "-o", "name"]).await.lines().last().unwrap().to_owned();
    views.show(&["bulk", "ls", "--limit", "3"]).await;
    views.show(&["bulk", "get", &id]).await;
    views.show(&["bulk", "items", &id]).await;
}

async fn freezes(views: &mut Views) {
    let span = ["--from", "2030-12-24T00:00:00Z", "--until", "2030-12-27T00:00:00Z"];
    views.show(&[&["freeze", "start", "holiday"], &span[..]].concat()).await;
    views.show(&["freeze", "ls"]).await;
    let ids = views.editor.ok(&["freeze", "ls", "-o", "name"]).await;
    let ids: Vec<&str> = ids.lines().collect();
    views.show_both(&["freeze", "lift", ids[0]], &["freeze", "lift", ids[1]]).await;
}

/// A notification, and a message per channel that was not delivered. The id ends with the channel's: lists order by it.
const NOTIFIED: &str = "
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts, state)
    SELECT r.id, r.team_id, w.id, r.event, w.id::text, cronbox_now(), '{\"state\": \"failed\", \"error\": \"no answer\"}', 'routed'
      FROM notification_rules r, workflows w WHERE w.name = 'payroll' AND r.event = 'run_failed';
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, attempt_count, last_error, created_on, failed_on)
    SELECT ('01960000-0000-7000-8000-' || lpad(id::text, 12, '0'))::uuid, id, team_id, 'run_failed', 1, 'failed', 20, 'the receiver answered 410 Gone', cronbox_now(), cronbox_now()
      FROM notification_channels";

async fn notifications(views: &mut Views) {
    let create = |name: &'static str| ["channel", "create", name, "--kind", "email", "--to", "ops@example.com"];
    views.show_both(&create("on call"), &create("second")).await;
    views.show(&["channel", "ls"]).await;
    views.show(&["channel", "test", "1"]).await;
    let create = |event: &'static str| ["rule", "create", event, "--channel", "1"];
    views.show_both(&create("run_failed"), &create("missed")).await;
    views.show(&["rule", "ls"]).await;
    views.show(&["rule", "snooze", "2", "--until", "2030-12-24T00:00:00Z"]).await;
    views.s.execute(NOTIFIED).await;
    views.show(&["notification", "ls"]).await;
    let id = views.first(&["notification", "ls"]).await;
    views.show(&["notification", "ack", &id]).await;
    views.show(&["notification", "messages", "--failed"]).await;
    let ids = views.admin.ok(&["notification", "messages", "-o", "name"]).await;
    let ids: Vec<&str> = ids.lines().collect();
    views.show_both(&["notification", "retry", ids[0]], &["notification", "retry", ids[1]]).await;
    views.editor.ok(&["rule", "delete", "2"]).await;
    views.editor.ok(&["channel", "delete", "2"]).await;
}

async fn files(views: &mut Views) {
    let file = views.editor.write("a.yaml", FILE);
    let other = views.editor.write("b.yaml", &FILE.replace("of a file", "of another"));
    views.show(&["diff", "-f", &file]).await;
    views.show_both(&["apply", "-f", &file], &["apply", "-f", &other]).await;
    views.show_both(&["delete", "-f", &file], &["delete", "-f", &other]).await;
}

/// Events are written only while a client follows.
async fn changes(views: &mut Views) {
    let first = views.editor.run(&["events"]).await;
    let cursor = first.err.trim().rsplit(' ').next().unwrap().to_owned();
    views.editor.ok(&["workflow", "create", "new", "--log", "m"]).await;
    let words = ["events", "--kind", "edit", "--cursor", &cursor];
    let seen = async {
        while views.editor.ok(&words).await == "nothing\n" {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(tests::PATIENCE, seen).await.unwrap();
    views.show(&words).await;
    views.show(&["me"]).await;
}
