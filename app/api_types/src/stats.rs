//! The statistics of the ledger.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The statistics of the ledger.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct StatsView {
    /// The start of the minute in which the span begins.
    pub from: DateTime<Utc>,
    /// The end of the span, exclusive.
    pub to: DateTime<Utc>,
    /// How late the fires arrived.
    pub fire_delay: DelayView,
    /// Due times by decision.
    pub occurrences: DecisionsView,
    /// Runs that ended.
    pub executions: ExecutionsView,
    /// Runs that continued after their instance was lost.
    pub recoveries: RecoveriesView,
    /// Runs that wait or execute.
    pub live_runs: i64,
    /// The oldest occurrence whose run has not ended; null: every run has ended.
    pub oldest_unresolved: Option<DateTime<Utc>>,
    /// Seconds by which the watchdog is behind its grace of 300 s; normally at most 60, the interval of its turns.
    pub ledger_lag_s: i64,
    /// The span by buckets, the earliest first, only those in which something happened; null without `bucket_secs`.
    pub buckets: Option<Vec<BucketView>>,
}

/// What happened in a part of the span.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct BucketView {
    /// The first time of the span.
    pub from: DateTime<Utc>,
    /// Due times that were decided in it.
    pub occurrences: DecisionsView,
    /// Runs that ended in it.
    pub runs: i64,
    /// Of these, those that succeeded.
    pub successful: i64,
}

/// Seconds from the scheduled time of fires to their decision. Percentiles of 8 s or more are rounded up, by a quarter at
/// most, except those of one workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DelayView {
    /// Number of fires.
    pub count: i64,
    /// Half took at most this long.
    pub p50_s: f64,
    /// 95 of 100 took at most this long.
    pub p95_s: f64,
    /// The longest.
    pub max_s: i64,
}

/// Due times by decision.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DecisionsView {
    /// They ran.
    pub fired: i64,
    /// They ran late, by the catch-up policy.
    pub caught_up: i64,
    /// They ran by a backfill.
    pub backfilled: i64,
    /// They did not run, because the previous run had not ended.
    pub skipped_overlap: i64,
    /// They did not run, because the workflow was paused.
    pub skipped_paused: i64,
    /// They did not run, because no fire arrived in time.
    pub missed: i64,
    /// Their runs were abandoned.
    pub abandoned: i64,
}

/// Runs that ended.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ExecutionsView {
    /// How many.
    pub total: i64,
    /// Those that succeeded.
    pub successful: i64,
    /// Abandoned, but not by a shutdown: it is unknown whether their action completed.
    pub lost: i64,
    /// How often a run was handed over, at a shutdown or because the reply to its claim was lost.
    pub handed_over: i64,
    /// Abandoned because a shutdown interrupted them and `on_lost` is `abandon`.
    pub cut_off: i64,
    /// Successful of all that ended, 0 to 1; null: none ended.
    pub success_rate: Option<f64>,
}

/// Runs that continued after their instance was lost.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RecoveriesView {
    /// How often a run continued.
    pub attempts: i64,
    /// Of these runs, those that succeeded.
    pub successful: i64,
    /// Of these runs, those that failed, timed out or were cancelled.
    pub failed: i64,
    /// Of these runs, those that were abandoned.
    pub abandoned: i64,
    /// Successful of those that ended, 0 to 1; null: none ended.
    pub success_rate: Option<f64>,
}
