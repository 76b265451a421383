//! Step 4 of 7: the API of drift: how EventBridge differs from the database, and requests for a sweep.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use workflows::drift::{self, Drifted, Orphan, Sweep};

use crate::App;
use crate::api::request::auth::{Auditor, Operator};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{OptionalBody, Trace};
use crate::api::request::read::{begin_read, failed_read};

/// How many differences are listed; the report counts all of them.
const SHOWN: i64 = 200;

/// The known drift.
#[derive(Serialize, ToSchema)]
pub struct DriftView {
    /// The newest finished sweep; null: none yet.
    last: Option<SweepView>,
    /// The sweep that is requested or in progress.
    open: Option<SweepView>,
    /// Workflows whose schedule is known to differ and is not repaired yet; at most 200.
    workflows: Vec<DriftedView>,
    /// Schedules that belong to no workflow; at most 200.
    orphans: Vec<OrphanView>,
}

/// A comparison of EventBridge with the database.
#[derive(Serialize, ToSchema)]
pub struct SweepView {
    id: i64,
    /// Public prefix of the key that requested it, or `publisher` for a periodic sweep.
    requested_by: String,
    /// Whether it may delete many orphans and make many changes.
    force: bool,
    requested_on: DateTime<Utc>,
    started_on: Option<DateTime<Utc>>,
    finished_on: Option<DateTime<Utc>>,
    /// Counts of what was found and changed so far; empty before it starts.
    #[schema(value_type = Object)]
    report: Value,
}

/// A workflow whose schedule differs.
#[derive(Serialize, ToSchema)]
pub struct DriftedView {
    workflow_id: i64,
    /// Null once the workflow is deleted.
    name: Option<String>,
    /// `missing`, `orphan`, `changed`, `stale_template` or `disabled_out_of_band`.
    class: String,
    /// Why it is not repaired yet.
    last_error: Option<String>,
}

/// A schedule that belongs to no workflow.
#[derive(Serialize, ToSchema)]
pub struct OrphanView {
    name: String,
    first_seen: DateTime<Utc>,
    last_seen: DateTime<Utc>,
}

/// Options of a sweep.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckBody {
    /// Delete orphans and make unexplained changes even if they are many, and roll out past a failed canary. Without
    /// it, more than 10 and more than 5 %, or more than 100, are refused.
    force: bool,
}

/// Show the last sweep, the open one, and the current differences.
#[utoipa::path(get, path = "/api/v1/drift", tag = "operations",
    responses((status = 200, body = DriftView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_drift(State(app): State<App>, Auditor(_): Auditor) -> Result<Json<DriftView>, Error> {
    let mut tx = begin_read(&app).await?;
    let open = drift::find_open_sweep(&mut tx).await.map_err(failed_read)?;
    let last = drift::find_last_sweep(&mut tx).await.map_err(failed_read)?;
    let workflows = drift::list_drifted_workflows(&mut tx, SHOWN).await.map_err(failed_read)?;
    let orphans = drift::list_orphans(&mut tx, SHOWN).await.map_err(failed_read)?;
    tx.commit().await?;
    Ok(Json(DriftView {
        last: last.map(SweepView::from),
        open: open.map(SweepView::from),
        workflows: workflows.into_iter().map(DriftedView::from).collect(),
        orphans: orphans.into_iter().map(OrphanView::from).collect(),
    }))
}

/// Request a sweep. The publisher starts it at its next tick. If one is already open, the answer is that one.
#[utoipa::path(post, path = "/api/v1/drift:check", tag = "operations", request_body = Option<CheckBody>,
    responses((status = 202, body = SweepView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn check_drift(
    State(app): State<App>,
    Operator(caller): Operator,
    Trace(trace): Trace,
    OptionalBody(body): OptionalBody<CheckBody>,
) -> Result<(StatusCode, Json<SweepView>), Error> {
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let sweep = drift::request_sweep(&mut tx, body.force, &caller.edit_at(app.clock.now(), trace)).await?;
    tx.commit().await?;
    Ok((StatusCode::ACCEPTED, Json(sweep.into())))
}

impl From<Sweep> for SweepView {
    fn from(sweep: Sweep) -> Self {
        let Sweep { id, requested_by, force, requested_on, started_on, finished_on, report } = sweep;
        Self { id, requested_by, force, requested_on, started_on, finished_on, report }
    }
}

impl From<Drifted> for DriftedView {
    fn from(drifted: Drifted) -> Self {
        let Drifted { workflow_id, name, class, last_error } = drifted;
        Self { workflow_id, name, class, last_error }
    }
}

impl From<Orphan> for OrphanView {
    fn from(orphan: Orphan) -> Self {
        let Orphan { name, first_seen, last_seen } = orphan;
        Self { name, first_seen, last_seen }
    }
}
