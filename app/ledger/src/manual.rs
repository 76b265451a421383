//! Step 7 of 7: manual runs: a fire now (`:fire`), or a retry of a run (`:retry`).
//!
//! Neither decides a due time of the schedule: a manual fire has no occurrence, and a retry names the occurrence of the
//! run that it repeats without changing its decision. Both are decided under the workflow's lock, like a fire of the
//! schedule.

use db::PgConnection;
use schedule::WorkflowId;
use serde_json::{Map, Value, json};
use uuid::Uuid;
use workflows::Workflow;
use workflows::audit::{self, Edit, Entry};
use workflows::definition::{redaction, secret_inputs};
use workflows::reasons::ReasonCode;

use crate::admission::verdict;
use crate::requested_fires::{DefaultRate, StartPermit, take_requested_fire};
use crate::runs::{self, RunState, Trigger};

/// The outcome of a request for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManualOutcome {
    /// This run was accepted, or waits for its slot.
    Run(Uuid),
    /// The overlap policy refuses it for this reason.
    Overlap(ReasonCode),
    /// The run to repeat has not ended, or is being repeated.
    Live,
    /// The run to repeat has marked inputs that were sent for another origin.
    OtherOrigin,
    /// The team has started as many runs as it may; the caller rolls back.
    Exhausted {
        /// Its limit of runs a minute.
        per_minute: i64,
        /// After how many seconds the next run may start.
        retry_secs: u32,
    },
}

/// What a caller requested, for the audit log.
struct Request<'a> {
    verb: &'a str,
    after: Value,
    edit: &'a Edit,
}

/// A run that is to be repeated.
struct Repeated {
    state: RunState,
    retry_of: Option<Uuid>,
    occurrence_id: Option<Uuid>,
    scheduled_time: Option<chrono::DateTime<chrono::Utc>>,
    inputs: Option<Value>,
}

/// Runs a workflow now; the caller has locked it, and it is not archived.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn fire_now(
    tx: &mut PgConnection,
    workflow: &Workflow,
    mut inputs: Option<Map<String, Value>>,
    default: DefaultRate,
    edit: &Edit,
) -> sqlx::Result<ManualOutcome> {
    if let Some(inputs) = &mut inputs {
        secret_inputs::bind_to_origin(inputs, &workflow.spec.action);
    }
    let run = runs::New {
        inputs: inputs.map(Value::Object),
        traceparent: edit.traceparent.clone(),
        ..runs::New::unscheduled(workflows::id::make_id(edit.now), Trigger::Manual, edit.now)
    };
    let mut after = json!({"inputs": run.inputs});
    redaction::redact_marked(&mut after["inputs"]);
    admit(tx, workflow, &run, default, &Request { verb: "fire", after, edit }).await
}

/// Repeats a run that has ended, with its inputs; the caller has locked its workflow, which is not archived.
///
/// # Errors
/// Fails if the database refuses a statement, or if the run does not exist.
pub async fn retry_run(
    tx: &mut PgConnection,
    workflow: &Workflow,
    id: Uuid,
    default: DefaultRate,
    edit: &Edit,
) -> sqlx::Result<ManualOutcome> {
    let before = repeated(tx, id).await?;
    let first = before.retry_of.unwrap_or(id);
    if !before.state.is_terminal() || is_being_repeated(tx, workflow.id, before.occurrence_id, first).await? {
        return Ok(ManualOutcome::Live);
    }
    if before
        .inputs
        .as_ref()
        .is_some_and(|inputs| secret_inputs::release_for_action(inputs, &workflow.spec.action).is_err())
    {
        return Ok(ManualOutcome::OtherOrigin);
    }
    let run = runs::New {
        occurrence_id: before.occurrence_id,
        scheduled_time: before.scheduled_time,
        inputs: before.inputs,
        traceparent: edit.traceparent.clone(),
        ..runs::New::unscheduled(workflows::id::make_id(edit.now), Trigger::Retry, edit.now)
    };
    let request = Request { verb: "retry", after: json!({"of": id}), edit };
    let outcome = admit(tx, workflow, &run, default, &request).await?;
    if outcome == ManualOutcome::Run(run.id) {
        record_retried_run(tx, run.id, first).await?;
    }
    Ok(outcome)
}

async fn admit(
    tx: &mut PgConnection,
    workflow: &Workflow,
    run: &runs::New,
    default: DefaultRate,
    request: &Request<'_>,
) -> sqlx::Result<ManualOutcome> {
    if let Err(reason) = verdict::admit_run(tx, workflow, run).await? {
        return Ok(ManualOutcome::Overlap(reason));
    }
    // Last, because the row of the team is locked from here on.
    if let StartPermit::Exhausted { per_minute, retry_secs } =
        take_requested_fire(tx, workflow.team_id, default, run.now).await?
    {
        return Ok(ManualOutcome::Exhausted { per_minute, retry_secs });
    }
    let Request { verb, edit, .. } = *request;
    let subject = format!("run:{} of workflow:{}", run.id, workflow.id);
    let after = Some(request.after.clone());
    let team_id = Some(workflow.team_id);
    audit::record_entry(tx, edit, Entry { verb, subject, team_id, before: None, after }).await?;
    tracing::info!(step = 7, workflow_id = workflow.id.0, run_id = %run.id, "manual {verb} of workflow {}", workflow.id);
    Ok(ManualOutcome::Run(run.id))
}

async fn repeated(tx: &mut PgConnection, id: Uuid) -> sqlx::Result<Repeated> {
    sqlx::query_as!(
        Repeated,
        r#"
        -- the run that is to be repeated
        SELECT state AS "state: RunState", retry_of, occurrence_id, scheduled_time, inputs FROM runs WHERE id = $1
        "#,
        id,
    )
    .fetch_one(tx)
    .await
}

/// Whether a run of the same occurrence, or another retry of the same manual run, has not ended.
async fn is_being_repeated(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    occurrence: Option<Uuid>,
    first: Uuid,
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether an occurrence or a manual run is being repeated
        SELECT EXISTS (SELECT FROM runs
                        WHERE workflow_id = $1 AND state IN ('accepted', 'queued', 'running')
                          AND (occurrence_id = $2 OR retry_of = $3 OR id = $3)) AS "is!"
        "#,
        workflow.0,
        occurrence,
        first,
    )
    .fetch_one(tx)
    .await
}

/// Records which run a retry repeats. A retry of a retry names the first run, so that all of them are compared.
async fn record_retried_run(tx: &mut PgConnection, retry: Uuid, first: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- record which run a retry repeats
        UPDATE runs_live SET retry_of = $2 WHERE id = $1
        "#,
        retry,
        first,
    )
    .execute(tx)
    .await
    .map(drop)
}
