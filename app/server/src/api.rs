//! Steps 1 and 7 of 7: the HTTP API, in reading order.

mod access_log;
pub mod deprecation;
pub mod notifications;
pub mod openapi;
pub mod operations;
pub mod request;
mod response_headers;
pub mod routes;
pub mod runs;
mod serve;
pub mod workflows;

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde_json::Value;
use utoipa::OpenApi as _;
use utoipa_swagger_ui::SwaggerUi;

use crate::App;
use crate::console::build_console;
use request::error::Error;

/// All routes of the table, and the page of their description; the latter and the metrics only if no other listener
/// serves them.
pub fn build_router(app: App) -> Router {
    let routes = if app.config.admin_addr.is_some() {
        routes::register_routes(&app, |route| !route.is_administrative())
    } else {
        routes::register_routes(&app, |_| true).merge(docs_page())
    };
    // The pages call the API in this process: it is a router of its own, which has no pages.
    let api = with_layers(routes::register_routes(&app, |route| !route.is_administrative()), app.clone());
    let pages = build_console(api, &app);
    with_layers(routes.merge(pages), app)
}

/// What `CRONBOX_ADMIN_ADDR` serves: the metrics, the probes, and the page of the description.
pub fn build_admin_router(app: App) -> Router {
    let routes = routes::register_routes(&app, |route| route.is_administrative() || route.is_probe());
    let to_docs = get(async || Redirect::temporary("/docs/"));
    with_layers(routes.merge(docs_page()).route("/", to_docs), app)
}

fn with_layers(routes: Router<App>, app: App) -> Router {
    routes
        .fallback(|| async { Error::not_found() })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), serve::serve_request))
        .with_state(app)
}

/// Computed once for all routers of a process.
static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| openapi::complete::complete(serde_json::to_value(routes::Api::openapi()).unwrap_or_default()));
static DESCRIPTION_AS_3_0: LazyLock<Value> = LazyLock::new(|| openapi::older::render_as_3_0(DESCRIPTION.clone()));

/// The page of the description. Without the validator it would send its address to a server on the internet. The other layout
/// has a logo with inline style, which the policy of the page forbids.
fn docs_page() -> Router<App> {
    let settings = utoipa_swagger_ui::Config::new(["/openapi.json"]).validator_url("none").use_base_layout();
    Router::new()
        .merge(SwaggerUi::new("/docs").config(settings))
        .route("/openapi.json", get(async || Json(&*DESCRIPTION)))
        .route("/openapi-3.0.json", get(async || Json(&*DESCRIPTION_AS_3_0)))
}

/// The complete description of all operations, as OpenAPI 3.1.
#[must_use]
pub fn describe() -> &'static Value {
    &DESCRIPTION
}

/// The same description as OpenAPI 3.0.3.
#[must_use]
pub fn describe_as_3_0() -> &'static Value {
    &DESCRIPTION_AS_3_0
}

async fn method_not_allowed() -> Error {
    let detail = "this resource has no such method".to_owned();
    Error::Refused(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}
