//! Step 1 of 7: the schedule of a workflow as a resource, under the workflow's id.
//!
//! A workflow without a cron has no schedule: GET answers 404 `no_schedule`, PUT creates it. Version and ETag are the
//! workflow's, because an edit of the schedule is an edit of the workflow.

use api_types::schedules::ScheduleView;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use serde_json::Value;

use workflows::definition::body::{self, ScheduleBody};
use workflows::definition::field;
use workflows::reasons::{self};
use workflows::{ListedWorkflow, Sync, Workflow, find_workflow};

use super::edit::LockedEdit;
use super::results::results_of;
use super::view::sync_for;
use super::{ListParams, ReadPage, read_page};
use crate::App;
use crate::api::request::auth::{Editor, Viewer};
use crate::api::request::conditions::{Existence, Found};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Body, EditRequest, Id, Members, Params, Patch, WriteParams};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::begin_read;
use crate::api::request::view::to_view;

/// What a client may send back in a PUT as it has read it, and what changes nothing (AIP-203).
const READ_ONLY: [&str; 15] = [
    "workflow_id",
    "team_id",
    "name",
    "state",
    "pause_reason",
    "pause_reason_code",
    "paused_by",
    "pause_until",
    "managed_by",
    "version",
    "revision",
    "sync",
    "next_fire_at",
    "results",
    "updated_on",
];

/// A schedule with its ETag.
pub(crate) struct ScheduleAnswer(ScheduleView);

impl IntoResponse for ScheduleAnswer {
    fn into_response(self) -> Response {
        ([(header::ETAG, format!("\"{}\"", self.0.version))], Json(self.0)).into_response()
    }
}

/// List schedules, in the order of their workflows' ids.
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules", params(ListParams),
    responses((status = 200, body = Page<ScheduleView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_schedules(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<ListParams>,
) -> Result<PageAnswer, Error> {
    let (now, requested) = (app.clock.now(), params.results);
    let mut tx = begin_read(&app).await?;
    let ReadPage { found, total } = read_page(&mut tx, &caller, params, true, now).await?;
    let results = results_of(&mut tx, requested, &found.rows, now).await?;
    tx.commit().await?;
    let view = move |(_, listed): (String, ListedWorkflow)| {
        let results = to_view(results.get(&listed.workflow.id.0));
        // Each has a cron, because the list has no others.
        view_schedule((listed.workflow, listed.sync), now).map(|view| ScheduleView { results, ..view })
    };
    page::answer_counted_page(found, total, |(key, _)| key.clone(), view).await
}

/// Read a workflow's schedule.
#[utoipa::path(get, path = "/api/v1/schedules/{id}", tag = "schedules", params(("id" = i64, Path)),
    responses((status = 200, body = ScheduleView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_schedule(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<WorkflowId>,
) -> Result<ScheduleAnswer, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = find_workflow(&mut connection, id, caller.team_id).await?;
    let (workflow, sync) = found.ok_or_else(Error::not_found)?;
    answer(&app, (workflow, sync_for(&caller, sync)))
}

/// Create or replace a workflow's schedule; an absent field takes its default.
#[utoipa::path(put, path = "/api/v1/schedules/{id}", tag = "schedules", request_body = ScheduleBody,
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    responses((status = 200, body = ScheduleView, headers(("ETag" = String))),
              (status = 201, description = "The schedule was created", body = ScheduleView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_schedule(
    State(app): State<App>,
    Editor(caller): Editor,
    existence: Existence,
    request: EditRequest,
    Body(Members(mut body)): Body<Members>,
) -> Result<(StatusCode, ScheduleAnswer), Error> {
    READ_ONLY.iter().for_each(|field| drop(body.remove(*field)));
    let body: ScheduleBody = field::parse_document("", Value::Object(body))?;
    let change = LockedEdit::begin_writable(&app, &caller, request).await?;
    let found = if change.before.spec.timing.cron.is_some() { Found::Existing } else { Found::Absent };
    existence.check("schedule", found)?;
    let spec = body.apply_to(&change.before.spec, &change.bounds)?;
    let saved = answer(&app, change.save_spec(&app, spec, "schedule").await?)?;
    let status = match found {
        Found::Absent => StatusCode::CREATED,
        Found::Existing => StatusCode::OK,
    };
    Ok((status, saved))
}

/// Change a schedule. `application/json` replaces the fields sent; `application/merge-patch+json` is RFC 7396.
#[utoipa::path(patch, path = "/api/v1/schedules/{id}", tag = "schedules",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    request_body(content((Object = "application/json"), (Object = "application/merge-patch+json"))),
    responses((status = 200, body = ScheduleView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn patch_schedule(
    State(app): State<App>,
    Editor(caller): Editor,
    request: EditRequest,
    Patch(patch, kind): Patch,
) -> Result<ScheduleAnswer, Error> {
    let id = request.id;
    let change = LockedEdit::begin_writable(&app, &caller, request).await?;
    let patched = body::patch_schedule(&change.before.spec, patch, kind, &change.bounds)?;
    let spec = patched.ok_or_else(|| no_schedule(id))?;
    answer(&app, change.save_spec(&app, spec, "schedule").await?)
}

/// Delete a workflow's schedule; the workflow, its policies and its history remain.
#[utoipa::path(delete, path = "/api/v1/schedules/{id}", tag = "schedules",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header), WriteParams),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_schedule(
    State(app): State<App>,
    Editor(caller): Editor,
    request: EditRequest,
) -> Result<StatusCode, Error> {
    let id = request.id;
    let change = LockedEdit::begin_writable(&app, &caller, request).await?;
    if change.before.spec.timing.cron.is_none() {
        return Err(no_schedule(id));
    }
    let spec = body::remove_schedule(&change.before.spec);
    change.save_spec(&app, spec, "unschedule").await?;
    Ok(StatusCode::NO_CONTENT)
}

fn answer(app: &App, read: (Workflow, Sync)) -> Result<ScheduleAnswer, Error> {
    let id = read.0.id;
    view_schedule(read, app.clock.now()).map(ScheduleAnswer).ok_or_else(|| no_schedule(id))
}

pub(super) fn no_schedule(id: WorkflowId) -> Error {
    let detail = format!("workflow {id} has no schedule: create it with PUT");
    Error::Refused(StatusCode::NOT_FOUND, "no_schedule", detail)
}

/// The schedule of a workflow at `now`; `None` without a cron.
fn view_schedule((workflow, sync): (Workflow, Sync), now: DateTime<Utc>) -> Option<ScheduleView> {
    let next_fire_at = workflow.next_fire_at(now);
    let (timing, policies) = (workflow.spec.timing, workflow.spec.policies);
    let (pause_reason, pause_reason_code) = workflow.pause_reason.map(reasons::answer_pause_reason).unzip();
    Some(ScheduleView {
        workflow_id: workflow.id.0,
        team_id: workflow.team_id,
        name: workflow.spec.name,
        cron_schedule: timing.cron?,
        timezone: timing.timezone,
        starts_at: timing.starts_at,
        ends_at: timing.ends_at,
        overlap_policy: to_view(policies.overlap),
        max_concurrent: policies.max_concurrent,
        catch_up_policy: to_view(policies.catch_up),
        catch_up_window_secs: policies.catch_up_window_secs,
        spread_secs: policies.spread_secs,
        pause_after_failures: policies.pause_after_failures,
        state: to_view(workflow.state),
        pause_reason,
        pause_reason_code: pause_reason_code.flatten(),
        paused_by: to_view(workflow.paused_by),
        pause_until: workflow.pause_until,
        managed_by: workflow.managed_by,
        version: workflow.version,
        revision: workflow.revision.0,
        sync: to_view(sync),
        next_fire_at,
        results: None,
        updated_on: workflow.updated_on,
    })
}
