//! Step 7 of 7: the API of background jobs: which instance runs each, its last result, and when it is due.

use api_types::jobs::{JobView, JobsView};
use axum::Json;
use axum::extract::State;

use crate::App;
use crate::api::request::auth::Auditor;
use crate::api::request::error::{Error, Problem};
use crate::api::request::view::to_view;
use crate::cadence::When;
use crate::jobs::{self, Job, Status};

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
        timezone: when.and_then(|when| matches!(when, When::Cron(_)).then(|| zone.to_owned())),
        locked_by: status.locked_by,
        locked_until: status.locked_until,
        last_run: status.last_run,
        last_duration_ms: status.last_duration_ms,
        last_result: to_view(status.last_result),
        last_error: status.last_error,
        next_run: status.next_run,
        run_count: status.run_count,
        error_count: status.error_count,
    }
}
