//! B1: how fast publishers drain a backlog, compared with the naive publisher.

use crate::backlog::{Backlog, Drained};
use crate::table::{Row, median};

/// Concurrent calls, as in the publisher's default configuration.
const IN_FLIGHT: f64 = 64.0;
/// Few rows suffice, because the peer's rate does not change with the backlog.
const NAIVE_ROWS: u32 = 150;

pub(crate) async fn all() -> Vec<Row> {
    let mut rows = vec![against_naive().await, near_the_limit().await];
    let mut per_sec_at_10k = 0.0;
    for (edits, workflows) in [(1_000, 1_000), (10_000, 1_000), (10_000, 100), (100_000, 10_000), (1_000_000, 10_000)] {
        let (row, per_sec) = backlog(edits, workflows, 0).await;
        if edits == 10_000 && workflows == 1_000 {
            per_sec_at_10k = per_sec;
        }
        rows.push(match edits {
            100_000 | 1_000_000 => row.against("rate against 10,000 rows'", per_sec / per_sec_at_10k, 0.8, 0.97),
            _ => row,
        });
    }
    for publishers in [1, 2, 4, 8] {
        rows.push(sharing(publishers).await);
    }
    rows
}

/// 2,000 rows of 1,000 workflows at a latency of 15 ms: ours, then the peer, in turn.
async fn against_naive() -> Row {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let backlog = Backlog::new(15, None).await;
        backlog.fill(2_000, 1_000).await;
        let Drained { rows, secs, .. } = backlog.drain(1, None).await;
        ours.push(rows / secs);
        backlog.fill(i64::from(NAIVE_ROWS), i64::from(NAIVE_ROWS)).await;
        theirs.push(backlog.naive(NAIVE_ROWS).await);
        backlog.end().await;
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    Row::new("B1", "2,000 rows / 1,000 workflows, 15 ms", vec![("rows/s", ours), ("naive Python rows/s", theirs)])
        .against("against naive Python", ours / theirs, 100.0, 190.0)
}

/// 10,000 workflows at 15 ms: which share of the limit by latency and concurrency is reached.
async fn near_the_limit() -> Row {
    let mut shares = Vec::new();
    let (mut calls_per_sec, mut limit) = (0.0, 0.0);
    let (mut publisher, mut postgres) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let backlog = Backlog::new(15, None).await;
        backlog.fill(10_000, 10_000).await;
        limit = IN_FLIGHT / (backlog.latency_ms().await / 1_000.0);
        let drained = backlog.drain(1, None).await;
        calls_per_sec = drained.writes / drained.secs;
        shares.push(100.0 * calls_per_sec / limit);
        publisher.push(drained.cpu_ms_per_thousand_rows(drained.publisher_cpu_secs));
        postgres.push(drained.cpu_ms_per_thousand_rows(drained.postgres_cpu_secs));
        backlog.end().await;
    }
    let share = median(&shares);
    let figures = vec![
        ("calls/s", calls_per_sec),
        ("limit calls/s", limit),
        ("% of limit", share),
        ("publisher CPU ms / 1,000 rows", median(&publisher)),
        ("Postgres CPU ms / 1,000 rows", median(&postgres)),
    ];
    Row::new("B1", "10,000 workflows, 15 ms, 64 in flight", figures).against("% of the limit", share, 85.0, 95.0)
}

async fn backlog(edits: i64, workflows: i64, latency_ms: u64) -> (Row, f64) {
    let backlog = Backlog::new(latency_ms, None).await;
    backlog.fill(edits, workflows).await;
    let drained = backlog.drain(1, None).await;
    backlog.end().await;
    let per_sec = drained.rows / drained.secs;
    #[expect(clippy::cast_precision_loss, reason = "a number of workflows")]
    let calls_each = drained.writes / workflows as f64;
    let figures = vec![
        ("s", drained.secs),
        ("rows/s", per_sec),
        ("calls per workflow", calls_each),
        ("peak RSS MB", drained.peak_rss_mb),
        ("publisher CPU ms / 1,000 rows", drained.cpu_ms_per_thousand_rows(drained.publisher_cpu_secs)),
        ("Postgres CPU ms / 1,000 rows", drained.cpu_ms_per_thousand_rows(drained.postgres_cpu_secs)),
    ];
    (Row::new("B1", format!("{edits} rows / {workflows} workflows, {latency_ms} ms"), figures), per_sec)
}

/// 4,000 workflows at 15 ms, with this many publishers: more publishers must not make more calls.
async fn sharing(publishers: usize) -> Row {
    let backlog = Backlog::new(15, None).await;
    backlog.fill(4_000, 4_000).await;
    let drained = backlog.drain(publishers, None).await;
    backlog.end().await;
    let figures = vec![
        ("calls/s", drained.writes / drained.secs),
        ("wasted calls", drained.writes - 4_000.0),
        ("retried", drained.retried),
        ("peak RSS MB", drained.peak_rss_mb),
    ];
    Row::new("B1", format!("4,000 workflows, 15 ms, {publishers} publishers"), figures)
}
