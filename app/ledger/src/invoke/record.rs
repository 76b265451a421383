//! Step 7 of 7: writes the decisions of a batch of fires, each with its run, in one statement.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::Fire;
use uuid::Uuid;
use workflows::reasons::ReasonCode;

use super::{Answer, Reason};
use crate::occurrences::Decision;
use crate::runs::RunState;

/// A fire that the batch has decided.
pub(super) struct FireDecision<'a> {
    pub(super) fire: &'a Fire,
    pub(super) team_id: i64,
    pub(super) revision: i64,
    pub(super) run_after: DateTime<Utc>,
    pub(super) now: DateTime<Utc>,
    pub(super) outcome: Outcome,
}

/// The outcome of a fire of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its run is accepted, or queued.
    Runs(RunState),
    /// It is skipped, because a previous run has not ended.
    Skipped(ReasonCode),
}

impl Outcome {
    fn run_state(self) -> Option<RunState> {
        match self {
            Self::Runs(state) => Some(state),
            Self::Skipped(_) => None,
        }
    }

    fn decision(self) -> Decision {
        match self {
            Self::Runs(_) => Decision::Fired,
            Self::Skipped(_) => Decision::SkippedOverlap,
        }
    }

    fn reason(self) -> Option<ReasonCode> {
        match self {
            Self::Runs(_) => None,
            Self::Skipped(reason) => Some(reason),
        }
    }
}

/// Records the fires and their runs, and returns the answers by workflow. The UNIQUE constraint still prevents a second
/// decision: such a fire has no answer here.
pub(super) async fn record_fires(
    tx: &mut PgConnection,
    decisions: &[FireDecision<'_>],
) -> sqlx::Result<HashMap<i64, Answer>> {
    let all = decisions.iter();
    let occurrences: Vec<Uuid> = all.clone().map(|one| workflows::id::make_id(one.now)).collect();
    let states: Vec<Option<String>> =
        all.clone().map(|one| one.outcome.run_state().map(|state| state.in_words().to_owned())).collect();
    let runs: Vec<Option<Uuid>> =
        all.clone().map(|one| one.outcome.run_state().map(|_| workflows::id::make_id(one.now))).collect();
    let decided: Vec<_> = all.clone().map(|one| one.outcome.decision().as_str().to_owned()).collect();
    let reasons: Vec<Option<String>> =
        all.clone().map(|one| one.outcome.reason().map(|reason| reason.as_str().to_owned())).collect();
    let workflows: Vec<_> = all.clone().map(|one| one.fire.workflow_id.0).collect();
    let times: Vec<_> = all.clone().map(|one| one.fire.scheduled_time).collect();
    let revisions: Vec<_> = all.clone().map(|one| one.revision).collect();
    let raw_times: Vec<_> = all.clone().map(|one| one.fire.raw_time.clone()).collect();
    let executions: Vec<_> = all.clone().map(|one| one.fire.execution_id.clone()).collect();
    let attempts: Vec<_> = all.clone().map(|one| one.fire.attempt).collect();
    let run_after: Vec<_> = all.clone().map(|one| one.run_after).collect();
    let teams: Vec<_> = all.clone().map(|one| one.team_id).collect();
    let now: Vec<_> = all.map(|one| one.now).collect();
    let recorded = sqlx::query!(
        r#"
        -- accept a batch: each run with its occurrence, or neither
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::bigint[], $6::text[],
                                 $7::text[], $8::integer[], $9::timestamptz[], $10::timestamptz[], $11::bigint[],
                                 $12::text[], $13::text[], $14::text[])
                AS given (id, run_id, workflow_id, time, revision, raw_time, execution_id, attempt, run_after, now, team_id,
                          decision, reason, state)
        ), recorded AS (
            INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, reason, revision, run_id, raw_time,
                                     execution_id, attempt, lateness_s, decided_on, created_on, updated_on)
            SELECT id, workflow_id, time, decision, reason, revision, run_id, raw_time, execution_id, attempt,
                   trunc(EXTRACT(EPOCH FROM now - time))::bigint, now, now, now
              FROM given
             ORDER BY workflow_id
            ON CONFLICT ON CONSTRAINT occurrences_workflow_id_scheduled_time_key DO NOTHING
            RETURNING id
        ), started AS (
            INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, team_id)
            SELECT given.run_id, given.workflow_id, given.id, 'schedule', given.state, given.time, given.run_after,
                   given.now, given.team_id
              FROM given JOIN recorded ON recorded.id = given.id
             WHERE given.run_id IS NOT NULL
        )
        SELECT given.workflow_id AS "workflow_id!", given.run_id FROM given JOIN recorded ON recorded.id = given.id
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
    )
    .fetch_all(tx)
    .await?;
    let answers = recorded.into_iter().map(|row| {
        let answer = row.run_id.map_or(Answer::Declined(Reason::Overlap), Answer::Accepted);
        (row.workflow_id, answer)
    });
    Ok(answers.collect())
}
