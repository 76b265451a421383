//! Step 7 of 7: decides what a fire means. A cache is the fast path, the table is the judge.
//!
//! EventBridge is only the alarm clock: it may repeat, lag, or fire by an old schedule. So every
//! fire is judged by the schedule version that was in force *at its time*, under the workflow's
//! lock, and the decision, the occurrence and the run commit together.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use moka::future::Cache;
use schedule::{Fire, WorkflowId};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::config::{CATCH_UP_WINDOW, CLOCK_SKEW, RETENTION};
use crate::occurrences::{self, Decision, Entry, Occurrence, Recorded};
use crate::outbox::{self, Healing};
use crate::runs::{self, Trigger};
use crate::versions::{self, Owes, Version};
use crate::workflows::{self, State};

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
    /// The same, though EventBridge says exactly what the cron says: zone data or a clock differ.
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
    pool: PgPool,
    runs: Cache<(WorkflowId, DateTime<Utc>), Uuid>,
}

/// What a first caller found instead of a run; shared with those who asked at the same moment.
enum NoRun {
    Answer(Answer),
    Failed(Arc<sqlx::Error>),
}

impl From<sqlx::Error> for NoRun {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(Arc::new(error))
    }
}

impl Judge {
    /// A judge with an empty cache.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        let runs = Cache::builder().max_capacity(100_000).time_to_live(Duration::from_secs(30 * 60)).build();
        Self { pool, runs }
    }

    /// Decides a fire.
    ///
    /// Only rows that have a run are cached, and only after their commit: an entry never speaks of
    /// a run that a rollback took back. Callers at the same moment share one decision.
    ///
    /// # Errors
    /// The database's; nothing was decided then.
    pub async fn judge(&self, fire: &Fire, now: DateTime<Utc>) -> Result<Answer, Arc<sqlx::Error>> {
        let mut accepted = None;
        let key = (fire.workflow_id, fire.scheduled_time);
        let decided = self.runs.try_get_with(key, async {
            match decide(&self.pool, fire, now).await? {
                Answer::Accepted(run) => Ok(*accepted.insert(run)),
                Answer::Duplicate(run) => Ok(run),
                other => Err(NoRun::Answer(other)),
            }
        });
        match decided.await {
            Ok(run) if accepted == Some(run) => Ok(Answer::Accepted(run)),
            Ok(run) => Ok(Answer::Duplicate(run)),
            Err(shared) => match &*shared {
                NoRun::Answer(answer) => Ok(*answer),
                NoRun::Failed(error) => Err(error.clone()),
            },
        }
    }
}

async fn decide(pool: &PgPool, fire: &Fire, now: DateTime<Utc>) -> sqlx::Result<Answer> {
    let mut tx = db::begin(pool).await?;
    let answer = decide_locked(&mut tx, fire, now).await?;
    tx.commit().await?;
    Ok(answer)
}

/// The cases of product.md section 7, in their order, under the workflow's lock.
async fn decide_locked(tx: &mut PgConnection, fire: &Fire, now: DateTime<Utc>) -> sqlx::Result<Answer> {
    let workflow = workflows::lock(tx, fire.workflow_id, None, now).await?;
    let standing = occurrences::find(tx, fire.workflow_id, fire.scheduled_time).await?;
    if let Some(answer) = standing.as_ref().and_then(decided_already) {
        return Ok(answer);
    }
    let Some(workflow) = workflow.filter(|workflow| workflow.state != State::Archived) else {
        return Ok(Answer::Gone(outbox::heal_orphan(tx, fire.workflow_id, now).await?));
    };
    if fire.scheduled_time > now + CLOCK_SKEW {
        return Ok(Answer::ClockSkew);
    }
    let version = match owed_by(tx, fire).await? {
        Ok(version) => version,
        Err(reason) => return Ok(Answer::Declined(reason)),
    };
    let age = now - fire.scheduled_time;
    if age > CATCH_UP_WINDOW.min(RETENTION) {
        if age <= RETENTION {
            let reason = Some("older than the catch-up window");
            note(tx, &Entry { fire, decision: Decision::Missed, reason, revision: version, run_id: None, now }).await?;
        }
        return Ok(Answer::Declined(Reason::TooOld));
    }
    if workflow.state == State::Paused {
        let reason = workflow.pause_reason.as_deref();
        note(tx, &Entry { fire, decision: Decision::SkippedPaused, reason, revision: version, run_id: None, now })
            .await?;
        return Ok(Answer::Declined(Reason::Paused));
    }
    accept(tx, fire, version, now).await
}

/// The answer that a decision of before gives again; a missed time is open to a later one.
fn decided_already(standing: &Occurrence) -> Option<Answer> {
    match (standing.run_id, standing.decision) {
        (Some(run), _) => Some(Answer::Duplicate(run)),
        (None, Decision::SkippedOverlap) => Some(Answer::Declined(Reason::Overlap)),
        (None, Decision::SkippedPaused) => Some(Answer::Declined(Reason::Paused)),
        (None, Decision::Abandoned) => Some(Answer::Declined(Reason::Abandoned)),
        (None, _) => None,
    }
}

/// The revision of the version that owed the fire's time, or why none did.
async fn owed_by(tx: &mut PgConnection, fire: &Fire) -> sqlx::Result<Result<i64, Reason>> {
    let Some(version) = versions::in_force(tx, fire.workflow_id, fire.scheduled_time).await? else {
        return Ok(Err(Reason::NotDue));
    };
    let stale = fire.revision.is_some_and(|revision| revision.0 < version.revision);
    Ok(match version.owes(fire.scheduled_time) {
        Owes::Yes => Ok(version.revision),
        Owes::Paused => Err(Reason::Paused),
        Owes::OutsideWindow => Err(Reason::OutsideWindow),
        Owes::NotDue | Owes::Disagrees if stale => Err(Reason::StaleRevision),
        Owes::Disagrees if fire.revision.is_some() => Err(Reason::Disagrees),
        Owes::NotDue | Owes::Disagrees => Err(Reason::NotDue),
        Owes::Unjudged if by_the_same_timing(tx, fire, &version).await? => {
            tracing::warn!(workflow_id = fire.workflow_id.0, "unjudged: the timezone or cron is not known any more");
            Ok(version.revision)
        }
        Owes::Unjudged if stale => Err(Reason::StaleRevision),
        Owes::Unjudged => Err(Reason::NotDue),
    })
}

/// Whether a fire that nobody can judge comes from the very timing that is in force.
async fn by_the_same_timing(tx: &mut PgConnection, fire: &Fire, in_force: &Version) -> sqlx::Result<bool> {
    let Some(revision) = fire.revision else { return Ok(false) };
    let published = versions::by_revision(tx, fire.workflow_id, revision).await?;
    Ok(published
        .is_some_and(|published| (&published.cron, &published.timezone) == (&in_force.cron, &in_force.timezone)))
}

async fn accept(tx: &mut PgConnection, fire: &Fire, revision: i64, now: DateTime<Utc>) -> sqlx::Result<Answer> {
    let id = crate::id::at(now);
    let entry = Entry { fire, decision: Decision::Fired, reason: None, revision, run_id: Some(id), now };
    let Recorded::Ours(occurrence) = occurrences::record(tx, &entry).await? else {
        // Not under the workflow's lock; UNIQUE is the judge all the same.
        let theirs = occurrences::find(tx, fire.workflow_id, fire.scheduled_time).await?;
        return Ok(theirs.as_ref().and_then(decided_already).unwrap_or(Answer::Declined(Reason::Missed)));
    };
    let run = runs::New {
        id,
        workflow_id: fire.workflow_id,
        occurrence_id: Some(occurrence),
        trigger: Trigger::Schedule,
        scheduled_time: Some(fire.scheduled_time),
        now,
    };
    runs::accept(tx, &run).await?;
    Ok(Answer::Accepted(id))
}

/// Records a decision without a run; a row that stands already is left as it is.
async fn note(tx: &mut PgConnection, entry: &Entry<'_>) -> sqlx::Result<()> {
    occurrences::record(tx, entry).await.map(drop)
}
