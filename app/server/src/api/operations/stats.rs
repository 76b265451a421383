//! Step 7 of 7: the statistics of the ledger, for people and for dashboards.

use api_types::stats::{BucketView, DecisionsView, DelayView, ExecutionsView, RecoveriesView, StatsView};
use axum::Json;
use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use ledger::occurrences::Decision;
use ledger::stats::{self, Bucket, Executions, Scope, Stats};
use schedule::WorkflowId;
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::definition::field::FieldError;

use super::upcoming::{parse_bucket, parse_hours};
use crate::App;
use crate::api::request::auth::Viewer;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::{missing_team, teams_of_list};
use crate::api::request::view::ViewFrom;

/// A week. For a longer span use `/schedules/{id}/occurrences`.
const MAX_HOURS: i64 = 168;
const DEFAULT_HOURS: i64 = 24;

/// Which workflow, and which span.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatsParams {
    /// Only workflows of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only this workflow, without times and runs that are more than a week older than the span, unless a run of the time
    /// was accepted within it.
    workflow_id: Option<i64>,
    /// The last hours to cover, 1 to 168; absent = 24.
    hours: Option<i64>,
    /// The answer has `buckets` of so many seconds: a multiple of 60, at most 1,500 buckets. Not with `workflow_id`.
    bucket_secs: Option<i64>,
}

/// Show the statistics of the last hours: delays, decisions, executions, recoveries.
#[utoipa::path(get, path = "/api/v1/stats", tag = "operations", params(StatsParams),
    responses((status = 200, body = StatsView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_stats(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<StatsParams>,
) -> Result<Json<StatsView>, Error> {
    let hours = parse_hours(params.hours, MAX_HOURS, DEFAULT_HOURS)?;
    let bucket = match (params.bucket_secs, params.workflow_id) {
        (Some(_), Some(_)) => {
            let detail = "bucket_secs and workflow_id exclude each other: list the occurrences of the workflow";
            return Err(FieldError::invalid("bucket_secs", detail).into());
        }
        (secs, _) => secs.map(|secs| parse_bucket(secs, hours)).transpose()?.map(TimeDelta::seconds),
    };
    let teams = teams_of_list(&caller, params.team_id)?;
    let mut tx = begin_read(&app).await?;
    let team_id = team_of_stats(&mut tx, &teams, params.workflow_id).await?;
    let of_all = Scope::of_last(TimeDelta::hours(hours), app.clock.now());
    let scope = Scope { team_id, workflow_id: params.workflow_id, ..of_all };
    let stats = stats::read_stats(&mut tx, scope).await.map_err(failed_read)?;
    let buckets = match bucket {
        Some(bucket) => Some(stats::read_buckets(&mut tx, scope, bucket).await.map_err(failed_read)?),
        None => None,
    };
    tx.commit().await?;
    let buckets = buckets.map(|buckets| buckets.into_iter().map(BucketView::view_from).collect());
    Ok(Json(StatsView { buckets, ..view_stats(&stats, scope) }))
}

/// Returns the team whose statistics are shown; `None` stands for all teams. Percentiles of several teams cannot be added.
async fn team_of_stats(
    db: &mut PgConnection,
    teams: &[Option<i64>],
    workflow_id: Option<i64>,
) -> Result<Option<i64>, Error> {
    match (workflow_id, teams) {
        (None, [only]) => Ok(*only),
        (None, []) => Err(Error::not_found()),
        (None, _) => Err(missing_team("you belong to several teams: send team_id or workflow_id")),
        (Some(id), _) => {
            for team_id in teams {
                if workflows::is_visible(db, WorkflowId(id), *team_id).await.map_err(failed_read)? {
                    return Ok(*team_id);
                }
            }
            Err(Error::not_found())
        }
    }
}

fn view_stats(stats: &Stats, scope: Scope) -> StatsView {
    let delay = stats.delay;
    StatsView {
        from: scope.from,
        to: scope.to,
        fire_delay: DelayView { count: delay.count, p50_s: delay.p50_s, p95_s: delay.p95_s, max_s: delay.max_s },
        occurrences: view_decisions(|decision| stats.decision_count(decision)),
        executions: view_executions(stats.executions),
        recoveries: view_recoveries(stats.executions),
        live_runs: stats.live,
        oldest_unresolved: stats.oldest_unresolved,
        ledger_lag_s: stats.lag_s(scope.to),
        buckets: None,
    }
}

fn view_decisions(count: impl Fn(Decision) -> i64) -> DecisionsView {
    DecisionsView {
        fired: count(Decision::Fired),
        caught_up: count(Decision::CaughtUp),
        backfilled: count(Decision::Backfilled),
        skipped_overlap: count(Decision::SkippedOverlap),
        skipped_paused: count(Decision::SkippedPaused),
        missed: count(Decision::Missed),
        abandoned: count(Decision::Abandoned),
    }
}

impl ViewFrom<(DateTime<Utc>, Bucket)> for BucketView {
    fn view_from((from, bucket): (DateTime<Utc>, Bucket)) -> Self {
        Self {
            from,
            occurrences: view_decisions(|decision| bucket.decision_count(decision)),
            runs: bucket.ended,
            successful: bucket.succeeded,
        }
    }
}

fn view_executions(executions: Executions) -> ExecutionsView {
    let Executions { total, successful, lost, handed_over, cut_off, .. } = executions;
    ExecutionsView { total, successful, lost, handed_over, cut_off, success_rate: rate(successful, total) }
}

fn view_recoveries(executions: Executions) -> RecoveriesView {
    let Executions { recovery_attempts, recovered, recovery_failed, recovery_abandoned, .. } = executions;
    RecoveriesView {
        attempts: recovery_attempts,
        successful: recovered,
        failed: recovery_failed,
        abandoned: recovery_abandoned,
        success_rate: rate(recovered, recovered + recovery_failed + recovery_abandoned),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate of more than 2^53 runs may be rounded")]
fn rate(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
