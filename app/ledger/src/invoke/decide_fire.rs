//! Step 7 of 7: decides one fire for all requests that wait for it, and caches its run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use db::PgPool;
use db::failpoint::pass_point;
use moka::future::Cache;
use schedule::{Fire, WorkflowId};
use workflows::failpoint::Point;

use super::Answer;
use super::batch::{FireBatches, Runs};
use crate::runs::OfferedSlots;

/// Decides fires, one at a time for each workflow and minute.
#[derive(Clone)]
pub struct FireDecider {
    batches: FireBatches,
    runs: Runs,
}

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

impl FireDecider {
    /// Creates a decider with an empty cache, whose runs wait for a claim. `kept` is how long the ledger keeps its rows.
    #[must_use]
    pub fn new(pool: PgPool, kept: TimeDelta) -> Self {
        Self::with_slots(pool, kept, OfferedSlots::default())
    }

    /// As [`Self::new`], but runs start at once in the slots that the executor of this instance offers.
    #[must_use]
    pub fn with_slots(pool: PgPool, kept: TimeDelta, slots: OfferedSlots) -> Self {
        let runs = Cache::builder()
            .max_capacity(100_000)
            .time_to_live(Duration::from_secs(30 * 60))
            .support_invalidation_closures()
            .build();
        Self { batches: FireBatches::new(pool, kept, runs.clone(), slots), runs }
    }

    /// Removes the runs of deleted workflows from the cache, so that the table answers their fires.
    pub fn forget_workflows(&self, deleted: HashSet<WorkflowId>) {
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
    pub async fn decide_fire(&self, fire: &Fire) -> Result<Answer, Arc<sqlx::Error>> {
        let mut first = None;
        let key = (fire.workflow_id, fire.scheduled_time);
        let decided = self.runs.try_get_with(key, async {
            let answer = self.batches.decide_in_batch(fire).await?;
            match answer {
                Answer::Accepted(run) | Answer::Started(run) => {
                    first = Some(answer);
                    Ok(run)
                }
                Answer::Duplicate(run) => Ok(run),
                other => Err(NoRun::Answer(other)),
            }
        });
        match decided.await {
            Ok(run) => match first {
                Some(answer) if answer.new_run() == Some(run) => {
                    pass_point(Point::I3);
                    Ok(answer)
                }
                _ => Ok(Answer::Duplicate(run)),
            },
            Err(shared) => match &*shared {
                NoRun::Answer(answer) => Ok(*answer),
                NoRun::Failed(error) => Err(error.clone()),
            },
        }
    }
}
