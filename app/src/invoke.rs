//! Step 7 of 7: decides fires. A cache is the fast path; the table is authoritative.
//!
//! EventBridge only sends the signal: it may repeat a fire, delay it, or send it by an old schedule. So each fire is
//! decided by the schedule version that was in force *at its time*, under the workflow's lock. The decision, the
//! occurrence and the run commit together.

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

/// The outcome of a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A run was accepted.
    Accepted(Uuid),
    /// This time already had this run.
    Duplicate(Uuid),
    /// There is no run, for this reason.
    Declined(Reason),
    /// The workflow is unknown or archived; whether the removal of its orphan was requested.
    Gone(Healing),
    /// The time is too far in the future, so a clock is wrong.
    ClockSkew,
    /// The time is late and the database was restored: whether it ran is unknown until the ledger is accepted.
    Held,
}

/// Why a fire starts no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The workflow is paused, or was paused at that time.
    Paused,
    /// The time lies outside `starts_at` to `ends_at`.
    OutsideWindow,
    /// The fire comes from a schedule older than the one in force at its time.
    StaleRevision,
    /// The time was not due.
    NotDue,
    /// The time was not due, and the published expression does not name it: zone data or a clock differ.
    #[serde(rename = "not_due")]
    Disagrees,
    /// Too late to run.
    TooOld,
    /// The time was missed.
    Missed,
    /// The previous run had not ended.
    Overlap,
    /// The time was abandoned.
    Abandoned,
}

impl Reason {
    /// The code in the answer.
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

/// The runs of the times that this instance decided.
type Runs = Cache<(WorkflowId, DateTime<Utc>), Uuid>;

/// What the first caller got instead of a run; concurrent callers share it.
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
    /// Creates it with an empty cache. `kept` is how long the ledger keeps its rows.
    #[must_use]
    pub fn new(pool: PgPool, kept: TimeDelta) -> Self {
        let runs = Cache::builder()
            .max_capacity(100_000)
            .time_to_live(Duration::from_secs(30 * 60))
            .support_invalidation_closures()
            .build();
        Self { group: group::Group::new(pool, kept, runs.clone()), runs }
    }

    /// Removes the runs of deleted workflows from the cache, so that the table answers their fires.
    pub fn forget(&self, deleted: HashSet<WorkflowId>) {
        if !deleted.is_empty() {
            let forgotten = self.runs.invalidate_entries_if(move |(workflow, _), _| deleted.contains(workflow));
            // Fails only if the cache was built without support for closures.
            debug_assert!(forgotten.is_ok(), "{forgotten:?}");
        }
    }

    /// Decides a fire by the database's time at the decision, because a request may have waited.
    ///
    /// Only times that have a run are cached, and only after their commit, so no entry names a run that was rolled
    /// back. Concurrent callers share one decision.
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
