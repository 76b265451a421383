//! Step 7 of 7: the API that lists the instances of the app.

use api_types::instances::{InstanceState, InstanceView, InstancesView};
use axum::Json;
use axum::extract::State;

use crate::App;
use crate::api::request::auth::Auditor;
use crate::api::request::error::{Error, Problem};
use crate::api::request::view::ViewFrom;
use crate::instances::{self, Instance};

/// List the instances of the app: those that gave a sign within a day and have not stopped.
#[utoipa::path(get, path = "/api/v1/instances", tag = "operations",
    responses((status = 200, body = InstancesView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_instances(State(app): State<App>, Auditor(_): Auditor) -> Result<Json<InstancesView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = instances::list_instances(&mut connection).await?;
    Ok(Json(InstancesView { items: found.into_iter().map(InstanceView::view_from).collect() }))
}

impl ViewFrom<Instance> for InstanceView {
    fn view_from(instance: Instance) -> Self {
        let state = match (instance.is_lost, instance.stops) {
            (true, _) => InstanceState::Lost,
            (false, true) => InstanceState::Stopping,
            (false, false) => InstanceState::Live,
        };
        Self {
            id: instance.id,
            version: instance.version,
            state,
            started_on: instance.started_on,
            seen_on: instance.seen_on,
            slots: instance.slots,
            running_runs: instance.running,
            takes_jobs: instance.takes_jobs,
            jobs: instance.jobs,
        }
    }
}
