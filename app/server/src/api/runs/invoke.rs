//! Step 7 of 7: the route to which the runner delivers a fire. It answers with the decision, after the commit.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use ledger::invoke::{Answer, Reason};
use schedule::{Fire, FireError, WorkflowId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;
use workflows::definition::field::FieldError;
use workflows::outbox::OrphanCleanup;

use crate::App;
use crate::api::request::auth::Scheduler;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{self, Verb};
use crate::api::request::json::parse_json;
use crate::metrics::{Answered, MetricLabel};

/// A fire, as in the schedule's Input; unknown fields are ignored.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only documents the body; schedule::Fire reads it")]
pub struct InvokeBody {
    /// RFC 3339; floored to the minute.
    #[schema(example = "2026-03-29T07:00:00Z")]
    scheduled_time: String,
    /// The revision that the schedule was published with.
    revision: Option<i64>,
    /// EventBridge's id of the delivery.
    execution_id: Option<String>,
    /// EventBridge's attempt number; a number or a string.
    attempt: Option<i32>,
}

/// The decision about a fire.
#[derive(Serialize, ToSchema)]
pub struct Verdict {
    /// Whether this call started a run.
    accepted: bool,
    /// Why it did not: `duplicate`, or why there is no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The run of this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<Uuid>,
}

/// Deliver a fire. Idempotent by workflow and minute; safe to repeat after any failure.
#[utoipa::path(post, path = "/api/v1/cron/workflows/{id}:invoke", tag = "cron", params(("id" = i64, Path)),
    request_body = InvokeBody,
    responses((status = 202, body = Verdict, description = "A run was accepted"),
              (status = 200, body = Verdict, description = "No new run; `reason` says why"),
              (status = 410, body = Problem, content_type = "application/problem+json", description = "workflow_gone"),
              (status = "4XX", body = Problem, content_type = "application/problem+json"),
              (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn invoke_workflow(
    State(app): State<App>,
    Scheduler: Scheduler,
    Verb(id, verb): Verb<WorkflowId>,
    request: Request,
) -> Result<Response, Error> {
    if verb != "invoke" {
        return Err(Error::not_found());
    }
    extract::must_be_json(request.headers())?;
    let mut fire = fire(id, &extract::read_body(request).await?)?;
    // The run continues this request, which continues the trace of the fire.
    fire.traceparent = traces::current_span().traceparent();
    let answer = app.decider.decide_fire(&fire).await?;
    account(&app, &fire, answer);
    answered(answer)
}

fn fire(id: WorkflowId, body: &[u8]) -> Result<Fire, Error> {
    let mut event: Value = parse_json(body)?;
    let Some(members) = event.as_object_mut() else {
        return Err(FieldError::invalid("", "the body must be a JSON object").into());
    };
    let named = members.insert("workflow_id".into(), id.0.into());
    if named.is_some_and(|named| named != id.0) {
        return Err(FieldError::invalid("workflow_id", "workflow_id must be the id in the path").into());
    }
    let fire = Fire::from_event(&event)
        .map_err(|error| FieldError::new("invalid_field", field_of(&error), error.to_string()))?;
    let stored = [Some(&fire.raw_time), fire.execution_id.as_ref()];
    if stored.into_iter().flatten().any(|text| text.contains('\0') || text.len() > 256) {
        let detail = "execution_id must have at most 256 bytes and no NUL character";
        return Err(FieldError::invalid("execution_id", detail).into());
    }
    Ok(fire)
}

fn field_of(error: &FireError) -> &'static str {
    match error {
        FireError::NotAnObject => "",
        FireError::Missing { field } | FireError::Invalid { field, .. } | FireError::Time { field, .. } => field,
    }
}

fn answered(answer: Answer) -> Result<Response, Error> {
    let verdict = match answer {
        Answer::Accepted(run) | Answer::Started(run) => Verdict { accepted: true, reason: None, run_id: Some(run) },
        Answer::Duplicate(run) => Verdict { accepted: false, reason: Some("duplicate"), run_id: Some(run) },
        Answer::Declined(reason) => Verdict { accepted: false, reason: Some(reason.as_str()), run_id: None },
        Answer::Gone(_) => {
            let detail = "the workflow is archived or does not exist".to_owned();
            return Err(Error::Refused(StatusCode::GONE, "workflow_gone", detail));
        }
        Answer::ClockSkew => {
            let detail = "the time of the fire is in the future: check the clocks";
            return Err(Error::Later(StatusCode::SERVICE_UNAVAILABLE, "clock_skew", detail, 60));
        }
        Answer::Held => {
            let detail = "the database was restored: late fires wait for `cronbox-app ledger accept`";
            return Err(Error::Later(StatusCode::SERVICE_UNAVAILABLE, "ledger_held", detail, 60));
        }
    };
    let status = if verdict.accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(verdict)).into_response())
}

/// Logs and counts an answer, and notifies the executor or the publisher if it must act.
fn account(app: &App, fire: &Fire, answer: Answer) {
    let word = match answer {
        Answer::Accepted(_) | Answer::Started(_) => {
            let late = app.clock.now() - fire.scheduled_time;
            app.metrics.fire_delay.count_fire(late.num_milliseconds());
            "accepted"
        }
        Answer::Duplicate(_) => "duplicate",
        Answer::Declined(reason) => reason.as_str(),
        Answer::Gone(_) => "gone",
        Answer::ClockSkew => "clock_skew",
        Answer::Held => "held",
    };
    app.metrics.invokes.get_or_create(&Answered { answer: MetricLabel(word) }).inc();
    let span = traces::current_span();
    span.set("cronbox.workflow.id", fire.workflow_id.0);
    span.set("cronbox.decision", word);
    if let Some(run) = answer.new_run() {
        span.set_text("cronbox.run.id", run);
    }
    if off_minute(fire) {
        app.metrics.fires_off_minute.inc();
    }
    tracing::info!(
        step = 7,
        workflow_id = fire.workflow_id.0,
        execution_id = fire.execution_id,
        "invoke: workflow {} at {}: {word}",
        fire.workflow_id,
        fire.scheduled_time.format("%Y-%m-%dT%H:%MZ"),
    );
    match answer {
        Answer::Accepted(_) => app.wake.notify(),
        Answer::Gone(OrphanCleanup::Enqueued) => app.notifier.request_notification(),
        Answer::Declined(Reason::Disagrees) => {
            app.metrics.fires_disagree.inc();
            tracing::warn!(
                workflow_id = fire.workflow_id.0,
                "fire disagrees: EventBridge evaluates its time as due, the app does not"
            );
        }
        _ => {}
    }
}

fn off_minute(fire: &Fire) -> bool {
    DateTime::parse_from_rfc3339(&fire.raw_time).is_ok_and(|raw| raw != fire.scheduled_time)
}
