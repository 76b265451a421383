//! Step 7 of 7: decides what a fire means. A cache is the fast path, the table is the judge.
//!
//! EventBridge is only the alarm clock: it may repeat, lag, or fire by an old schedule. So every
//! fire is judged by the schedule version that was in force *at its time*, under the workflow's
//! lock, and the decision, the occurrence and the run commit together.

mod decide;
mod disagreement;
mod group;
mod plain;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use moka::future::Cache;
use schedule::{Fire, WorkflowId};
use uuid::Uuid;

use crate::inject::{self, Point};
use crate::outbox::Healing;

/// What a fire led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A run was accepted.
    Accepted(Uuid),
    /// This time already had this run.
    Duplicate(Uuid),
    /// No run, for this reason.
    Declined(Reason),
    /// The workflow is unknown or archived; whether its orphan is being removed.
    Gone(Healing),
    /// The time is too far in the future: somebody's clock is wrong.
    ClockSkew,
    /// The time is late and the database was restored: whether it ran is unknown until the ledger is accepted.
    Held,
}

/// Why a fire led to no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The workflow is paused, or was at that time.
    Paused,
    /// The time lies outside `starts_at` to `ends_at`.
    OutsideWindow,
    /// The fire is of a schedule older than the one in force at its time.
    StaleRevision,
    /// The schedule did not owe this time.
    NotDue,
    /// The same, and the published expression does not name this time: zone data or a clock differ.
    #[serde(rename = "not_due")]
    Disagrees,
    /// Too late to run.
    TooOld,
    /// The time had been missed.
    Missed,
    /// The run before it had not ended.
    Overlap,
    /// The time had been given up.
    Abandoned,
}

impl Reason {
    /// The word in the answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Paused => "paused",
            Reason::OutsideWindow => "outside_window",
            Reason::StaleRevision => "stale_revision",
            Reason::NotDue | Reason::Disagrees => "not_due",
            Reason::TooOld => "too_old",
            Reason::Missed => "missed",
            Reason::Overlap => "overlap",
            Reason::Abandoned => "abandoned",
        }
    }
}

/// Decides fires, one at a time for each workflow and minute.
#[derive(Clone)]
pub struct Judge {
    group: group::Group,
    runs: Runs,
}

/// The runs of the times that were decided here.
type Runs = Cache<(WorkflowId, DateTime<Utc>), Uuid>;

/// What a first caller found instead of a run; shared with those who asked at the same moment.
enum NoRun {
    Answer(Answer),
    Failed(Arc<sqlx::Error>),
}

impl From<Arc<sqlx::Error>> for NoRun {
    fn from(error: Arc<sqlx::Error>) -> Self {
        Self::Failed(error)
    }
}

impl Judge {
    /// A judge with an empty cache, of a ledger that keeps its rows for so long.
    #[must_use]
    pub fn new(pool: PgPool, kept: TimeDelta) -> Self {
        let runs = Cache::builder()
            .max_capacity(100_000)
            .time_to_live(Duration::from_secs(30 * 60))
            .support_invalidation_closures()
            .build();
        Self { group: group::Group::new(pool, kept, runs.clone()), runs }
    }

    /// Forgets the runs of workflows that were deleted: their fires are answered by the table again.
    pub fn forget(&self, deleted: HashSet<WorkflowId>) {
        if !deleted.is_empty() {
            let forgotten = self.runs.invalidate_entries_if(move |(workflow, _), _| deleted.contains(workflow));
            // It fails only if the cache was built without support for closures.
            debug_assert!(forgotten.is_ok(), "{forgotten:?}");
        }
    }

    /// Decides a fire by the database's time at the decision: a request may have waited for its turn.
    ///
    /// Only rows that have a run are cached, and only after their commit: an entry never speaks of
    /// a run that a rollback took back. Callers at the same moment share one decision.
    ///
    /// # Errors
    /// Fails if the database fails; then no decision is recorded.
    pub async fn judge(&self, fire: &Fire) -> Result<Answer, Arc<sqlx::Error>> {
        let mut accepted = None;
        let key = (fire.workflow_id, fire.scheduled_time);
        let decided = self.runs.try_get_with(key, async {
            match self.group.decide(fire).await? {
                Answer::Accepted(run) => Ok(*accepted.insert(run)),
                Answer::Duplicate(run) => Ok(run),
                other => Err(NoRun::Answer(other)),
            }
        });
        match decided.await {
            Ok(run) if accepted == Some(run) => {
                inject::at(Point::I3);
                Ok(Answer::Accepted(run))
            }
            Ok(run) => Ok(Answer::Duplicate(run)),
            Err(shared) => match &*shared {
                NoRun::Answer(answer) => Ok(*answer),
                NoRun::Failed(error) => Err(error.clone()),
            },
        }
    }
}
