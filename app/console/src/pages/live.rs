//! `/live`: the stream of events that tells an open page to read itself again.

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;

use crate::api::{Api, Console};
use crate::failure::Failure;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/live", get(follow))
}

async fn follow(api: Api, headers: HeaderMap) -> Result<Response, Failure> {
    api.stream("/events", headers.get("last-event-id").cloned()).await
}
