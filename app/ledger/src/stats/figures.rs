//! Step 7 of 7: the figures of the statistics.

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use schedule::delivery::GRACE;

use crate::occurrences::Decision;

/// Which workflows, and which span.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Only workflows of this team; `None` = all.
    pub team_id: Option<i64>,
    /// Only this workflow; `None` = all.
    pub workflow_id: Option<i64>,
    /// Counts decisions and ends of runs from this time on, the start of a minute.
    pub from: DateTime<Utc>,
    /// Counts up to this time, which is now.
    pub to: DateTime<Utc>,
}

impl Scope {
    /// The last part of the time of all workflows, from the start of a minute on.
    #[must_use]
    pub fn of_last(span: TimeDelta, to: DateTime<Utc>) -> Self {
        let from = (to - span).trunc_subsecs(0);
        let from = from - TimeDelta::seconds(from.timestamp().rem_euclid(60));
        Self { team_id: None, workflow_id: None, from, to }
    }
}

/// How long fires took from their scheduled time to their decision, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Number of fires.
    pub count: i64,
    /// The median.
    pub p50_s: f64,
    /// The 95th percentile.
    pub p95_s: f64,
    /// The maximum.
    pub max_s: i64,
}

/// Runs that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executions {
    /// All of them.
    pub total: i64,
    /// Succeeded.
    pub successful: i64,
    /// Abandoned, but not by a shutdown: it is unknown whether their action completed.
    pub lost: i64,
    /// How often a run was handed over, at a shutdown or because the reply to its claim was lost.
    pub handed_over: i64,
    /// Abandoned because a shutdown interrupted them and `on_lost` is `abandon`.
    pub cut_off: i64,
    /// How often a run continued after its instance was lost.
    pub recovery_attempts: i64,
    /// Of the runs that continued, those that succeeded.
    pub recovered: i64,
    /// Of the runs that continued, those that failed, timed out or were cancelled.
    pub recovery_failed: i64,
    /// Of the runs that continued, those that were abandoned.
    pub recovery_abandoned: i64,
}

/// The statistics of the ledger.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The delay of fires.
    pub delay: Delay,
    /// Number of due times by decision; a decision that no time has is left out.
    pub decisions: Vec<(Decision, i64)>,
    /// The results of runs.
    pub executions: Executions,
    /// Runs that wait or execute.
    pub live: i64,
    /// The scheduled time of the oldest occurrence whose run has not ended.
    pub oldest_unresolved: Option<DateTime<Utc>>,
    /// The earliest time that the watchdog still has to decide. `None` or the end of the watchdog's last pass, if it is not
    /// behind.
    pub watch_at: Option<DateTime<Utc>>,
}

impl Stats {
    /// Seconds by which the watchdog is behind; 0 while no undecided time is older than its grace.
    #[must_use]
    pub fn lag_s(&self, now: DateTime<Utc>) -> i64 {
        self.watch_at.map_or(0, |watch_at| (now - GRACE - watch_at).num_seconds().max(0))
    }

    /// How many times have this decision.
    #[must_use]
    pub fn decision_count(&self, decision: Decision) -> i64 {
        self.decisions.iter().find(|(other, _)| *other == decision).map_or(0, |(_, count)| *count)
    }
}
