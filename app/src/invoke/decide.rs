//! Step 7 of 7: the cases of a fire, in their order, under the workflow's lock.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::Fire;
use sqlx::PgConnection;

use super::{Answer, Reason};
use crate::catch_up::{self, GRACE, Late};
use crate::config::CLOCK_SKEW;
use crate::occurrences::{self, Decision, Entry, Occurrence, Recorded};
use crate::outbox;
use crate::overlap;
use crate::owed::Owed;
use crate::runs::{self, RunState, Trigger};
use crate::spread;
use crate::versions::{self, Owes, Version};
use crate::workflows::{self, State, Workflow};

/// Decides a fire; the decision, its occurrence and its run are the caller's to commit together.
///
/// `kept` is for how long the ledger keeps its rows.
pub(super) async fn decide(
    tx: &mut PgConnection,
    fire: &Fire,
    kept: TimeDelta,
    now: DateTime<Utc>,
) -> sqlx::Result<Answer> {
    let is_of_the_future = fire.scheduled_time > now + CLOCK_SKEW;
    // A fire may come a moment early: at its own time a pause that ends then is over.
    let at = if is_of_the_future { now } else { now.max(fire.scheduled_time) };
    let workflow = workflows::lock(tx, fire.workflow_id, None, at).await?;
    let standing = occurrences::find(tx, fire.workflow_id, fire.scheduled_time).await?;
    if let Some(answer) = standing.as_ref().and_then(decided_already) {
        return Ok(answer);
    }
    let Some(workflow) = workflow.filter(|workflow| workflow.state != State::Archived) else {
        return Ok(Answer::Gone(outbox::heal_orphan(tx, fire.workflow_id, now).await?));
    };
    if is_of_the_future {
        return Ok(Answer::ClockSkew);
    }
    match owed_by(tx, fire).await? {
        Ok(owed) => Case { fire, workflow: &workflow, owed, kept, now }.decide(tx).await,
        Err(reason) => Ok(Answer::Declined(reason)),
    }
}

/// The answer that a decision of before gives again; a missed time is open to a later one.
pub(super) fn decided_already(standing: &Occurrence) -> Option<Answer> {
    match (standing.run_id, standing.decision) {
        (Some(run), _) => Some(Answer::Duplicate(run)),
        (None, Decision::SkippedOverlap) => Some(Answer::Declined(Reason::Overlap)),
        (None, Decision::SkippedPaused) => Some(Answer::Declined(Reason::Paused)),
        (None, Decision::Abandoned) => Some(Answer::Declined(Reason::Abandoned)),
        (None, _) => None,
    }
}

/// The time that was owed, or why none was.
async fn owed_by(tx: &mut PgConnection, fire: &Fire) -> sqlx::Result<Result<Owed, Reason>> {
    let Some(version) = versions::in_force(tx, fire.workflow_id, fire.scheduled_time).await? else {
        return Ok(Err(Reason::NotDue));
    };
    let owed = Owed { time: fire.scheduled_time, revision: version.revision, ended_by: version.ended_by };
    let stale = fire.revision.is_some_and(|revision| revision.0 < version.revision);
    Ok(match version.owes(fire.scheduled_time) {
        Owes::Yes => Ok(owed),
        Owes::Paused => Err(Reason::Paused),
        Owes::OutsideWindow => Err(Reason::OutsideWindow),
        Owes::NotDue | Owes::Disagrees if stale => Err(Reason::StaleRevision),
        Owes::Disagrees if fire.revision.is_some() => Err(Reason::Disagrees),
        Owes::NotDue | Owes::Disagrees => Err(Reason::NotDue),
        Owes::Unjudged if by_the_same_timing(tx, fire, &version).await? => {
            tracing::warn!(workflow_id = fire.workflow_id.0, "unjudged: the timezone or cron is not known any more");
            Ok(owed)
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

/// A fire of a time that was owed.
struct Case<'a> {
    fire: &'a Fire,
    workflow: &'a Workflow,
    owed: Owed,
    kept: TimeDelta,
    now: DateTime<Utc>,
}

impl Case<'_> {
    async fn decide(&self, tx: &mut PgConnection) -> sqlx::Result<Answer> {
        let age = self.now - self.owed.time;
        let window = catch_up::window(self.workflow);
        if age > self.kept.max(window) {
            // Its row may have been pruned: who knows whether it ran.
            return Ok(Answer::Declined(Reason::TooOld));
        }
        if age > window {
            return self.unrun(tx, Decision::Missed, Some("older than the catch-up window"), Reason::TooOld).await;
        }
        if self.workflow.state == State::Paused {
            let reason = self.workflow.pause_reason.as_deref();
            return self.unrun(tx, Decision::SkippedPaused, reason, Reason::Paused).await;
        }
        if age > GRACE
            && let Late::Unrun(decision, why) = catch_up::judge(tx, self.workflow, &self.owed, self.now).await?
        {
            let reason = if decision == Decision::SkippedPaused { Reason::Paused } else { Reason::Missed };
            return self.unrun(tx, decision, Some(why), reason).await;
        }
        match overlap::verdict(tx, self.workflow, Trigger::Schedule, self.now).await?.state() {
            Ok(state) => self.run(tx, state).await,
            Err(why) => self.unrun(tx, Decision::SkippedOverlap, Some(why), Reason::Overlap).await,
        }
    }

    async fn run(&self, tx: &mut PgConnection, state: RunState) -> sqlx::Result<Answer> {
        let id = crate::id::at(self.now);
        let entry = Entry { run_id: Some(id), ..self.entry(Decision::Fired, None) };
        let Recorded::Ours(occurrence) = occurrences::record(tx, &entry).await? else {
            // Not under the workflow's lock; UNIQUE is the judge all the same.
            let theirs = occurrences::find(tx, self.workflow.id, self.owed.time).await?;
            return Ok(theirs.as_ref().and_then(decided_already).unwrap_or(Answer::Declined(Reason::Missed)));
        };
        let run = runs::New {
            id,
            workflow_id: self.workflow.id,
            occurrence_id: Some(occurrence),
            trigger: Trigger::Schedule,
            state,
            scheduled_time: Some(self.owed.time),
            run_after: self.run_after(),
            inputs: None,
            backfill_id: None,
            now: self.now,
        };
        runs::accept(tx, &run).await?;
        Ok(Answer::Accepted(id))
    }

    fn run_after(&self) -> DateTime<Utc> {
        let spread_secs = self.workflow.spec.policies.spread_secs;
        spread::run_after(self.workflow.id, spread_secs, self.workflow.cron(), self.owed.time, self.now)
    }

    /// Records a decision without a run; a row that stands already is left as it is.
    async fn unrun(
        &self,
        tx: &mut PgConnection,
        decision: Decision,
        why: Option<&str>,
        reason: Reason,
    ) -> sqlx::Result<Answer> {
        occurrences::record(tx, &self.entry(decision, why)).await?;
        Ok(Answer::Declined(reason))
    }

    fn entry<'a>(&'a self, decision: Decision, reason: Option<&'a str>) -> Entry<'a> {
        Entry {
            workflow_id: self.workflow.id,
            time: self.owed.time,
            fire: Some(self.fire),
            decision,
            reason,
            revision: self.owed.revision,
            run_id: None,
            now: self.now,
        }
    }
}
