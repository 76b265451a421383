//! Step 1 of 7: the API of what comes: how many due times of a team are ahead, by buckets of time.

use api_types::upcoming::{UpcomingBucketView, UpcomingView};
use axum::Json;
use axum::extract::State;
use chrono::TimeDelta;
use ledger::stats::Scope;
use ledger::upcoming::{MOST_TIMES, count_due_times, read_timings};
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::definition::field::FieldError;

use crate::App;
use crate::api::request::auth::Viewer;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::teams_of_list;

/// Two days; a cron of each minute has 2,880 times in them.
const MAX_HOURS: i64 = 48;
const DEFAULT_HOURS: i64 = 24;
/// Seconds of a bucket if the request has none.
const DEFAULT_BUCKET: i64 = 300;
/// Buckets of an answer at most.
const MAX_BUCKETS: i64 = 1_500;

/// Which span, and how fine.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UpcomingParams {
    /// Only workflows of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// The next hours to cover, 1 to 48; absent = 24.
    hours: Option<i64>,
    /// Seconds of a bucket: a multiple of 60, absent = 300. At most 1,500 buckets.
    bucket_secs: Option<i64>,
}

/// Count the due times that come, by buckets of time: which minutes will be hot.
#[utoipa::path(get, path = "/api/v1/upcoming", tag = "operations", params(UpcomingParams),
    responses((status = 200, body = UpcomingView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_upcoming(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<UpcomingParams>,
) -> Result<Json<UpcomingView>, Error> {
    let hours = parse_hours(params.hours, MAX_HOURS, DEFAULT_HOURS)?;
    let bucket_secs = parse_bucket(params.bucket_secs.unwrap_or(DEFAULT_BUCKET), hours)?;
    let teams = teams_of_list(&caller, params.team_id)?;
    let mut tx = begin_read(&app).await?;
    let mut timings = Vec::new();
    for team_id in teams {
        timings.extend(read_timings(&mut tx, team_id).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let from = Scope::of_last(TimeDelta::zero(), app.clock.now()).from;
    let to = from + TimeDelta::hours(hours);
    let counting = move || count_due_times(&timings, from, to, TimeDelta::seconds(bucket_secs));
    let counts = tokio::task::spawn_blocking(counting).await.map_err(anyhow::Error::from)?;
    let counts = counts.ok_or_else(|| {
        let detail = format!("the schedules have more than {MOST_TIMES} times in {hours} hours: ask for fewer hours");
        FieldError::invalid("hours", detail)
    })?;
    let buckets = counts.into_iter().map(|(from, due)| UpcomingBucketView { from, due }).collect();
    Ok(Json(UpcomingView { from, to, bucket_secs, buckets }))
}

/// The `hours` of a query.
pub(super) fn parse_hours(hours: Option<i64>, most: i64, usual: i64) -> Result<i64, FieldError> {
    match hours.unwrap_or(usual) {
        hours if (1..=most).contains(&hours) => Ok(hours),
        _ => Err(FieldError::invalid("hours", format!("hours must be from 1 to {most}"))),
    }
}

/// The `bucket_secs` of a query.
pub(super) fn parse_bucket(secs: i64, hours: i64) -> Result<i64, FieldError> {
    let refuse = |detail: String| Err(FieldError::invalid("bucket_secs", detail));
    if secs < 60 || secs % 60 != 0 {
        return refuse("bucket_secs must be a multiple of 60".to_owned());
    }
    if hours * 3_600 / secs > MAX_BUCKETS {
        return refuse(format!("bucket_secs must be so long that {hours} hours have at most {MAX_BUCKETS} buckets"));
    }
    Ok(secs)
}
