//! Step 7 of 7: writes the decisions of a batch of fires, each with its run, in one statement.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::Fire;
use uuid::Uuid;
use workflows::reasons::ReasonCode;

use super::{Answer, Reason};
use crate::occurrences::Decision;
use crate::runs::{RunState, StartedRun};

/// A fire that the batch has decided.
pub(super) struct FireDecision<'a> {
    pub(super) fire: &'a Fire,
    pub(super) team_id: i64,
    pub(super) revision: i64,
    pub(super) run_after: DateTime<Utc>,
    pub(super) now: DateTime<Utc>,
    /// Whether its run may start at once, if the instance has a slot for it.
    pub(super) may_start: bool,
    pub(super) outcome: Outcome,
}

/// The recorded fires of a batch.
pub(super) struct RecordedFires {
    /// The answers by workflow.
    pub(super) answers: HashMap<i64, Answer>,
    /// The runs that are `running`, with a lease of this instance.
    pub(super) started: Vec<StartedRun>,
}

/// The outcome of a fire of the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its run is accepted, queued, or running on this instance.
    Runs(RunState),
    /// It is skipped, because a previous run has not ended.
    Skipped(ReasonCode),
    /// It is skipped, because a freeze is or was in force; the text of the person who froze the schedules.
    Frozen(String),
}

impl Outcome {
    fn run_state(&self) -> Option<RunState> {
        match self {
            Self::Runs(state) => Some(*state),
            Self::Skipped(_) | Self::Frozen(_) => None,
        }
    }

    fn decision(&self) -> Decision {
        match self {
            Self::Runs(_) => Decision::Fired,
            Self::Skipped(_) => Decision::SkippedOverlap,
            Self::Frozen(_) => Decision::SkippedPaused,
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::Runs(_) => None,
            Self::Skipped(reason) => Some(reason.as_str().to_owned()),
            Self::Frozen(text) => Some(workflows::reasons::Reason::of_freeze(text).to_string()),
        }
    }
}

/// Records the fires and their runs. A run that is `running` begins with its first attempt, whose lease belongs to the
/// instance of `lease` for so many seconds: its columns are those that a claim sets.
///
/// The UNIQUE constraint still prevents a second decision: it makes the statement fail, and each fire is decided on its own.
/// The locks of the workflows prevent that, so the statement needs no `ON CONFLICT`, which confirms each row by a second
/// record in the WAL.
pub(super) async fn record_fires(
    tx: &mut PgConnection,
    decisions: &[FireDecision<'_>],
    lease: Option<(Uuid, f64)>,
) -> sqlx::Result<RecordedFires> {
    let (instance, lease_secs) = lease.unzip();
    let all = decisions.iter();
    let occurrences: Vec<Uuid> = all.clone().map(|one| workflows::id::make_id(one.now)).collect();
    let states: Vec<Option<String>> =
        all.clone().map(|one| one.outcome.run_state().map(|state| state.in_words().to_owned())).collect();
    let runs: Vec<Option<Uuid>> =
        all.clone().map(|one| one.outcome.run_state().map(|_| workflows::id::make_id(one.now))).collect();
    let decided: Vec<_> = all.clone().map(|one| one.outcome.decision().as_str().to_owned()).collect();
    let reasons: Vec<Option<String>> = all.clone().map(|one| one.outcome.reason()).collect();
    let workflows: Vec<_> = all.clone().map(|one| one.fire.workflow_id.0).collect();
    let times: Vec<_> = all.clone().map(|one| one.fire.scheduled_time).collect();
    let revisions: Vec<_> = all.clone().map(|one| one.revision).collect();
    let raw_times: Vec<_> = all.clone().map(|one| one.fire.raw_time.clone()).collect();
    let executions: Vec<_> = all.clone().map(|one| one.fire.execution_id.clone()).collect();
    let attempts: Vec<_> = all.clone().map(|one| one.fire.attempt).collect();
    let run_after: Vec<_> = all.clone().map(|one| one.run_after).collect();
    let teams: Vec<_> = all.clone().map(|one| one.team_id).collect();
    // Nearly always empty: then unnest gives each row NULL, and nothing is copied.
    let traces: Vec<Option<String>> = match all.clone().any(|one| one.fire.traceparent.is_some()) {
        true => all.clone().map(|one| one.fire.traceparent.clone()).collect(),
        false => Vec::new(),
    };
    let now: Vec<_> = all.map(|one| one.now).collect();
    sqlx::query!(
        r#"
        -- accept a batch: each run with its occurrence, or neither
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::bigint[], $6::text[],
                                 $7::text[], $8::integer[], $9::timestamptz[], $10::timestamptz[], $11::bigint[],
                                 $12::text[], $13::text[], $14::text[], $17::text[])
                AS given (id, run_id, workflow_id, time, revision, raw_time, execution_id, attempt, run_after, now, team_id,
                          decision, reason, state, traceparent)
        ), recorded AS (
            INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, reason, revision, run_id, raw_time,
                                     execution_id, attempt, lateness_s, decided_on, created_on, updated_on)
            SELECT id, workflow_id, time, decision, reason, revision, run_id, raw_time, execution_id, attempt,
                   trunc(EXTRACT(EPOCH FROM now - time))::bigint, now, now, now
              FROM given
             ORDER BY workflow_id
        )
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, team_id,
                          attempt, started_on, locked_by, locked_at, lease_until, traceparent)
        SELECT run_id, workflow_id, id, 'schedule', state, time, run_after, now, team_id,
               CASE state WHEN 'running' THEN 1 ELSE 0 END,
               CASE state WHEN 'running' THEN now END,
               CASE state WHEN 'running' THEN $15::uuid END,
               CASE state WHEN 'running' THEN (SELECT cronbox_now()) END,
               CASE state WHEN 'running' THEN (SELECT cronbox_now()) + make_interval(secs => $16) END,
               traceparent
          FROM given
         WHERE run_id IS NOT NULL
        "#,
        &occurrences,
        &runs as &[Option<Uuid>],
        &workflows,
        &times,
        &revisions,
        &raw_times,
        &executions as &[Option<String>],
        &attempts as &[Option<i32>],
        &run_after,
        &now,
        &teams,
        &decided,
        &reasons as &[Option<String>],
        &states as &[Option<String>],
        instance,
        lease_secs,
        &traces as &[Option<String>],
    )
    .execute(tx)
    .await?;
    let recorded = decisions.iter().zip(runs);
    let started = recorded.clone().filter_map(|(one, run)| one.started_run(run?));
    let answers = recorded.map(|(one, run)| (one.fire.workflow_id.0, one.answer(run)));
    Ok(RecordedFires { answers: answers.collect(), started: started.collect() })
}

impl FireDecision<'_> {
    fn started_run(&self, id: Uuid) -> Option<StartedRun> {
        let Fire { workflow_id, scheduled_time, traceparent, .. } = self.fire;
        let is_started = self.outcome == Outcome::Runs(RunState::Running);
        let (workflow_id, scheduled_time) = (workflow_id.0, *scheduled_time);
        is_started.then(|| StartedRun { id, workflow_id, scheduled_time, traceparent: traceparent.clone() })
    }

    fn answer(&self, run: Option<Uuid>) -> Answer {
        match run {
            Some(run) if self.outcome == Outcome::Runs(RunState::Running) => Answer::Started(run),
            Some(run) => Answer::Accepted(run),
            None if matches!(self.outcome, Outcome::Frozen(_)) => Answer::Declined(Reason::Paused),
            None => Answer::Declined(Reason::Overlap),
        }
    }
}
