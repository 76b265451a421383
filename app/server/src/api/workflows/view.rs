//! Step 1 of 7: a workflow as the API shows it, with its synchronization to EventBridge.

use access::keys::Kind;
use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use ledger::runs::Results;
use schedule::WorkflowId;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use workflows::definition::action_schema::ActionBody;
use workflows::definition::labels::Labels;
use workflows::definition::policies::{CatchUp, OnLost, Overlap};
use workflows::definition::redaction::{self, Audience};
use workflows::reasons::{self, ReasonCode};
use workflows::{ListedWorkflow, State, Sync, Workflow};

use super::results::ResultsView;
use crate::api::request::auth::Caller;

use crate::api::request::page::raw_json;

/// A workflow.
#[derive(Serialize, ToSchema)]
pub struct WorkflowView {
    #[schema(value_type = i64)]
    pub(super) id: WorkflowId,
    team_id: i64,
    name: String,
    description: Option<String>,
    /// For selection.
    labels: Labels,
    cron_schedule: Option<String>,
    timezone: Option<String>,
    is_api: bool,
    /// Header values are write-only and read as null, and so is a value that is marked as `{"secret": value}`. A viewer
    /// sees only the origin of `url`. In lists a `body` of more than 1 KiB is null, and a `message` of
    /// more than 1,024 characters is cut: read the workflow for all of it.
    #[schema(value_type = ActionBody)]
    action: Value,
    /// The stored size of an action of which a list leaves out a part, in bytes; else null.
    action_bytes: Option<i32>,
    /// A value that is marked as `{"secret": value}` reads as null. In lists null if they are larger than 1 KiB: read the
    /// workflow for all of them.
    #[schema(value_type = Option<Object>)]
    starting_inputs: Option<InputsView>,
    /// The stored size of inputs that a list leaves out, in bytes; else null.
    starting_inputs_bytes: Option<i32>,
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
    state: State,
    /// The text of the person who paused it, or a sentence of cronbox.
    pause_reason: Option<String>,
    /// `failures_in_a_row` if cronbox paused it.
    pause_reason_code: Option<ReasonCode>,
    /// When the pause ends automatically.
    pause_until: Option<DateTime<Utc>>,
    overlap_policy: Overlap,
    max_concurrent: i32,
    catch_up_policy: CatchUp,
    catch_up_window_secs: i32,
    spread_secs: i32,
    timeout_secs: i32,
    max_attempts: i32,
    on_lost: OnLost,
    pause_after_failures: Option<i32>,
    /// The file that manages it; null = the API.
    managed_by: Option<String>,
    /// The ETag.
    version: i64,
    /// Raised by each change of timing or state.
    revision: i64,
    sync: Sync,
    /// The next time that it will run by its schedule.
    next_fire_at: Option<DateTime<Utc>>,
    /// What became of its last runs; null unless the request has `results=true`.
    results: Option<ResultsView>,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// The inputs of a workflow: of one as values, of one in a list as the text of the database.
#[derive(Serialize)]
#[serde(untagged)]
enum InputsView {
    Values(Map<String, Value>),
    Text(Box<RawValue>),
}

impl WorkflowView {
    /// Adds what became of the last runs.
    #[must_use]
    pub(super) fn with_results(self, results: Option<&Results>) -> Self {
        Self { results: results.map(ResultsView::from), ..self }
    }
}

/// A workflow with its ETag.
pub struct WorkflowAnswer(pub WorkflowView);

impl IntoResponse for WorkflowAnswer {
    fn into_response(self) -> Response {
        ([(header::ETAG, format!("\"{}\"", self.0.version))], Json(self.0)).into_response()
    }
}

/// What a caller reads of the synchronization: only an admin reads the words of EventBridge.
pub(super) fn sync_for(caller: &Caller, sync: Sync) -> Sync {
    match caller.kind {
        Kind::Admin => sync,
        Kind::Team | Kind::Scheduler => sync.without_words_of_aws(),
    }
}

/// The view of a workflow at `now`.
#[must_use]
pub fn view_workflow((mut workflow, sync): (Workflow, Sync), audience: Audience, now: DateTime<Utc>) -> WorkflowView {
    redaction::redact_members(&mut workflow.spec.starting_inputs);
    let next_fire_at = workflow.next_fire_at(now);
    let policies = workflow.spec.policies;
    let (pause_reason, pause_reason_code) = workflow.pause_reason.map(reasons::answer_pause_reason).unzip();
    WorkflowView {
        id: workflow.id,
        team_id: workflow.team_id,
        name: workflow.spec.name,
        description: workflow.spec.description,
        labels: workflow.spec.labels,
        cron_schedule: workflow.spec.timing.cron,
        timezone: workflow.spec.timing.timezone,
        is_api: workflow.spec.is_api,
        action: redaction::show_action(&workflow.spec.action, audience),
        action_bytes: None,
        starting_inputs: Some(InputsView::Values(workflow.spec.starting_inputs)),
        starting_inputs_bytes: None,
        starts_at: workflow.spec.timing.starts_at,
        ends_at: workflow.spec.timing.ends_at,
        state: workflow.state,
        pause_reason,
        pause_reason_code: pause_reason_code.flatten(),
        pause_until: workflow.pause_until,
        overlap_policy: policies.overlap,
        max_concurrent: policies.max_concurrent,
        catch_up_policy: policies.catch_up,
        catch_up_window_secs: policies.catch_up_window_secs,
        spread_secs: policies.spread_secs,
        timeout_secs: policies.timeout_secs,
        max_attempts: policies.max_attempts,
        on_lost: policies.on_lost,
        pause_after_failures: policies.pause_after_failures,
        managed_by: workflow.managed_by,
        version: workflow.version,
        revision: workflow.revision.0,
        sync,
        next_fire_at,
        results: None,
        created_on: workflow.created_on,
        updated_on: workflow.updated_on,
    }
}

/// The view of a workflow in a list at `now`.
#[must_use]
pub(super) fn view_listed(
    listed: ListedWorkflow,
    results: Option<&Results>,
    audience: Audience,
    now: DateTime<Utc>,
) -> WorkflowView {
    let ListedWorkflow { workflow, sync, starting_inputs, starting_inputs_bytes, action_bytes } = listed;
    WorkflowView {
        action_bytes,
        starting_inputs: starting_inputs.map(redaction::redact_text).and_then(raw_json).map(InputsView::Text),
        starting_inputs_bytes,
        ..view_workflow((workflow, sync), audience, now).with_results(results)
    }
}
