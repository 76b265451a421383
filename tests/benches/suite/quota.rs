//! B3: which share of the account's quota becomes successful writes, and which share of the calls is throttled.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::backlog::Backlog;
use crate::table::Row;

/// Calls per second, and enough workflows that each drain takes several seconds.
const QUOTAS: [(u32, i64); 3] = [(50, 250), (200, 1_000), (1_000, 4_000)];

/// Longer than any backoff.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// Each quota, with one publisher and with four that start at once and share it.
pub(crate) async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for (tps, workflows) in QUOTAS {
        for publishers in [1, 4] {
            rows.push(goodput(tps, workflows, publishers).await);
        }
    }
    rows.push(after_an_outage().await);
    rows
}

/// Scheduler was down for half an hour, so all publications back off until some time in the next quarter of an hour.
async fn after_an_outage() -> Row {
    let (workflows, tps) = (10_000, 50);
    let backlog = Backlog::new(15, Some(tps)).await;
    backlog.fill(workflows, workflows).await;
    backlog.plan_faults(&json!({"faults": [{"kind": "error_before", "chance": 1.0}]})).await;
    let publisher = backlog.daemon(Some(tps));
    until(&backlog, "SELECT COUNT(*) >= 20 FROM publications WHERE error_class = 'transient'").await;
    sqlx::raw_sql(BACKED_OFF).execute(&backlog.pool).await.unwrap();
    backlog.plan_faults(&json!({})).await;
    let back = Instant::now();
    until(&backlog, "SELECT NOT EXISTS (SELECT FROM publications WHERE applied_revision IS NULL)").await;
    let secs = back.elapsed().as_secs_f64();
    drop(publisher);
    backlog.end().await;
    let row = Row::new("B3", "10,000 workflows backed off by an outage, 50 TPS, from its end on", vec![("s", secs)]);
    // The floor is five minutes.
    row.against("share of the quota", workflows as f64 / secs / f64::from(tps), 0.67, 0.9)
}

async fn until(backlog: &Backlog, query: &'static str) {
    let began = Instant::now();
    while !backlog.scalar::<bool>(query).await {
        assert!(began.elapsed() < PATIENCE, "never: {query}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const BACKED_OFF: &str = "
    UPDATE publications
       SET error_class = 'transient', due_at = cronbox_now() + random() * INTERVAL '15 minutes'
     WHERE lease_owner IS NULL AND applied_revision IS NULL
";

async fn goodput(tps: u32, workflows: i64, publishers: usize) -> Row {
    let backlog = Backlog::new(15, Some(tps)).await;
    backlog.fill(workflows, workflows).await;
    let drained = backlog.drain(publishers, Some(tps)).await;
    backlog.end().await;
    let goodput = drained.writes / drained.secs / f64::from(tps);
    let in_vain = drained.retried / (drained.writes + drained.retried);
    let what = format!("quota of {tps} TPS, {publishers} publishers");
    let row = Row::new("B3", what, vec![("goodput %", goodput * 100.0), ("retried %", in_vain * 100.0)]);
    if tps == 200 { row.against("G6 goodput of the quota", goodput, 0.93, 0.98) } else { row }
}
