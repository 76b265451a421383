//! B9: how long a sweep takes to compare 100,000 schedules with the database.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::backlog::Backlog;
use crate::table::Row;

const SCHEDULES: i64 = 100_000;
/// A page has 100 schedules, and our own limit is 40 list calls per second.
const LIST_LIMIT_SECS: f64 = 100_000.0 / 100.0 / 40.0;
/// A sweep skips schedules that were published within this time.
const SETTLED: Duration = Duration::from_secs(31);
const PATIENCE: Duration = Duration::from_secs(300);

/// Without drift, and with 1 % of the schedules deleted.
pub(crate) async fn all() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    backlog.fill(SCHEDULES, SCHEDULES).await;
    backlog.drain(1, None).await;
    tokio::time::sleep(SETTLED).await;
    let mut daemon = backlog.daemon(None);
    // The first sweep knows no modification dates, so it reads every schedule in full.
    let first = sweep(&backlog, "the first, which reads every schedule").await;
    let none = sweep(&backlog, "no drift").await;
    backlog.delete_manually(100).await;
    let some = sweep(&backlog, "1 % deleted manually").await;
    let peak_rss_mb = backlog.peak_rss_mb(&daemon);
    daemon.kill().await.unwrap();
    backlog.end().await;
    let (mut row, secs) = none;
    row.figures.push(("peak RSS MB", peak_rss_mb));
    vec![first.0, row.against("list limit against the sweep", LIST_LIMIT_SECS / secs, 0.42, 0.91), some.0]
}

/// Requests a sweep, and waits until it has finished.
async fn sweep(backlog: &Backlog, what: &str) -> (Row, f64) {
    let ask = "INSERT INTO sweeps (requested_by, requested_on) VALUES ('bench', cronbox_now()) ON CONFLICT DO NOTHING";
    sqlx::query(ask).execute(&backlog.pool).await.unwrap();
    let requested = Instant::now();
    while backlog.scalar::<i64>("SELECT COUNT(*) FROM sweeps WHERE finished_on IS NULL").await > 0 {
        assert!(requested.elapsed() < PATIENCE, "the sweep does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let last = "SELECT report FROM sweeps ORDER BY id DESC LIMIT 1";
    let report: Value = backlog.scalar(last).await;
    let took = "SELECT EXTRACT(EPOCH FROM finished_on - started_on)::float8 FROM sweeps ORDER BY id DESC LIMIT 1";
    let secs: f64 = backlog.scalar(took).await;
    let count = |name: &str| report[name].as_f64().unwrap_or_default();
    let figures = vec![
        ("s", secs),
        ("listed", count("listed")),
        ("read", count("read")),
        ("found", count("missing") + count("changed") + count("disabled_out_of_band")),
        ("repaired", count("repaired")),
    ];
    (Row::new("B9", format!("sweep of 100,000 schedules: {what}"), figures), secs)
}
