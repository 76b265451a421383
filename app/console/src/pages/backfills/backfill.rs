//! `/backfills/{id}`: one backfill, its progress and its runs.

use api_types::backfills::{BackfillTiming, BackfillView, Only, Order};
use api_types::page::Page;
use api_types::runs::RunView;
use api_types::workflows::WorkflowView;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use uuid::Uuid;

use super::progress::Progress;
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
    Router::new().route("/backfills/{id}", get(show)).route("/backfills/{id}/{verb}", post(act))
}

/// How many of its runs the page names.
const NAMED_RUNS: &str = "20";

/// What an act has done.
#[derive(Deserialize)]
struct Shown {
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "backfill.html")]
struct BackfillPage {
    frame: Frame,
    progress: Progress,
    /// None: it was deleted.
    workflow: Option<WorkflowView>,
    runs: Vec<RunView>,
    /// The list of its runs, and of those that failed.
    all_runs: String,
    failed_runs: String,
}

async fn show(api: Api, PathId(id): PathId<Uuid>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let backfill: BackfillView = api.get(&format!("/backfills/{id}")).await?;
    let workflow = read_workflow(&api, backfill.workflow_id).await?;
    let name = workflow.as_ref().map_or("a deleted workflow", |workflow| &workflow.name);
    let frame = Frame::read(&api, Menu::Backfills, format!("Backfill of {name}"), query.done.as_deref()).await?;
    let runs: Page<RunView> = api.get(&path_of_runs(&backfill, &[], Some(NAMED_RUNS))).await?;
    let page = BackfillPage {
        frame,
        workflow,
        runs: runs.items,
        all_runs: path_of_runs(&backfill, &[], None),
        failed_runs: path_of_runs(&backfill, &["failed", "timed_out", "abandoned", "cancelled"], None),
        progress: backfill.into(),
    };
    show_page(&page)
}

async fn read_workflow(api: &Api, id: i64) -> Result<Option<WorkflowView>, Failure> {
    match api.get(&format!("/workflows/{id}")).await {
        Ok(workflow) => Ok(Some(workflow)),
        Err(Failure::Refused(StatusCode::NOT_FOUND, _)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The runs of a backfill: a workflow has one backfill at a time, so they are the backfilled runs between its begin and its end.
fn path_of_runs(backfill: &BackfillView, states: &[&str], limit: Option<&str>) -> String {
    let (workflow, from) = (backfill.workflow_id.to_string(), rfc3339(&backfill.created_on));
    // A run may be created in the millisecond of the end.
    let to = backfill.finished_on.map(|end| rfc3339(&(end + TimeDelta::milliseconds(1))));
    let states = states.iter().map(|state| ("state", Some(*state)));
    let others = [
        ("trigger", Some("backfill")),
        ("workflow_id", Some(workflow.as_str())),
        ("from", Some(from.as_str())),
        ("to", to.as_deref()),
        ("limit", limit),
    ];
    with_query("/runs", states.chain(others))
}

async fn act(api: Api, Path((id, verb)): Path<(Uuid, String)>) -> Act {
    let done = match verb.as_str() {
        "pause" => "backfill-paused",
        "resume" => "backfill-resumed",
        "cancel" => "backfill-cancelled",
        _ => return Err(Failure::of_field("verb", "a backfill is paused, resumed or cancelled").into()),
    };
    api.post(&format!("/backfills/{id}:{verb}")).await?;
    Ok(show_next(&format!("/backfills/{id}"), done))
}

impl BackfillPage {
    /// A time in the zone of the workflow.
    fn in_zone(&self, time: &DateTime<Utc>) -> String {
        times::in_zone(time, self.workflow.as_ref().and_then(|workflow| workflow.timezone.as_deref()))
    }

    fn order(&self) -> &'static str {
        match self.progress.backfill.order {
            Order::OldestFirst => "the oldest time first",
            Order::NewestFirst => "the newest time first",
        }
    }

    fn only(&self) -> &'static str {
        match self.progress.backfill.only {
            Only::Missing => "times that were missed",
            Only::Failed => "times whose last run failed, timed out or was abandoned",
            Only::All => "all due times",
        }
    }

    fn timing(&self) -> &'static str {
        match self.progress.backfill.timing {
            BackfillTiming::Then => "by the schedule that was in force at each time",
            BackfillTiming::Now => "by the cron and timezone of the request",
        }
    }
}
