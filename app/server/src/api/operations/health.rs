//! Steps 1 and 7 of 7: health and metrics, for load balancers, Prometheus and operators.

use api_types::health::{Health, Readiness};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ledger::identity;
use schedule::ZoneSet;

use crate::App;
use crate::api::request::error::{Error, Problem};

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
        status: "ok".to_owned(),
        env: app.config.env.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        zone_data: ZoneSet::installed().version().to_string(),
    }
}
