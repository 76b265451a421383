//! Step 1 of 7: a workflow as the API shows it, with its synchronization to EventBridge.

use access::keys::Kind;
use api_types::workflows::WorkflowView;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use ledger::runs::Results;
use serde_json::Value;

use workflows::definition::redaction::{self, Audience};
use workflows::reasons::{self};
use workflows::{ListedWorkflow, Sync, Workflow};

use crate::api::request::auth::Caller;
use crate::api::request::etag::Versioned;
use crate::api::request::view::to_view;
use api_types::raw::RawJson;

/// Adds what became of the last runs.
#[must_use]
pub(super) fn add_results(view: WorkflowView, results: Option<&Results>) -> WorkflowView {
    WorkflowView { results: to_view(results), ..view }
}

/// A workflow with its ETag.
pub struct WorkflowAnswer(pub WorkflowView);

impl IntoResponse for WorkflowAnswer {
    fn into_response(self) -> Response {
        Versioned { version: self.0.version, view: self.0 }.into_response()
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
        id: workflow.id.0,
        team_id: workflow.team_id,
        name: workflow.spec.name,
        description: workflow.spec.description,
        labels: workflow.spec.labels,
        cron_schedule: workflow.spec.timing.cron,
        timezone: workflow.spec.timing.timezone,
        is_api: workflow.spec.is_api,
        action: redaction::show_action(&workflow.spec.action, audience),
        action_bytes: None,
        starting_inputs: Some(RawJson::Value(Value::Object(workflow.spec.starting_inputs))),
        starting_inputs_bytes: None,
        starts_at: workflow.spec.timing.starts_at,
        ends_at: workflow.spec.timing.ends_at,
        state: to_view(workflow.state),
        pause_reason,
        pause_reason_code: pause_reason_code.flatten(),
        paused_by: to_view(workflow.paused_by),
        pause_until: workflow.pause_until,
        overlap_policy: to_view(policies.overlap),
        max_concurrent: policies.max_concurrent,
        catch_up_policy: to_view(policies.catch_up),
        catch_up_window_secs: policies.catch_up_window_secs,
        spread_secs: policies.spread_secs,
        timeout_secs: policies.timeout_secs,
        max_attempts: policies.max_attempts,
        on_lost: to_view(policies.on_lost),
        pause_after_failures: policies.pause_after_failures,
        managed_by: workflow.managed_by,
        version: workflow.version,
        revision: workflow.revision.0,
        sync: to_view(sync),
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
        starting_inputs: starting_inputs.and_then(redaction::redact_text).and_then(RawJson::of_text),
        starting_inputs_bytes,
        ..add_results(view_workflow((workflow, sync), audience, now), results)
    }
}
