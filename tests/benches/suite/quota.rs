//! B3: how much of the account's quota becomes work, and how much is asked in vain.

use crate::backlog::Backlog;
use crate::table::Row;

/// Calls a second, and so many workflows that each drain takes several seconds.
const QUOTAS: [(u32, i64); 3] = [(50, 250), (200, 1_000), (1_000, 4_000)];

/// Every quota, by one publisher and by four that start at once and share it.
pub(crate) async fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for (tps, workflows) in QUOTAS {
        for publishers in [1, 4] {
            rows.push(goodput(tps, workflows, publishers).await);
        }
    }
    rows
}

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
