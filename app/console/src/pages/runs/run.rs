//! `/runs/{id}`: what became of one run, step by step.

use api_types::occurrences::OccurrenceView;
use api_types::page::Page;
use api_types::runs::{RunDetailView, RunState};
use api_types::workflows::WorkflowView;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::states::has_ended;
use super::timeline::{self, Step};
use crate::act::{Act, show_next};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::period::rfc3339;
use crate::query::with_query;
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/runs/{id}", get(show))
        .route("/runs/{id}/retry", post(retry))
        .route("/runs/{id}/cancel", post(cancel))
}

/// What an act has done.
#[derive(Deserialize)]
struct Shown {
    done: Option<String>,
}

/// What a retry has created.
#[derive(Deserialize)]
struct Created {
    run_id: Uuid,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    detail: RunDetailView,
    /// None: it was deleted.
    workflow: Option<WorkflowView>,
    occurrence: Option<OccurrenceView>,
    steps: Vec<Step>,
    inputs: Option<String>,
    workflow_inputs: Option<String>,
    result: Option<String>,
    late_result: Option<String>,
}

async fn show(api: Api, PathId(id): PathId<Uuid>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let detail: RunDetailView = api.get(&format!("/runs/{id}")).await?;
    let workflow = read_workflow(&api, &detail).await?;
    let occurrence = read_occurrence(&api, &detail).await?;
    let name = detail.run.workflow_name.as_deref().unwrap_or("a deleted workflow");
    let frame = Frame::read(&api, Menu::Runs, format!("Run of {name}"), query.done.as_deref()).await?;
    let zone = workflow.as_ref().and_then(|workflow| workflow.timezone.as_deref());
    let page = RunPage {
        frame,
        steps: timeline::steps(&detail, occurrence.as_ref(), zone, api.now()),
        inputs: detail.inputs.as_ref().map(pretty),
        workflow_inputs: workflow
            .as_ref()
            .and_then(|workflow| workflow.starting_inputs.as_ref())
            .map(|inputs| pretty(&inputs.to_value())),
        result: detail.run.result.as_ref().map(|result| pretty(&result.to_value())),
        late_result: detail.late_result.as_ref().map(pretty),
        workflow,
        occurrence,
        detail,
    };
    show_page(&page)
}

/// The workflow, unless it was deleted.
async fn read_workflow(api: &Api, detail: &RunDetailView) -> Result<Option<WorkflowView>, Failure> {
    match detail.run.workflow_name {
        Some(_) => api.get(&format!("/workflows/{}", detail.run.workflow_id)).await.map(Some),
        None => Ok(None),
    }
}

/// What was decided for the due time of the run.
async fn read_occurrence(api: &Api, detail: &RunDetailView) -> Result<Option<OccurrenceView>, Failure> {
    let (Some(time), Some(_), Some(_)) = (detail.run.scheduled_time, detail.occurrence_id, &detail.run.workflow_name)
    else {
        return Ok(None);
    };
    let (from, to) = (rfc3339(&time), rfc3339(&(time + TimeDelta::seconds(1))));
    let path = format!("/schedules/{}/occurrences", detail.run.workflow_id);
    let page: Page<OccurrenceView> =
        api.get(&with_query(&path, [("from", Some(from.as_str())), ("to", Some(to.as_str()))])).await?;
    Ok(page.items.into_iter().next())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

async fn retry(api: Api, Path(id): Path<Uuid>) -> Act {
    let created: Created = api.post(&format!("/runs/{id}:retry")).await?.json()?;
    Ok(show_next(&format!("/runs/{}", created.run_id), "retried"))
}

async fn cancel(api: Api, Path(id): Path<Uuid>) -> Act {
    api.post(&format!("/runs/{id}:cancel")).await?;
    Ok(show_next(&format!("/runs/{id}"), "cancelled"))
}

impl RunPage {
    fn has_ended(&self) -> bool {
        has_ended(self.detail.run.state)
    }

    /// A time in the zone of its schedule.
    fn in_zone(&self, time: &DateTime<Utc>) -> String {
        times::in_zone(time, self.workflow.as_ref().and_then(|workflow| workflow.timezone.as_deref()))
    }

    /// Whether it ended otherwise than well, so that a retry is the primary act.
    fn has_failed(&self) -> bool {
        matches!(self.detail.run.state, RunState::Failed | RunState::TimedOut | RunState::Abandoned)
    }
}
