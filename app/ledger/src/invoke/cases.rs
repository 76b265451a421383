//! Step 7 of 7: the cases of a fire, in their order, under the workflow's lock.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::Fire;
use schedule::delivery::GRACE;
use workflows::definition::policies::{CatchUp, Overlap};
use workflows::outbox;
use workflows::reasons::ReasonCode;
use workflows::{CLOCK_SKEW, State, Workflow};

use super::{Answer, Reason, disagreement};
use crate::admission::verdict::{self, Place};
use crate::catch_up::{self, Late};
use crate::due_times::{self, DueTime};
use crate::freezes::read_freezes;
use crate::identity;
use crate::occurrences::{self, Current, Decision, Entry, Recorded, record_occurrence};
use crate::runs::{self, RunState, Trigger, accept_run};
use crate::spread;
use crate::versions::{self, DueCheck, Version};

/// The outcome of a decision.
pub(super) struct Outcome {
    pub(super) answer: Answer,
    /// Times of the workflow whose runs it replaced, so that they have no run any more.
    pub(super) replaced: Vec<DateTime<Utc>>,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self { answer, replaced: Vec::new() }
    }
}

/// Decides a fire. The caller commits the decision, its occurrence and its run together.
///
/// `kept` is how long the ledger keeps its rows.
pub(super) async fn decide_under_lock(tx: &mut PgConnection, fire: &Fire, kept: TimeDelta) -> sqlx::Result<Outcome> {
    workflows::lock_row(tx, fire.workflow_id).await?;
    let current = occurrences::find_with_time(tx, fire.workflow_id, fire.scheduled_time).await?;
    if let Some(answer) = current.decision.and_then(|decision| decided_already(decision, &current)) {
        return Ok(answer.into());
    }
    let now = current.now;
    let workflow = workflows::find_locked_for_fire(tx, fire.workflow_id, fire.scheduled_time, now).await?;
    let Some(workflow) = workflow.filter(|workflow| workflow.state != State::Archived) else {
        return Ok(Answer::Gone(outbox::enqueue_orphan_cleanup(tx, fire.workflow_id, now).await?).into());
    };
    if fire.scheduled_time > now + CLOCK_SKEW {
        return Ok(Answer::ClockSkew.into());
    }
    // A fire on time cannot have run before the restore; a late one may have.
    if now - fire.scheduled_time > GRACE && identity::read_hold(tx).await?.is_some() {
        return Ok(Answer::Held.into());
    }
    match check_fire(tx, fire, now).await? {
        Ok(version) => {
            Case { fire, workflow: &workflow, due: due(fire, &version), version, kept, now }.decide(tx).await
        }
        Err(reason) => Ok(Answer::Declined(reason).into()),
    }
}

/// Returns the answer of an earlier decision. A missed time may still be decided again.
fn decided_already(decision: Decision, current: &Current) -> Option<Answer> {
    match (current.run_id, decision) {
        (Some(run), _) => Some(Answer::Duplicate(run)),
        (None, Decision::SkippedOverlap) => Some(Answer::Declined(Reason::Overlap)),
        (None, Decision::SkippedPaused) => Some(Answer::Declined(Reason::Paused)),
        (None, Decision::Abandoned) => Some(Answer::Declined(Reason::Abandoned)),
        (None, Decision::Missed) if current.reason.as_deref() == Some(ReasonCode::Restored.as_str()) => {
            Some(Answer::Declined(Reason::Missed))
        }
        (None, _) => None,
    }
}

/// The time of a fire, by the version in force.
fn due(fire: &Fire, version: &Version) -> DueTime {
    DueTime { time: fire.scheduled_time, revision: version.revision, ended_by: version.ended_by }
}

/// Returns the due time, or why the time was not due.
async fn check_fire(tx: &mut PgConnection, fire: &Fire, now: DateTime<Utc>) -> sqlx::Result<Result<Version, Reason>> {
    let Some(version) = versions::find_in_force(tx, fire.workflow_id, fire.scheduled_time).await? else {
        return Ok(Err(Reason::NotDue));
    };
    let stale = fire.revision.is_some_and(|revision| revision.0 < version.revision);
    let mut due_check = version.check_due(fire.scheduled_time);
    // A refusal is final, so check with the newest zone data first.
    if due_check == DueCheck::NotDue && db::load_zones(tx).await? {
        due_check = version.check_due(fire.scheduled_time);
    }
    Ok(match due_check {
        DueCheck::Due => Ok(version),
        DueCheck::Paused => Err(Reason::Paused),
        DueCheck::OutsideWindow => Err(Reason::OutsideWindow),
        DueCheck::NotDue if disagreement::is_disagreement(tx, fire, &version).await? => {
            disagreement::record_disagreement(tx, fire, now).await?;
            Err(Reason::Disagrees)
        }
        DueCheck::NotDue if stale => Err(Reason::StaleRevision),
        DueCheck::NotDue => Err(Reason::NotDue),
        DueCheck::Unjudged if by_the_same_timing(tx, fire, &version).await? => {
            tracing::warn!(
                workflow_id = fire.workflow_id.0,
                "fire accepted without evaluation: its timezone or cron is unknown, and it was published with the timing \
                 that is in force"
            );
            Ok(version)
        }
        DueCheck::Unjudged if stale => Err(Reason::StaleRevision),
        DueCheck::Unjudged => Err(Reason::NotDue),
    })
}

/// Whether a fire whose due times cannot be computed comes from the timing that is in force.
async fn by_the_same_timing(tx: &mut PgConnection, fire: &Fire, in_force: &Version) -> sqlx::Result<bool> {
    let Some(revision) = fire.revision else { return Ok(false) };
    let published = versions::find_by_revision(tx, fire.workflow_id, revision).await?;
    Ok(published.is_some_and(|published| published.timing.has_same_texts(&in_force.timing)))
}

/// A fire of a due time.
struct Case<'a> {
    fire: &'a Fire,
    workflow: &'a Workflow,
    due: DueTime,
    /// In force at that time.
    version: Version,
    kept: TimeDelta,
    now: DateTime<Utc>,
}

impl Case<'_> {
    async fn decide(&self, tx: &mut PgConnection) -> sqlx::Result<Outcome> {
        let age = self.now - self.due.time;
        let window = catch_up::late_run_window(&self.workflow.spec.policies);
        if age > self.kept {
            // The row of the time may have been pruned, so whether it ran is unknown. A catch-up window saved before
            // `CRONBOX_RETENTION_DAYS` was lowered may be longer.
            return Ok(Answer::Declined(Reason::TooOld).into());
        }
        let (due, now) = (self.due.time, self.now);
        let freezes = read_freezes(tx, due.min(now), now.max(due)).await?;
        if let Some(text) = freezes.reason_over(self.workflow.team_id, due, now) {
            let why = workflows::reasons::Reason::of_freeze(text).to_string();
            return self.decline(tx, Decision::SkippedPaused, Some(&why), Reason::Paused).await;
        }
        let earliest = freezes.earliest_start(self.workflow.team_id, due, now);
        if age > window {
            let why = Some(ReasonCode::OlderThanCatchUpWindow.as_str());
            return self.decline(tx, Decision::Missed, why, Reason::TooOld).await;
        }
        if self.workflow.state == State::Paused {
            let reason = self.workflow.pause_reason.as_deref();
            return self.decline(tx, Decision::SkippedPaused, reason, Reason::Paused).await;
        }
        if age > GRACE
            && let Late::NotRun(decision, why) =
                catch_up::decide_late_time(tx, self.workflow, &self.due, self.now).await?
        {
            let reason = if decision == Decision::SkippedPaused { Reason::Paused } else { Reason::Missed };
            return self.decline(tx, decision, Some(&why.to_string()), reason).await;
        }
        let is_deferred = age > GRACE || self.is_overtaken();
        let trigger = if is_deferred { Trigger::CatchUp } else { Trigger::Schedule };
        match verdict::decide_admission(tx, self.workflow, trigger, self.now).await?.initial_state() {
            Ok(RunState::Queued) if !is_deferred && self.workflow.spec.policies.overlap == Overlap::Skip => {
                self.wait(tx, earliest).await
            }
            Ok(state) => Ok(self.run(tx, trigger, state, earliest).await?.into()),
            Err(why) => self.decline(tx, Decision::SkippedOverlap, Some(why.as_str()), Reason::Overlap).await,
        }
    }

    /// Whether a fire within the grace is a retry after a later time became due, and the policy still runs it.
    ///
    /// The watchdog would defer such a time, so the overlap policy must not skip it. A time of a version that has ended
    /// does not run late, and no activation is later than the version in force, so nothing more has to be read.
    fn is_overtaken(&self) -> bool {
        if self.workflow.spec.policies.catch_up != CatchUp::RunAll || self.version.ended_on.is_some() {
            return false;
        }
        let later = due_times::list_due_times(std::slice::from_ref(&self.version), self.due.time, self.now, 1);
        !later.times.is_empty()
    }

    /// Queues the fire: under `skip` at most one waits, the newest.
    async fn wait(&self, tx: &mut PgConnection, earliest: DateTime<Utc>) -> sqlx::Result<Outcome> {
        match verdict::take_waiting_place(tx, self.workflow.id, self.due.time, self.now).await? {
            Place::Replaces(replaced) => {
                let answer = self.run(tx, Trigger::Schedule, RunState::Queued, earliest).await?;
                Ok(Outcome { answer, replaced })
            }
            Place::NewerWaits => {
                let why = Some(ReasonCode::PredecessorNotStarted.as_str());
                self.decline(tx, Decision::SkippedOverlap, why, Reason::Overlap).await
            }
        }
    }

    async fn run(
        &self,
        tx: &mut PgConnection,
        trigger: Trigger,
        state: RunState,
        earliest: DateTime<Utc>,
    ) -> sqlx::Result<Answer> {
        let id = workflows::id::make_id(self.now);
        let entry = Entry { run_id: Some(id), ..self.entry(Decision::Fired, None) };
        let Recorded::Ours(occurrence) = record_occurrence(tx, &entry).await? else {
            // Cannot happen under the workflow's lock; the UNIQUE constraint guards it nevertheless.
            let theirs = occurrences::find_with_time(tx, self.workflow.id, self.due.time).await?;
            let answer = theirs.decision.and_then(|decision| decided_already(decision, &theirs));
            return Ok(answer.unwrap_or(Answer::Declined(Reason::Missed)));
        };
        let run = runs::New {
            occurrence_id: Some(occurrence),
            scheduled_time: Some(self.due.time),
            run_after: self.run_after(earliest),
            traceparent: self.fire.traceparent.clone(),
            ..runs::New::unscheduled(id, trigger, self.now)
        };
        accept_run(tx, self.workflow, state, &run).await?;
        Ok(Answer::Accepted(id))
    }

    fn run_after(&self, earliest: DateTime<Utc>) -> DateTime<Utc> {
        let spread_secs = self.workflow.spec.policies.spread_secs;
        let timing = self.workflow.spec.timing.parsed_now();
        spread::run_after(self.workflow.id, spread_secs, timing, self.due.time, earliest)
    }

    /// Records a decision without a run; an existing row is not changed.
    async fn decline(
        &self,
        tx: &mut PgConnection,
        decision: Decision,
        why: Option<&str>,
        reason: Reason,
    ) -> sqlx::Result<Outcome> {
        record_occurrence(tx, &self.entry(decision, why)).await?;
        Ok(Answer::Declined(reason).into())
    }

    fn entry<'a>(&'a self, decision: Decision, reason: Option<&'a str>) -> Entry<'a> {
        Entry {
            workflow_id: self.workflow.id,
            time: self.due.time,
            fire: Some(self.fire),
            decision,
            reason,
            revision: self.due.revision,
            run_id: None,
            now: self.now,
        }
    }
}
