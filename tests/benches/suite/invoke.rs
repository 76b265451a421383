//! B7: what a fire costs the app.

use std::time::Instant;

use serde_json::json;
use tests::Story;

use crate::millis;
use crate::table::Row;

/// B7: the same fire again, from one connection.
pub(crate) async fn duplicate_invokes(calls: u32) -> Row {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let (api, path) = (s.scheduler_key(), format!("/api/v1/cron/workflows/{wf}:invoke"));
    let fire = json!({"scheduled_time": "2026-03-02T09:00:00Z"});
    api.post(&path, &fire).await.expect(202);
    let mut taken_ms = Vec::new();
    for _ in 0..calls {
        let sent = Instant::now();
        api.post(&path, &fire).await.expect(200);
        taken_ms.push(millis(sent));
    }
    s.end().await;
    Row::of_times("B7", "duplicate invoke, one connection", taken_ms)
}

/// B7: a new time with each call, from one connection.
pub(crate) async fn fresh_invokes(calls: u32) -> Row {
    let s = Story::at("2026-03-01T00:00:00Z").await;
    let wf = s.create("* * * * *", "UTC").await;
    s.now_is("2026-03-02T12:00:00Z").await;
    let (api, path) = (s.scheduler_key(), format!("/api/v1/cron/workflows/{wf}:invoke"));
    let mut taken_ms = Vec::new();
    for minute in 0..calls.min(1_400) {
        let time = s.clock.now() - chrono::TimeDelta::minutes(i64::from(minute) + 1);
        let sent = Instant::now();
        api.post(&path, &json!({ "scheduled_time": time })).await.expect(202);
        taken_ms.push(millis(sent));
    }
    s.end().await;
    Row::of_times("B7", "fresh invoke, one connection", taken_ms)
}
