//! Step 7 of 7: decides one fire for all who ask at the same moment, and remembers its run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use db::PgPool;
use moka::future::Cache;
use schedule::{Fire, WorkflowId};

use super::Answer;
use super::group::{Group, Runs};
use crate::inject::{self, Point};

/// Decides fires, one at a time for each workflow and minute.
#[derive(Clone)]
pub struct Judge {
    group: Group,
    runs: Runs,
}

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
        Self { group: Group::new(pool, kept, runs.clone()), runs }
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
    /// The database's; nothing was decided then.
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
