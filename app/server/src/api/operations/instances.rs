//! Step 7 of 7: the API that lists the instances of the app.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::App;
use crate::api::request::auth::Auditor;
use crate::api::request::error::{Error, Problem};
use crate::instances::{self, Instance};

/// The instances of the app.
#[derive(Serialize, ToSchema)]
pub struct InstancesView {
    items: Vec<InstanceView>,
}

/// An instance of the app.
#[derive(Serialize, ToSchema)]
pub struct InstanceView {
    /// The id by which it owns the leases of runs (`locked_by`) and jobs.
    id: Uuid,
    /// The version of its program.
    version: String,
    state: InstanceState,
    started_on: DateTime<Utc>,
    /// Its last sign; it gives one every 10 s.
    seen_on: DateTime<Utc>,
    /// How many runs it executes at once.
    slots: i32,
    /// How many it executes now.
    running_runs: i64,
    /// Whether it takes background jobs.
    takes_jobs: bool,
    /// The background jobs that it runs now.
    jobs: Vec<String>,
}

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// It serves.
    Live,
    /// It shuts down: it accepts fires, and starts no more runs.
    Stopping,
    /// It gave no sign for a minute, and did not say that it stopped.
    Lost,
}

/// List the instances of the app: those that gave a sign within a day and have not stopped.
#[utoipa::path(get, path = "/api/v1/instances", tag = "operations",
    responses((status = 200, body = InstancesView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_instances(State(app): State<App>, Auditor(_): Auditor) -> Result<Json<InstancesView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = instances::list_instances(&mut connection).await?;
    Ok(Json(InstancesView { items: found.into_iter().map(InstanceView::from).collect() }))
}

impl From<Instance> for InstanceView {
    fn from(instance: Instance) -> Self {
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
