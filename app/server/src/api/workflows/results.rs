//! Step 7 of 7: what became of the last runs of a workflow, as the API shows it with the workflow.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::runs::{Results, RunResult, RunState, Trigger, WeekOfRuns, read_results};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::ListedWorkflow;
use workflows::reasons::{self, ReasonCode};

use crate::api::request::error::Error;
use crate::api::request::read::failed_read;

/// What is shown with a workflow.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResultParams {
    /// `true`: with what became of its last runs.
    pub(super) results: Option<bool>,
}

/// What became of the last runs of a workflow.
#[derive(Serialize, ToSchema)]
pub struct ResultsView {
    /// Its newest run, whether it has ended or not; null: it has none.
    last_run: Option<LastRunView>,
    /// Its last ended runs, the newest first; at most 20.
    recent: Vec<RecentRunView>,
    week: WeekView,
}

/// The newest run of a workflow.
#[derive(Serialize, ToSchema)]
pub struct LastRunView {
    id: Uuid,
    state: RunState,
    trigger: Trigger,
    /// Null for a run that no schedule fired.
    scheduled_time: Option<DateTime<Utc>>,
    created_on: DateTime<Utc>,
    finished_on: Option<DateTime<Utc>>,
    duration_ms: Option<i64>,
    /// Why it failed or ended early, in a sentence. Do not parse it: read `error_code`.
    error: Option<String>,
    /// Why it ended early; null for the error of an action.
    error_code: Option<ReasonCode>,
}

/// An ended run.
#[derive(Serialize, ToSchema)]
pub struct RecentRunView {
    id: Uuid,
    state: RunState,
    trigger: Trigger,
    /// Null for a run that no schedule fired.
    scheduled_time: Option<DateTime<Utc>>,
    finished_on: Option<DateTime<Utc>>,
    duration_ms: Option<i64>,
}

/// The ended runs that were accepted within the last week. Of more than 200, only the newest 200 count.
#[derive(Serialize, ToSchema)]
pub struct WeekView {
    runs: i64,
    /// Succeeded of these, 0 to 1; null: there are none.
    success_rate: Option<f64>,
    /// 95 of 100 took at most this long; null: there are none.
    p95_duration_ms: Option<i64>,
}

/// Reads what became of the last runs of the workflows of a page, if the request asks for it.
pub(super) async fn results_of(
    db: &mut PgConnection,
    requested: Option<bool>,
    listed: &[ListedWorkflow],
    now: DateTime<Utc>,
) -> Result<HashMap<i64, Results>, Error> {
    let ids: Vec<i64> = listed.iter().map(|listed| listed.workflow.id.0).collect();
    read_requested(db, requested, &ids, now).await
}

/// Reads what became of the last runs of workflows, if the request asks for it.
pub(super) async fn read_requested(
    db: &mut PgConnection,
    requested: Option<bool>,
    workflows: &[i64],
    now: DateTime<Utc>,
) -> Result<HashMap<i64, Results>, Error> {
    if requested != Some(true) || workflows.is_empty() {
        return Ok(HashMap::new());
    }
    read_results(db, workflows, now).await.map_err(failed_read)
}

impl From<&Results> for ResultsView {
    fn from(results: &Results) -> Self {
        Self {
            last_run: results.last_run().map(LastRunView::from),
            recent: results.recent.iter().map(RecentRunView::from).collect(),
            week: results.week.into(),
        }
    }
}

impl From<&RunResult> for LastRunView {
    fn from(run: &RunResult) -> Self {
        let (error, error_code) = reasons::as_answered(run.error.clone(), |_| true);
        Self {
            id: run.id,
            state: run.state,
            trigger: run.trigger,
            scheduled_time: run.scheduled_time,
            created_on: run.created_on,
            finished_on: run.finished_on,
            duration_ms: run.duration_ms,
            error,
            error_code,
        }
    }
}

impl From<&RunResult> for RecentRunView {
    fn from(run: &RunResult) -> Self {
        Self {
            id: run.id,
            state: run.state,
            trigger: run.trigger,
            scheduled_time: run.scheduled_time,
            finished_on: run.finished_on,
            duration_ms: run.duration_ms,
        }
    }
}

impl From<WeekOfRuns> for WeekView {
    #[expect(clippy::cast_precision_loss, reason = "at most 200 runs count")]
    fn from(week: WeekOfRuns) -> Self {
        Self {
            runs: week.ended,
            success_rate: (week.ended > 0).then(|| week.succeeded as f64 / week.ended as f64),
            p95_duration_ms: week.p95_duration_ms,
        }
    }
}
