//! Steps 1 and 7 of 7: health and metrics, for load balancers, Prometheus and operators.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ledger::identity;
use schedule::ZoneSet;
use serde::Serialize;
use utoipa::ToSchema;

use crate::App;
use crate::api::request::error::{Error, Problem};

/// The health of the app.
#[derive(Serialize, ToSchema)]
pub struct Health {
    status: &'static str,
    env: String,
    version: &'static str,
    /// Version of the IANA database that this instance uses.
    #[schema(example = "2026f")]
    zone_data: String,
}

/// The readiness of the app.
#[derive(Serialize, ToSchema)]
pub struct Readiness {
    #[serde(flatten)]
    health: Health,
    /// How far this instance's clock is ahead of the database's, which decides. Above 2 a warning is logged.
    clock_skew_seconds: f64,
    /// Whether this instance takes jobs: not if its clock differs by more than 30 s, nor with
    /// `CRONBOX_JOBS_ENABLED=false`.
    takes_jobs: bool,
    /// Why no run starts until `cronbox-app ledger accept`: `restored`, `cloned`, `marked` or `eventbridge_ahead`;
    /// null = runs start.
    held: Option<String>,
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = Health)))]
pub(crate) async fn show_health(State(app): State<App>) -> Json<Health> {
    Json(health(&app))
}

/// The process can serve: Postgres answered and accepted a write in the last second.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Readiness), (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_readiness(State(app): State<App>) -> Result<Json<Readiness>, Error> {
    let held = app.readiness.try_get_with((), async {
        let mut connection = app.pools.work.acquire().await?;
        identity::prove_writable(&mut connection).await?;
        identity::read_hold(&mut connection).await
    });
    let held = held.await?;
    Ok(Json(Readiness {
        health: health(&app),
        clock_skew_seconds: app.clock_skew.as_seconds(),
        takes_jobs: app.config.jobs_enabled && app.clock_skew.permits_jobs(),
        held,
    }))
}

/// Counters of this instance and gauges of the ledger, in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn show_metrics(State(app): State<App>) -> Result<Response, Error> {
    let text = app.render_metrics().await.map_err(anyhow::Error::from)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response())
}

fn health(app: &App) -> Health {
    Health {
        status: "ok",
        env: app.config.env.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        zone_data: ZoneSet::installed().version().to_string(),
    }
}
