//! Step 1 of 7: computes when a cron fires: one that is not stored, or one of a schedule.

use api_types::previews::{ExplanationView, NextView, TimeView, TimezonesView};
use axum::Json;
use axum::extract::State;
use chrono::{DateTime, SecondsFormat, Utc};
use schedule::{Cron, CronError, Timezone, Upcoming, WorkflowId, ZoneSet, compile_cron};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use workflows::definition::field::{self, FieldError};
use workflows::definition::spec;
use workflows::{Workflow, find_workflow};

use super::schedules::no_schedule;
use crate::App;
use crate::api::request::auth::Viewer;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Body, Id, Params};
use crate::api::request::view::ViewFrom;

/// Times in an answer if the client names no count.
const DEFAULT_COUNT: usize = 10;
/// Times in an answer at most.
const MAX_COUNT: usize = 100;

/// A cron to explain.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainBody {
    /// The cron, for example `0 9 * * MON-FRI`.
    cron: String,
    /// IANA timezone; absent = UTC.
    #[serde(default)]
    timezone: Option<String>,
    /// Times after this one; absent = now.
    #[serde(default)]
    from: Option<DateTime<Utc>>,
    /// How many times, at most 100; absent = 10.
    #[serde(default)]
    count: Option<u32>,
}

/// How many times to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NextParams {
    /// At most 100; absent = 10.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100)]
    n: Option<i64>,
}

/// Explain a cron: its canonical text, what EventBridge gets, and when it fires.
#[utoipa::path(post, path = "/api/v1/cron:explain", tag = "schedules", request_body = ExplainBody,
    responses((status = 200, body = ExplanationView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn explain_cron(
    State(app): State<App>,
    Viewer(_): Viewer,
    Body(body): Body<ExplainBody>,
) -> Result<Json<ExplanationView>, Error> {
    let timezone = body.timezone.as_deref().map(spec::check_timezone).transpose()?.unwrap_or(Timezone::UTC);
    let from = body.from.map(|from| field::check_instant("from", from)).transpose()?.unwrap_or_else(|| app.clock.now());
    let count = count("count", body.count.map(i64::from))?;
    let explanation = compute_times(move || explain(&body.cron, timezone, from, count)).await?;
    Ok(Json(explanation?))
}

/// Computes on a thread that may be blocked: a cron of scattered years takes long.
async fn compute_times<T: Send + 'static>(times: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(times).await.map_err(|error| Error::Internal(error.into()))
}

fn explain(text: &str, timezone: Timezone, from: DateTime<Utc>, count: usize) -> Result<ExplanationView, FieldError> {
    let refused = |error: CronError| FieldError::of_cron("cron", text, &error);
    let cron = Cron::parse(text).map_err(refused)?;
    cron.must_fire_after(from, timezone).map_err(refused)?;
    let compiled = compile_cron(&cron, timezone);
    Ok(ExplanationView {
        normalized: cron.to_string(),
        eventbridge: compiled.expression,
        eventbridge_timezone: compiled.timezone.name().to_owned(),
        coverage: compiled.coverage.as_str().to_owned(),
        description: cron.describe_times(),
        zone_data: ZoneSet::installed().version().to_string(),
        next: cron.upcoming_times(from, timezone).take(count).map(TimeView::view_from).collect(),
    })
}

/// List the timezones that a workflow may have.
#[utoipa::path(get, path = "/api/v1/timezones", tag = "schedules",
    responses((status = 200, body = TimezonesView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_timezones(Viewer(_): Viewer) -> Json<TimezonesView> {
    let zones = ZoneSet::installed();
    let timezones = zones.names().map(str::to_owned).collect();
    Json(TimezonesView { zone_data: zones.version().to_string(), timezones })
}

/// List the upcoming times of a schedule.
#[utoipa::path(get, path = "/api/v1/schedules/{id}/next", tag = "schedules", params(("id" = i64, Path), NextParams),
    responses((status = 200, body = NextView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_next_times(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<WorkflowId>,
    Params(params): Params<NextParams>,
) -> Result<Json<NextView>, Error> {
    let count = count("n", params.n)?;
    let mut connection = app.pools.reads.acquire().await?;
    let (workflow, _) = find_workflow(&mut connection, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    drop(connection);
    if workflow.spec.timing.cron.is_none() {
        return Err(no_schedule(id));
    }
    let now = app.clock.now();
    Ok(Json(compute_times(move || preview(&workflow, now, count)).await?))
}

fn preview(workflow: &Workflow, now: DateTime<Utc>, count: usize) -> NextView {
    let timing = &workflow.spec.timing;
    let (timezone, warning) = match timing.parsed_timezone() {
        Ok(timezone) => (timezone, None),
        Err(error) => (Timezone::UTC, Some(format!("{error}; these times are those of UTC"))),
    };
    let cron = timing.parsed_cron().filter(|_| workflow.state != workflows::State::Archived);
    let items = cron.map(|cron| {
        let times = cron.upcoming_times(timing.first_instant_after(now), timezone);
        let times = times.take_while(|time| timing.is_before_end(time.utc)).take(count);
        times.map(|time| view_time(workflow, time)).collect()
    });
    NextView { items: items.unwrap_or_default(), next_cursor: None, timezone: timezone.name().to_owned(), warning }
}

fn view_time(workflow: &Workflow, time: Upcoming) -> TimeView {
    match (workflow.state, workflow.pause_until) {
        (workflows::State::Active, _) => TimeView::view_from(time),
        (workflows::State::Paused, Some(until)) if time.utc >= until => TimeView::view_from(time),
        _ => TimeView { note: Some("paused".to_owned()), ..TimeView::view_from(time) },
    }
}

impl ViewFrom<Upcoming> for TimeView {
    fn view_from(time: Upcoming) -> Self {
        Self {
            utc: time.utc,
            local: time.local.to_rfc3339_opts(SecondsFormat::Secs, false),
            offset: time.local.format("%:z").to_string(),
            note: time.note.map(|note| note.as_str().to_owned()),
        }
    }
}

fn count(field: &str, requested: Option<i64>) -> Result<usize, FieldError> {
    let count = requested.map_or(Some(DEFAULT_COUNT), |requested| usize::try_from(requested).ok());
    count
        .filter(|count| (1..=MAX_COUNT).contains(count))
        .ok_or_else(|| FieldError::invalid(field, format!("{field} must be from 1 to {MAX_COUNT}")))
}
