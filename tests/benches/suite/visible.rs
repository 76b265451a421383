//! B5: how long after an edit its schedule stands.

use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use local::stack::{Publishing, StackOptions};
use serde_json::json;
use tests::Story;

use crate::millis;
use crate::table::Row;

/// B5: from the sending of a PATCH to the schedule that stands in the stand-in, one edit after the other.
pub(crate) async fn edit_to_visible(latency_ms: u64, edits: u32) -> Row {
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
    Row::of_times("B5", format!("edit sent to schedule visible, AWS at {latency_ms} ms"), taken_ms)
}

/// B5: edits at a steady rate for some seconds, by as many clients as that takes; from the edit's time to
/// the settle that says that it stands.
pub(crate) async fn at_rate(per_sec: u32, latency_ms: u64) -> Row {
    const SECS: u32 = 5;
    let mut options = StackOptions { publishing: Publishing::Listening, ..StackOptions::default() };
    options.stand_in.scheduler.latency = Duration::from_millis(latency_ms);
    options.publisher = |publisher| publisher.api_tps = 1_000_000;
    let s = Story::with(options).await;
    let mut workflows = Vec::new();
    for _ in 0..per_sec.min(200) {
        workflows.push(s.create("0 9 * * *", "UTC").await);
    }
    s.until("SELECT count(*) FROM publications WHERE due_at IS NULL", i64::try_from(workflows.len()).unwrap()).await;
    s.execute("DELETE FROM outbox_events").await;
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / f64::from(per_sec)));
    let mut edits = futures::stream::FuturesUnordered::new();
    for nth in 0..per_sec * SECS {
        tick.tick().await;
        let workflow = workflows[nth as usize % workflows.len()];
        let cron = format!("{} {} * * *", nth % 60, nth / 60 % 24);
        edits.push(s.edit(workflow, json!({ "cron_schedule": cron })));
        // Those that are answered are let go, so that no edit waits for another.
        while let Some(Some(_)) = edits.next().now_or_never() {}
    }
    while edits.next().await.is_some() {}
    drop(edits);
    s.until("SELECT count(*) FROM outbox_events WHERE processed_on IS NULL", 0).await;
    let taken = "SELECT EXTRACT(EPOCH FROM processed_on - created_on)::float8 * 1000 FROM outbox_events";
    let taken_ms: Vec<f64> = sqlx::query_scalar(taken).fetch_all(&s.pool).await.unwrap();
    s.end().await;
    Row::of_times("B5", format!("edit to settled, {per_sec} edits/s asked for, AWS at {latency_ms} ms"), taken_ms)
}
