//! Step 7 of 7: the API of background jobs: which instance runs each, its last result, and when it is due.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::App;
use crate::api::request::auth::Auditor;
use crate::api::request::error::{Error, Problem};
use crate::cadence::When;
use crate::jobs::{self, Job, LastResult, Status};

/// The background jobs.
#[derive(Serialize, ToSchema)]
pub struct JobsView {
    items: Vec<JobView>,
}

/// The state of a background job.
#[derive(Serialize, ToSchema)]
pub struct JobView {
    name: String,
    /// Seconds as `60s`, or a cron; null: this version of the app does not know the job.
    schedule: Option<String>,
    /// The timezone of the cron; null: no cron.
    timezone: Option<&'static str>,
    /// The instance that runs it now; null: none.
    locked_by: Option<Uuid>,
    locked_until: Option<DateTime<Utc>>,
    last_run: Option<DateTime<Utc>>,
    last_duration_ms: Option<i64>,
    /// Null: it has never run.
    last_result: Option<LastResult>,
    last_error: Option<String>,
    next_run: DateTime<Utc>,
    run_count: i64,
    error_count: i64,
}

/// List the background jobs.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "operations",
    responses((status = 200, body = JobsView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_jobs(State(app): State<App>, Auditor(_): Auditor) -> Result<Json<JobsView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = jobs::list_statuses(&mut connection).await?;
    let known = jobs::all_jobs(&app.config);
    let zone = app.config.jobs_timezone.name();
    let items = found.into_iter().map(|job| view(job, &known, zone)).collect();
    Ok(Json(JobsView { items }))
}

fn view(status: Status, known: &[Job], zone: &'static str) -> JobView {
    let when = known.iter().find(|job| job.name == status.name).map(|job| &job.when);
    JobView {
        name: status.name,
        schedule: when.map(ToString::to_string),
        timezone: when.and_then(|when| matches!(when, When::Cron(_)).then_some(zone)),
        locked_by: status.locked_by,
        locked_until: status.locked_until,
        last_run: status.last_run,
        last_duration_ms: status.last_duration_ms,
        last_result: status.last_result,
        last_error: status.last_error,
        next_run: status.next_run,
        run_count: status.run_count,
        error_count: status.error_count,
    }
}
