//! Step 7 of 7: what became of the last runs of a workflow, as the API shows it with the workflow.

use api_types::results::{LastRunView, RecentRunView, ResultsView, WeekView};
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::runs::{Results, RunResult, WeekOfRuns, read_results};
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::ListedWorkflow;
use workflows::reasons::{self};

use crate::api::request::error::Error;
use crate::api::request::read::failed_read;
use crate::api::request::view::{ViewFrom, to_view};

/// What is shown with a workflow.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResultParams {
    /// `true`: with what became of its last runs.
    pub(super) results: Option<bool>,
}

/// Reads what became of the last runs of the workflows of a page, if the request asks for it.
pub(super) async fn results_of(
    db: &mut PgConnection,
    requested: Option<bool>,
    listed: &[(String, ListedWorkflow)],
    now: DateTime<Utc>,
) -> Result<HashMap<i64, Results>, Error> {
    let ids: Vec<i64> = listed.iter().map(|(_, listed)| listed.workflow.id.0).collect();
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

impl ViewFrom<&Results> for ResultsView {
    fn view_from(results: &Results) -> Self {
        Self {
            last_run: results.last_run().map(LastRunView::view_from),
            recent: results.recent.iter().map(RecentRunView::view_from).collect(),
            failures_in_a_row: results.failures_in_a_row,
            week: to_view(results.week),
        }
    }
}

impl ViewFrom<&RunResult> for LastRunView {
    fn view_from(run: &RunResult) -> Self {
        let (error, error_code) = reasons::as_answered(run.error.clone(), |_| true);
        Self {
            id: run.id,
            state: to_view(run.state),
            trigger: to_view(run.trigger),
            scheduled_time: run.scheduled_time,
            created_on: run.created_on,
            finished_on: run.finished_on,
            duration_ms: run.duration_ms,
            error,
            error_code,
        }
    }
}

impl ViewFrom<&RunResult> for RecentRunView {
    fn view_from(run: &RunResult) -> Self {
        Self {
            id: run.id,
            state: to_view(run.state),
            trigger: to_view(run.trigger),
            scheduled_time: run.scheduled_time,
            finished_on: run.finished_on,
            duration_ms: run.duration_ms,
        }
    }
}

impl ViewFrom<WeekOfRuns> for WeekView {
    #[expect(clippy::cast_precision_loss, reason = "at most 200 runs count")]
    fn view_from(week: WeekOfRuns) -> Self {
        Self {
            runs: week.ended,
            success_rate: (week.ended > 0).then(|| week.succeeded as f64 / week.ended as f64),
            p95_duration_ms: week.p95_duration_ms,
        }
    }
}
