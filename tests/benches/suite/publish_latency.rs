//! B5: the time from an edit until its schedule exists.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use futures::{FutureExt, StreamExt};
use local::stack::{Publishing, StackOptions};
use schedule::{Clock, WorkflowId};
use serde_json::json;
use tests::Story;
use workflows::definition::body::WorkflowBody;
use workflows::definition::spec::Bounds;
use workflows::{lock_workflow, save_workflow};

use crate::backlog::Backlog;
use crate::millis;
use crate::service::{Service, bench_edit};
use crate::table::Row;

/// The limit of G10 for an edit whose notification is lost.
const POLL_MS: f64 = 5_000.0;

/// All cases.
pub(crate) async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for latency_ms in [0, 15] {
        rows.push(one_after_the_other(latency_ms, 300).await);
    }
    for per_sec in [50, 1_000] {
        rows.push(at_rate(per_sec, 15).await);
    }
    rows.push(without_notifications(12).await);
    rows
}

/// From the start of a PATCH until the stand-in has the schedule.
async fn one_after_the_other(latency_ms: u64, edits: u32) -> Row {
    let mut options = StackOptions { publishing: Publishing::Listening, ..StackOptions::default() };
    options.stand_in.scheduler.latency = Duration::from_millis(latency_ms);
    let s = Story::with(options).await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.until("SELECT count(*) FROM publications WHERE due_at IS NULL", 1).await;
    let mut taken_ms = Vec::new();
    for edit in 0..edits {
        let (minute, hour) = (edit % 60, edit / 60 + 1);
        let visible = format!("cron({minute} {hour} * * ? *) UTC ENABLED");
        let sent = Instant::now();
        s.edit(wf, json!({ "cron_schedule": format!("{minute} {hour} * * *") })).await;
        while s.schedule(wf) != visible {
            assert!(sent.elapsed() < Duration::from_secs(30), "an edit is never seen");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        taken_ms.push(millis(sent));
    }
    s.until("SELECT count(*) FROM publications WHERE due_at IS NULL", 1).await;
    s.end().await;
    let row = Row::of_times("B5", format!("edit sent to schedule visible, AWS at {latency_ms} ms"), taken_ms);
    if latency_ms == 0 {
        return row;
    }
    let p99 = row.figures.iter().find(|(name, _)| *name == "p99 ms").map_or(f64::MAX, |(_, ms)| *ms);
    row.against("100 ms against p99", 100.0 / p99, 1.0, 100.0 / 35.0)
}

/// Edits at a steady rate for some seconds, with as many clients as that takes; app, publisher, stand-in and clients
/// are separate processes. Measures from the edit's time in the database to the settle of its row.
async fn at_rate(per_sec: u32, latency_ms: u64) -> Row {
    const SECS: u32 = 5;
    let backlog = Backlog::new(latency_ms, None).await;
    let app = Service::app(&backlog, 64).await;
    let api = app.as_admin();
    let mut workflows = Vec::new();
    for nth in 0..per_sec.min(200) {
        let body = json!({"name": nth.to_string(), "team_id": app.team, "cron_schedule": "0 9 * * *",
                          "action": {"type": "log", "message": "m"}});
        workflows.push(api.post("/api/v1/workflows", &body).await.expect(201).json["id"].as_i64().unwrap());
    }
    let _publisher = backlog.daemon(None);
    settled(&backlog).await;
    sqlx::raw_sql("DELETE FROM outbox_events").execute(&backlog.pool).await.unwrap();
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / f64::from(per_sec)));
    let mut edits = futures::stream::FuturesUnordered::new();
    let started = Instant::now();
    for nth in 0..per_sec * SECS {
        tick.tick().await;
        let path = format!("/api/v1/workflows/{}", workflows[nth as usize % workflows.len()]);
        let (api, cron) = (&api, format!("{} {} * * *", nth % 60, nth / 60 % 24));
        edits.push(async move { api.patch(&path, &json!({ "cron_schedule": cron })).await.expect(200) });
        // Completed edits are removed, so that no edit waits for another.
        while let Some(Some(_)) = edits.next().now_or_never() {}
    }
    while edits.next().await.is_some() {}
    let took = started.elapsed().as_secs_f64();
    drop(edits);
    settled(&backlog).await;
    let taken = "SELECT EXTRACT(EPOCH FROM processed_on - created_on)::float8 * 1000 FROM outbox_events";
    let taken_ms: Vec<f64> = sqlx::query_scalar(taken).fetch_all(&backlog.pool).await.unwrap();
    backlog.end().await;
    let requested = format!("edit to settled, {per_sec} edits/s asked for, AWS at {latency_ms} ms");
    let mut row = Row::of_times("B5", requested, taken_ms);
    row.figures.push(("edits/s", f64::from(per_sec * SECS) / took));
    row
}

/// The edits are committed without a notification. For the publisher, a lost notification is the same.
async fn without_notifications(edits: u32) -> Row {
    let backlog = Backlog::new(15, None).await;
    backlog.fill(1, 1).await;
    let _publisher = backlog.daemon(None);
    settled(&backlog).await;
    let mut taken_ms = Vec::new();
    for nth in 0..edits {
        let began = Instant::now();
        edit_silently(&backlog, nth).await;
        settled(&backlog).await;
        taken_ms.push(millis(began));
        // The pause varies, so that the edits fall at different moments between two polls.
        tokio::time::sleep(Duration::from_millis(u64::from(nth) * 370)).await;
    }
    backlog.end().await;
    let row = Row::of_times("B5", "edit to settled, the notification lost", taken_ms);
    let slowest = row.figures.iter().find(|(name, _)| *name == "max ms").map_or(f64::MAX, |(_, ms)| *ms);
    row.against("the poll's 5 s against the slowest", POLL_MS / slowest, 0.9, 0.98)
}

async fn edit_silently(backlog: &Backlog, nth: u32) {
    let mut tx = db::begin_transaction(&backlog.pool).await.unwrap();
    let id: i64 = sqlx::query_scalar("SELECT id FROM workflows").fetch_one(&mut *tx).await.unwrap();
    let now = Clock::System.now();
    let before = lock_workflow(&mut tx, WorkflowId(id), None, now).await.unwrap().unwrap();
    let mut body = WorkflowBody::from_spec(&before.spec);
    body.cron_schedule = Some(format!("{nth} 7 * * *"));
    let spec = body.into_spec(None, &bounds(now)).unwrap();
    let next = workflows::Workflow { spec, ..before.clone() };
    save_workflow(&mut tx, &before, next, "update", &bench_edit()).await.unwrap();
    tx.commit().await.unwrap();
}

async fn settled(backlog: &Backlog) {
    let began = Instant::now();
    while backlog.scalar::<i64>("SELECT COUNT(*) FROM outbox_events WHERE processed_on IS NULL").await > 0 {
        if began.elapsed() > Duration::from_secs(60) {
            panic!("rows are left open at {}: {}", Clock::System.now(), left_open(backlog).await);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What the database knows about the workflows whose rows stay open.
async fn left_open(backlog: &Backlog) -> String {
    let publications = "SELECT COALESCE(string_agg(to_jsonb(p)::text, E'\n'), 'no publication')
                          FROM (SELECT * FROM publications
                                 WHERE workflow_id IN (SELECT aggregate_id FROM outbox_events WHERE processed_on IS NULL)
                                 LIMIT 10) AS p";
    backlog.scalar(publications).await
}

fn bounds(now: DateTime<Utc>) -> Bounds {
    Bounds { now, retention: TimeDelta::days(90) }
}
