//! Steps 1 and 7 of 7: whether the app is well, for load balancers, Prometheus and people.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{Error, Problem};
use crate::App;

/// How the app is.
#[derive(Serialize, ToSchema)]
pub struct Health {
    status: &'static str,
    env: String,
    version: &'static str,
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = Health)))]
pub(super) async fn healthz(State(app): State<App>) -> Json<Health> {
    Json(health(&app))
}

/// The process can serve: Postgres answers.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Health), (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn readyz(State(app): State<App>) -> Result<Json<Health>, Error> {
    // The pool pings a connection before it hands it out.
    drop(app.pool.acquire().await?);
    Ok(Json(health(&app)))
}

/// Counters of this instance and figures of the ledger, in Prometheus' text form.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Error> {
    let text = app.metrics.render(&app.pool, app.clock.now()).await.map_err(anyhow::Error::from)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response())
}

fn health(app: &App) -> Health {
    Health { status: "ok", env: app.config.env.to_string(), version: env!("CARGO_PKG_VERSION") }
}
