//! Step 4 of 7: the API of drift: how EventBridge differs from the database, and requests for a sweep.

use api_types::drift::{DriftView, DriftedView, OrphanView, SweepView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;
use workflows::drift::{self, Drifted, Orphan, Sweep};

use crate::App;
use crate::api::request::auth::{Auditor, Operator};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{OptionalBody, Trace};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::{ViewFrom, to_view};

/// How many differences are listed; the report counts all of them.
const SHOWN: i64 = 200;

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
        last: last.map(SweepView::view_from),
        open: open.map(SweepView::view_from),
        workflows: workflows.into_iter().map(DriftedView::view_from).collect(),
        orphans: orphans.into_iter().map(OrphanView::view_from).collect(),
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
    Ok((StatusCode::ACCEPTED, Json(to_view(sweep))))
}

impl ViewFrom<Sweep> for SweepView {
    fn view_from(sweep: Sweep) -> Self {
        let Sweep { id, requested_by, force, requested_on, started_on, finished_on, report } = sweep;
        Self { id, requested_by, force, requested_on, started_on, finished_on, report }
    }
}

impl ViewFrom<Drifted> for DriftedView {
    fn view_from(drifted: Drifted) -> Self {
        let Drifted { workflow_id, name, class, last_error } = drifted;
        Self { workflow_id, name, class, last_error }
    }
}

impl ViewFrom<Orphan> for OrphanView {
    fn view_from(orphan: Orphan) -> Self {
        let Orphan { name, first_seen, last_seen } = orphan;
        Self { name, first_seen, last_seen }
    }
}
