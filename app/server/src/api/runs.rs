//! Step 7 of 7: the API that reads runs and occurrences.

pub mod backfills;
mod context;
pub mod invoke;
pub mod manual;
pub mod occurrences;

use api_types::raw::RawJson;
use api_types::runs::{AttemptOutcome, AttemptView, RunContextView, RunDetailView, RunView};
use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::runs::{self, Attempt, AttemptEnd, Filter, Run, RunDetail, RunState, Trigger};
use schedule::WorkflowId;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;
use workflows::definition::field::{self, FieldError};
use workflows::definition::redaction;
use workflows::id::first_id_of;
use workflows::keyset::{KeyOrder, KeysetPage};
use workflows::reasons::{self};

use super::request::auth::{Caller, Viewer};
use super::request::error::{Error, Problem};
use super::request::extract::{Id, Params};
use super::request::page::{self, Page, PageAnswer};
use super::request::read::{begin_read, failed_read};
use super::request::team::teams_of_list;
use crate::App;
use crate::api::request::view::{ViewFrom, to_view};

/// Filters of a list of runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunParams {
    /// Only runs of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only runs of this workflow.
    workflow_id: Option<i64>,
    /// Only runs in one of these states; repeat it for each.
    #[param(inline)]
    #[serde(default)]
    state: Vec<RunState>,
    /// Only runs with one of these triggers; repeat it for each.
    #[param(inline)]
    #[serde(default)]
    trigger: Vec<Trigger>,
    /// Accepted at or after this time, to the millisecond.
    from: Option<DateTime<Utc>>,
    /// Accepted before this time, to the millisecond.
    to: Option<DateTime<Utc>>,
    /// `true`: with how many runs all pages have, at most 10,000.
    total: Option<bool>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List runs, the newest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(RunParams),
    responses((status = 200, body = Page<RunView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_runs(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<RunParams>,
) -> Result<PageAnswer, Error> {
    page_of_runs(&app, &caller, params).await
}

/// Read a run, with its inputs, its tries and what it repeats.
#[utoipa::path(get, path = "/api/v1/runs/{id}", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 200, body = RunDetailView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_run(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<Uuid>,
) -> Result<Json<RunDetailView>, Error> {
    let mut tx = begin_read(&app).await?;
    let run = runs::find_run(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    let view = read_detail(&mut tx, run).await?;
    tx.commit().await?;
    Ok(Json(view))
}

/// Reads the rest of a run that the caller may see.
pub(super) async fn read_detail(tx: &mut PgConnection, run: Run) -> Result<RunDetailView, Error> {
    let detail = runs::find_detail(tx, run.id).await?.ok_or_else(Error::not_found)?;
    let mut names = workflows::names_of_workflows(tx, &[run.workflow_id]).await?;
    let name = names.remove(&run.workflow_id);
    let earlier = runs::list_attempts(tx, run.id).await?;
    let attempts = view_attempts(earlier, &run);
    let context = context::read_context(tx, &run, &detail).await?;
    Ok(view_detail(view_run(run, name), detail, context, attempts))
}

/// List the runs of a schedule, the newest first.
#[utoipa::path(get, path = "/api/v1/schedules/{id}/runs", tag = "schedules", params(("id" = i64, Path), RunParams),
    responses((status = 200, body = Page<RunView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_schedule_runs(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<WorkflowId>,
    Params(params): Params<RunParams>,
) -> Result<PageAnswer, Error> {
    check_visible(&app, id, caller.team_id).await?;
    if params.workflow_id.is_some_and(|requested| requested != id.0) {
        return Err(FieldError::invalid("workflow_id", "workflow_id must be the id in the path").into());
    }
    page_of_runs(&app, &caller, RunParams { workflow_id: Some(id.0), ..params }).await
}

async fn page_of_runs(app: &App, caller: &Caller, params: RunParams) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(caller, params.team_id)?;
    let (from, to) = parse_bounds(params.from, params.to)?;
    let filter = Filter {
        team_id: None,
        workflow_id: params.workflow_id,
        states: params.state,
        triggers: params.trigger,
        from,
        to,
        before: page::parse_cursor_within(params.cursor.as_deref(), from.map(first_id_of), to.map(first_id_of))?,
        limit: page::parse_limit(params.limit)?,
        now: app.clock.now(),
    };
    let mut tx = begin_read(app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    let mut total = (params.total == Some(true)).then_some(0);
    for team_id in teams {
        let filter = Filter { team_id, ..filter.clone() };
        pages.push(runs::list_runs(&mut tx, &filter).await.map_err(failed_read)?);
        if let Some(total) = &mut total {
            *total += runs::count_runs(&mut tx, &filter).await.map_err(failed_read)?;
        }
    }
    let total = total.map(|total| total.min(runs::MOST_COUNTED));
    let found = KeysetPage::merge(pages, filter.limit, KeyOrder::Descending, |run: &Run| run.id);
    let ids: BTreeSet<i64> = found.rows.iter().map(|run| run.workflow_id).collect();
    let names = workflows::names_of_workflows(&mut tx, &ids.into_iter().collect::<Vec<_>>()).await;
    let names = names.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_counted_page(
        found,
        total,
        |run| run.id,
        move |run| {
            let name = names.get(&run.workflow_id).cloned();
            view_run(run, name)
        },
    )
    .await
}

type Bound = Option<DateTime<Utc>>;

/// The times of a query: those that Postgres stores, in its precision.
fn parse_bounds(from: Bound, to: Bound) -> Result<(Bound, Bound), FieldError> {
    let parsed = |field, time: Bound| time.map(|time| field::check_instant(field, time)).transpose();
    Ok((parsed("from", from)?, parsed("to", to)?))
}

async fn check_visible(app: &App, id: WorkflowId, team_id: Option<i64>) -> Result<(), Error> {
    let mut connection = app.pools.reads.acquire().await?;
    if workflows::is_visible(&mut connection, id, team_id).await? { Ok(()) } else { Err(Error::not_found()) }
}

fn view_run(run: Run, workflow_name: Option<String>) -> RunView {
    let (error, error_code) = reasons::as_answered(run.error, |_| true);
    RunView {
        id: run.id,
        workflow_id: run.workflow_id,
        workflow_name,
        trigger: to_view(run.trigger),
        state: to_view(run.state),
        scheduled_time: run.scheduled_time,
        attempt: run.attempt,
        created_on: run.created_on,
        started_on: run.started_on,
        finished_on: run.finished_on,
        duration_ms: run.duration_ms,
        result: run.result.and_then(RawJson::of_text),
        result_bytes: run.result_bytes,
        error,
        error_code,
    }
}

/// The earlier attempts, and the last one, which is in the row of the run. The attempt of a run that waits for the next one is
/// among the earlier ones.
fn view_attempts(earlier: Vec<Attempt>, run: &Run) -> Vec<AttemptView> {
    let newest = earlier.last().map_or(0, |attempt| attempt.attempt);
    let last = outcome_of(run.state).filter(|_| run.attempt > newest).map(|outcome| {
        let (error, error_code) = reasons::as_answered(run.error.clone(), |_| true);
        let (started_on, ended_on) = (run.started_on, run.finished_on);
        AttemptView { attempt: run.attempt, started_on, ended_on, outcome, error, error_code }
    });
    earlier.into_iter().map(AttemptView::view_from).chain(last).collect()
}

/// How the last attempt of a run in this state ended; `None`: no attempt is being executed.
fn outcome_of(state: RunState) -> Option<AttemptOutcome> {
    match state {
        RunState::Accepted | RunState::Queued => None,
        RunState::Running => Some(AttemptOutcome::Running),
        RunState::Succeeded => Some(AttemptOutcome::Succeeded),
        RunState::Failed => Some(AttemptOutcome::Failed),
        RunState::TimedOut => Some(AttemptOutcome::TimedOut),
        RunState::Cancelled => Some(AttemptOutcome::Cancelled),
        RunState::Abandoned => Some(AttemptOutcome::Abandoned),
    }
}

impl ViewFrom<Attempt> for AttemptView {
    fn view_from(attempt: Attempt) -> Self {
        let (error, error_code) = reasons::as_answered(attempt.error, |_| true);
        let outcome = match attempt.outcome {
            AttemptEnd::Failed => AttemptOutcome::Failed,
            AttemptEnd::Lost => AttemptOutcome::Lost,
            AttemptEnd::HandedOver => AttemptOutcome::HandedOver,
        };
        let Attempt { attempt, started_on, ended_on, .. } = attempt;
        Self { attempt, started_on, ended_on: Some(ended_on), outcome, error, error_code }
    }
}

fn view_detail(
    run: RunView,
    mut detail: RunDetail,
    context: Option<RunContextView>,
    attempts: Vec<AttemptView>,
) -> RunDetailView {
    if let Some(inputs) = &mut detail.inputs {
        redaction::redact_marked(inputs);
    }
    let (cancel_reason, _code) = reasons::as_answered(detail.cancel_reason, |_| true);
    RunDetailView {
        run,
        team_id: detail.team_id,
        occurrence_id: detail.occurrence_id,
        retry_of: detail.retry_of,
        backfill_id: detail.backfill_id,
        inputs: detail.inputs,
        tries: detail.tries,
        recoveries: detail.recoveries,
        handed_over: detail.handed_over,
        run_after: detail.run_after,
        context,
        attempts,
        cancel_requested_on: detail.cancel_requested_on,
        cancel_reason,
        locked_by: detail.locked_by,
        late_result: detail.late_result,
        trace_id: detail.trace_id,
    }
}
