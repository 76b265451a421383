//! Step 7 of 7: manual changes of runs: `:fire`, `:cancel`, `:retry`.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::PgConnection;
use ledger::admission::queue;
use ledger::manual::{self, ManualOutcome};
use ledger::runs::{self, Cancelled, RunState};
use schedule::WorkflowId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::definition::{field, redaction};

use super::backfills::{self, BackfillBody};
use super::{RunDetailView, read_detail};
use crate::App;
use crate::api::request::auth::{Caller, Editor};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Limit};
use crate::api::request::extract::{EmptyBody, Trace, Verb, or_empty};
use crate::api::request::repeat::{Creation, OptionalCreation, Repeat, Requested, replayed};
use crate::api::workflows::edit::lock_alive;

/// Options of a manual fire.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FireBody {
    /// Inputs of this run only; absent = the workflow's `starting_inputs`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    inputs: Option<Map<String, Value>>,
}

/// The run that was created.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ManualRunView {
    run_id: Uuid,
}

/// Fires a schedule's workflow, or backfills it.
pub(crate) async fn act_on_schedule(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Verb(id, verb): Verb<WorkflowId>,
    OptionalCreation(creation): OptionalCreation<Value>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    match (verb.as_str(), created) {
        ("fire", None) => fire(&app, &caller, id, read(body)?, &repeat, &edit).await,
        ("fire", Some(created)) => answer_again(&mut *app.pools.edits.acquire().await?, &caller, created).await,
        ("backfill", None) => {
            backfills::request_backfill(&app, &caller, id, read::<BackfillBody>(body)?, &repeat, &edit).await
        }
        ("backfill", Some(created)) => {
            backfills::answer_again(&mut *app.pools.edits.acquire().await?, &caller, created).await
        }
        _ => Err(Error::not_found()),
    }
}

/// Cancels a run, or repeats one.
pub(crate) async fn act_on_run(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    Verb(id, verb): Verb<Uuid>,
    OptionalCreation(creation): OptionalCreation<EmptyBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    match verb.as_str() {
        "cancel" => cancel(&app, &caller, id, &edit).await.map(IntoResponse::into_response),
        "retry" => retry(&app, &caller, id, creation, &edit).await,
        _ => Err(Error::not_found()),
    }
}

fn read<T: serde::de::DeserializeOwned>(body: Value) -> Result<T, Error> {
    field::parse_document("", or_empty(body)).map_err(Error::from)
}

async fn fire(
    app: &App,
    caller: &Caller,
    id: WorkflowId,
    body: FireBody,
    repeat: &Repeat,
    edit: &Edit,
) -> Result<Response, Error> {
    if let Some(inputs) = &body.inputs {
        field::check_inputs("inputs", inputs)?;
        redaction::refuse_redacted_members("inputs", inputs)?;
    }
    let mut tx = EditTransaction::begin(app, caller, id).await?;
    if let Some(created) = repeat.begin(&mut tx, edit).await? {
        return answer_again(&mut tx, caller, created).await;
    }
    let workflow = lock_alive(&mut tx, id, caller.team_id, edit.now).await?;
    let outcome = manual::fire_now(&mut tx, &workflow, body.inputs, app.config.requested_fires(), edit).await?;
    commit_and_answer(app, tx, outcome, repeat, edit).await
}

async fn retry(
    app: &App,
    caller: &Caller,
    id: Uuid,
    creation: Creation<EmptyBody>,
    edit: &Edit,
) -> Result<Response, Error> {
    let Requested { body: EmptyBody {}, repeat, created } = creation.look_up(app, edit).await?;
    // The run that it repeats may be gone by now.
    if let Some(created) = created {
        return answer_again(&mut *app.pools.edits.acquire().await?, caller, created).await;
    }
    let workflow_id = find_workflow_of(app, id, caller).await?;
    let mut tx = EditTransaction::begin(app, caller, workflow_id).await?;
    if let Some(created) = repeat.begin(&mut tx, edit).await? {
        return answer_again(&mut tx, caller, created).await;
    }
    let workflow = lock_alive(&mut tx, workflow_id, caller.team_id, edit.now).await?;
    let outcome = manual::retry_run(&mut tx, &workflow, id, app.config.requested_fires(), edit).await?;
    commit_and_answer(app, tx, outcome, &repeat, edit).await
}

/// Returns the workflow of a run, which never changes.
async fn find_workflow_of(app: &App, run: Uuid, caller: &Caller) -> Result<WorkflowId, Error> {
    let mut connection = app.pools.edits.acquire().await?;
    let run = runs::find_run(&mut connection, run, caller.team_id).await?.ok_or_else(Error::not_found)?;
    Ok(WorkflowId(run.workflow_id))
}

/// Commits the request, unless the limit of the team refuses its run.
async fn commit_and_answer(
    app: &App,
    mut tx: EditTransaction,
    outcome: ManualOutcome,
    repeat: &Repeat,
    edit: &Edit,
) -> Result<Response, Error> {
    if let ManualOutcome::Run(run_id) = outcome {
        repeat.store(&mut tx, edit, &ManualRunView { run_id }).await?;
    }
    if !matches!(outcome, ManualOutcome::Exhausted { .. }) {
        tx.commit().await?;
    }
    match outcome {
        ManualOutcome::Run(run_id) => {
            app.wake.notify();
            Ok(answer_run(ManualRunView { run_id }))
        }
        ManualOutcome::Overlap(reason) => Err(Error::conflict("overlap", reason.sentence())),
        ManualOutcome::Live => Err(Error::conflict(
            "run_live",
            "this run, or another run of its scheduled time, has not ended: wait until it ends, or cancel it",
        )),
        ManualOutcome::OtherOrigin => Err(Error::conflict(
            "inputs_other_origin",
            "the run has secret inputs that were sent for another origin than the URL has now: fire the workflow with them",
        )),
        ManualOutcome::Exhausted { per_minute, retry_secs } => Err(refuse_start(per_minute, retry_secs)),
    }
}

fn answer_run(view: ManualRunView) -> Response {
    let location = format!("/api/v1/runs/{}", view.run_id);
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(view)).into_response()
}

/// The answer to a repeat: the run that the first request has created. A person may have left the team since.
async fn answer_again(db: &mut PgConnection, caller: &Caller, created: Value) -> Result<Response, Error> {
    let view: ManualRunView = serde_json::from_value(created).map_err(anyhow::Error::from)?;
    runs::find_run(db, view.run_id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    Ok((replayed(), answer_run(view)).into_response())
}

fn refuse_start(per_minute: i64, retry_secs: u32) -> Error {
    let detail = format!(
        "manual runs, retries and backfills of the team may start {per_minute} runs a minute: wait for Retry-After seconds, \
         then repeat"
    );
    let limit = Limit { policy: "team-requested-fires", quota: per_minute, window_secs: Some(60), retry_secs };
    Error::limited("limit_fires_per_minute", detail, limit)
}

/// Cancelling a cancelled run changes nothing; a run that ended otherwise keeps its state.
async fn cancel(app: &App, caller: &Caller, id: Uuid, edit: &Edit) -> Result<Json<RunDetailView>, Error> {
    // Not that of the workflow, whose edits a cancellation need not wait for.
    let mut tx = EditTransaction::begin_of_team(app, caller.team_id).await?;
    let before = runs::find_run(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    let cancelled = runs::cancel_run(&mut tx, id, edit.now).await?;
    let after = runs::find_run(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    match cancelled {
        Cancelled::Requested | Cancelled::FreedSlot | Cancelled::LeftQueue => {
            let subject = format!("run:{id} of workflow:{}", before.workflow_id);
            let team_id = workflows::find_team(&mut tx, WorkflowId(before.workflow_id)).await?;
            let entry = Entry { verb: "cancel", subject, team_id, before: None, after: None };
            audit::record_entry(&mut tx, edit, entry).await?;
        }
        Cancelled::TooLate if after.state == RunState::Cancelled => {}
        Cancelled::TooLate => return Err(Error::conflict("run_ended", "the run has already ended")),
    }
    let view = read_detail(&mut tx, after).await?;
    tx.commit().await?;
    // A run that waited may have been the one that others waited behind.
    if matches!(cancelled, Cancelled::FreedSlot | Cancelled::LeftQueue) {
        queue::advance_after_commit(&app.pools.edits, WorkflowId(before.workflow_id), edit.now).await;
        app.wake.notify();
    }
    Ok(Json(view))
}
