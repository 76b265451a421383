//! B5: how long after an edit its schedule stands.

use std::time::{Duration, Instant};

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
