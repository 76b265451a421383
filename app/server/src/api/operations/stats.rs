//! Step 7 of 7: the statistics of the ledger, for people and for dashboards.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use ledger::occurrences::Decision;
use ledger::stats::{self, Bucket, Executions, Scope, Stats};
use schedule::WorkflowId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workflows::definition::field::FieldError;

use super::upcoming::{parse_bucket, parse_hours};
use crate::App;
use crate::api::request::auth::Viewer;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::{missing_team, teams_of_list};

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

/// The statistics of the ledger.
#[derive(Serialize, ToSchema)]
pub struct StatsView {
    /// The start of the minute in which the span begins.
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    fire_delay: DelayView,
    occurrences: DecisionsView,
    executions: ExecutionsView,
    recoveries: RecoveriesView,
    /// Runs that wait or execute.
    live_runs: i64,
    /// The oldest occurrence whose run has not ended; null: every run has ended.
    oldest_unresolved: Option<DateTime<Utc>>,
    /// Seconds by which the ledger is behind: 0 while every due time is decided within the grace of 300 s.
    ledger_lag_s: i64,
    /// The span by buckets, the earliest first, only those in which something happened; null without `bucket_secs`.
    buckets: Option<Vec<BucketView>>,
}

/// What happened in a part of the span.
#[derive(Serialize, ToSchema)]
pub struct BucketView {
    from: DateTime<Utc>,
    /// Due times that were decided in it.
    occurrences: DecisionsView,
    /// Runs that ended in it.
    runs: i64,
    /// Of these, those that succeeded.
    successful: i64,
}

/// Seconds from the scheduled time of fires to their decision. Percentiles of 8 s or more are rounded up, by a quarter at
/// most, except those of one workflow.
#[derive(Serialize, ToSchema)]
pub struct DelayView {
    /// Number of fires.
    count: i64,
    p50_s: f64,
    p95_s: f64,
    max_s: i64,
}

/// Due times by decision.
#[derive(Serialize, ToSchema)]
pub struct DecisionsView {
    fired: i64,
    caught_up: i64,
    backfilled: i64,
    skipped_overlap: i64,
    skipped_paused: i64,
    missed: i64,
    abandoned: i64,
}

/// Runs that ended.
#[derive(Serialize, ToSchema)]
pub struct ExecutionsView {
    total: i64,
    successful: i64,
    /// Abandoned, but not by a shutdown: it is unknown whether their action completed.
    lost: i64,
    /// How often a run was handed over, at a shutdown or because the reply to its claim was lost.
    handed_over: i64,
    /// Abandoned because a shutdown interrupted them and `on_lost` is `abandon`.
    cut_off: i64,
    /// Successful of all that ended, 0 to 1; null: none ended.
    success_rate: Option<f64>,
}

/// Runs that continued after their instance was lost.
#[derive(Serialize, ToSchema)]
pub struct RecoveriesView {
    /// How often a run continued.
    attempts: i64,
    /// Of these runs, those that succeeded.
    successful: i64,
    /// Of these runs, those that failed, timed out or were cancelled.
    failed: i64,
    /// Of these runs, those that were abandoned.
    abandoned: i64,
    /// Successful of those that ended, 0 to 1; null: none ended.
    success_rate: Option<f64>,
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
    let buckets = buckets.map(|buckets| buckets.into_iter().map(BucketView::from).collect());
    Ok(Json(StatsView { buckets, ..StatsView::of(&stats, scope) }))
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

impl StatsView {
    fn of(stats: &Stats, scope: Scope) -> Self {
        let delay = stats.delay;
        Self {
            from: scope.from,
            to: scope.to,
            fire_delay: DelayView { count: delay.count, p50_s: delay.p50_s, p95_s: delay.p95_s, max_s: delay.max_s },
            occurrences: DecisionsView::of(|decision| stats.decision_count(decision)),
            executions: ExecutionsView::of(stats.executions),
            recoveries: RecoveriesView::of(stats.executions),
            live_runs: stats.live,
            oldest_unresolved: stats.oldest_unresolved,
            ledger_lag_s: stats.lag_s(scope.to),
            buckets: None,
        }
    }
}

impl DecisionsView {
    fn of(count: impl Fn(Decision) -> i64) -> Self {
        Self {
            fired: count(Decision::Fired),
            caught_up: count(Decision::CaughtUp),
            backfilled: count(Decision::Backfilled),
            skipped_overlap: count(Decision::SkippedOverlap),
            skipped_paused: count(Decision::SkippedPaused),
            missed: count(Decision::Missed),
            abandoned: count(Decision::Abandoned),
        }
    }
}

impl From<(DateTime<Utc>, Bucket)> for BucketView {
    fn from((from, bucket): (DateTime<Utc>, Bucket)) -> Self {
        Self {
            from,
            occurrences: DecisionsView::of(|decision| bucket.decision_count(decision)),
            runs: bucket.ended,
            successful: bucket.succeeded,
        }
    }
}

impl ExecutionsView {
    fn of(executions: Executions) -> Self {
        let Executions { total, successful, lost, handed_over, cut_off, .. } = executions;
        Self { total, successful, lost, handed_over, cut_off, success_rate: rate(successful, total) }
    }
}

impl RecoveriesView {
    fn of(executions: Executions) -> Self {
        let Executions { recovery_attempts, recovered, recovery_failed, recovery_abandoned, .. } = executions;
        Self {
            attempts: recovery_attempts,
            successful: recovered,
            failed: recovery_failed,
            abandoned: recovery_abandoned,
            success_rate: rate(recovered, recovered + recovery_failed + recovery_abandoned),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate of more than 2^53 runs may be rounded")]
fn rate(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
