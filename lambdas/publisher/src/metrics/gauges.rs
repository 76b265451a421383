//! Step 3 of 7: the gauges of the outbox and the ledger, read from the database whenever metrics are written.

mod dead_letters;
mod ledger;
pub(crate) mod outbox;
mod sweeps;

use std::collections::BTreeMap;
use std::time::Duration;

use db::PgPool;
use tokio::time::Instant;

use self::dead_letters::{DeadLetters, count_dead_letters};
use self::ledger::Decisions;
use self::outbox::OutboxMark;
use self::sweeps::{Sweeps, read_sweep_gauges};

/// How long one gauge may take.
const FIGURE_LIMIT: Duration = Duration::from_secs(2);
/// After this many failures the rest is skipped, because the database is unavailable.
const MOST_FAILURES: u32 = 2;

/// The gauges of the outbox and the ledger; `None` = it could not be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauges {
    /// The age of the oldest edit that is neither published nor failed.
    pub(crate) lag_secs: Option<f64>,
    /// 1 while the database waits for acceptance, because it was restored or cloned; else 0.
    pub(crate) held: Option<i64>,
    /// For how many transactions vacuum has been unable to remove dead rows, if the schema's owner sees all sessions.
    pub(crate) xmin_age: Option<i64>,
    /// Outbox rows of failed workflows; a row whose workflow was revived since does not count.
    pub(crate) failed_rows: Option<i64>,
    /// Workflows by the class of drift that was found and is not repaired yet.
    pub(crate) drift: Option<BTreeMap<String, i64>>,
    /// The gauges of the sweeps.
    pub(crate) sweeps: Option<Sweeps>,
    /// Seconds since the oldest due time without a decision passed its grace.
    pub(crate) ledger_lag_secs: Option<f64>,
    /// Due times of the last hour by decision.
    pub(crate) decisions: Option<Decisions>,
    /// Runs abandoned in the last hour.
    pub(crate) runs_abandoned: Option<i64>,
    /// How many seconds the oldest accepted run has waited since it was allowed to start.
    pub(crate) runs_waiting_secs: Option<f64>,
    /// Fires of the last hour that the published expression does not name by our zone data.
    pub(crate) fires_disagree: Option<i64>,
    /// Runs of the last hour that failed or timed out.
    pub(crate) runs_failed: Option<i64>,
    /// Workflows that cronbox has paused because their runs failed.
    pub(crate) auto_paused: Option<i64>,
    /// Due times of the last hour that did not run because of an earlier run of their workflow.
    pub(crate) skipped_overlap: Option<i64>,
    /// Messages of notifications that failed in the last hour and are still failed.
    pub(crate) messages_failed: Option<i64>,
    /// Mirrored messages of the dead-letter queues; `None` also if no queue is mirrored.
    pub(crate) dead_letters: Option<DeadLetters>,
    /// How many of the gauges above could not be read, or were skipped after too many failures.
    pub(crate) unread: i64,
}

/// Reads the gauges within `limit`, because metrics come last, when a Lambda has little time left.
pub(crate) async fn read_gauges(
    pool: &PgPool,
    outbox: &OutboxMark,
    queues: &[&'static str],
    limit: Duration,
) -> Gauges {
    let mut reading = Reading { began: Instant::now(), limit, failures: 0, unread: 0 };
    Gauges {
        lag_secs: reading.figure("outbox lag", outbox.lag_secs(pool)).await,
        held: reading.figure("hold", held(pool)).await,
        xmin_age: reading.figure("xmin age", xmin_age(pool)).await.flatten(),
        failed_rows: reading.figure("failed rows", failed_rows(pool)).await,
        drift: reading.figure("drift", drift(pool)).await,
        sweeps: reading.figure("sweeps", read_sweep_gauges(pool)).await,
        ledger_lag_secs: reading.figure("ledger lag", ledger::lag_secs(pool)).await,
        decisions: reading.figure("decisions", ledger::count_decisions(pool)).await,
        runs_abandoned: reading.figure("runs abandoned", ledger::runs_abandoned(pool)).await,
        runs_waiting_secs: reading.figure("runs waiting", ledger::runs_waiting_secs(pool)).await,
        fires_disagree: reading.figure("disagreements", ledger::count_disagreements(pool)).await,
        runs_failed: reading.figure("runs failed", ledger::runs_failed(pool)).await,
        auto_paused: reading.figure("auto paused", ledger::auto_paused(pool)).await,
        skipped_overlap: reading.figure("skipped by overlap", ledger::times_skipped_by_overlap(pool)).await,
        messages_failed: reading.figure("messages failed", ledger::messages_failed(pool)).await,
        dead_letters: match queues {
            [] => None,
            queues => reading.figure("dead letters", count_dead_letters(pool, queues)).await,
        },
        unread: reading.unread,
    }
}

/// The progress of reading all gauges.
struct Reading {
    began: Instant,
    limit: Duration,
    failures: u32,
    /// How many failed or were skipped.
    unread: i64,
}

impl Reading {
    /// Reads one gauge. If it fails or is slow, the gauges before and after it are not affected.
    async fn figure<T>(&mut self, name: &str, read: impl Future<Output = sqlx::Result<T>>) -> Option<T> {
        if self.failures >= MOST_FAILURES {
            self.unread += 1;
            return None;
        }
        let limit = FIGURE_LIMIT.min(self.limit.saturating_sub(self.began.elapsed()));
        let error = match tokio::time::timeout(limit, read).await {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:.1} s", limit.as_secs_f64()),
        };
        self.failures += 1;
        self.unread += 1;
        tracing::warn!(figure = name, error, "gauge not read");
        None
    }
}

impl Gauges {
    /// Times and runs abandoned in the last hour.
    pub(crate) fn count_abandoned(&self) -> Option<i64> {
        Some(self.decisions.as_ref()?.not_run + self.runs_abandoned?)
    }
}

async fn held(pool: &PgPool) -> sqlx::Result<i64> {
    let is_held = sqlx::query_scalar!(
        r#"
        -- held: also if the server or database is another one and no process has recorded that yet
        SELECT cronbox_hold() IS NOT NULL AS "is_held!"
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(i64::from(is_held))
}

async fn xmin_age(pool: &PgPool) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- xmin age
        SELECT cronbox_xmin_age() AS age
        "#
    )
    .fetch_one(pool)
    .await
}

async fn failed_rows(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- failed rows
        SELECT COUNT(*) AS "count!"
          FROM outbox_events AS o
          JOIN publications AS p ON p.workflow_id = o.aggregate_id
         WHERE o.failed_on IS NOT NULL
           AND o.processed_on IS NULL
           AND p.error_class = 'permanent'
        "#
    )
    .fetch_one(pool)
    .await
}

async fn drift(pool: &PgPool) -> sqlx::Result<BTreeMap<String, i64>> {
    let classes = sqlx::query!(
        r#"
        -- drift
        SELECT drift AS "class!", COUNT(*) AS "count!" FROM publications WHERE drift IS NOT NULL GROUP BY drift
        "#
    )
    .fetch_all(pool)
    .await?;
    Ok(classes.into_iter().map(|row| (row.class, row.count)).collect())
}
