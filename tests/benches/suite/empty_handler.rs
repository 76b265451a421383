//! A server of the app's HTTP library that reads a fire and answers as to a duplicate one, and does nothing else. What it
//! costs is the least that a service of this library can cost on the machine.

use std::net::SocketAddr;

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The argument that makes the suite this server.
pub(crate) const ARGUMENT: &str = "--serve-empty-handler";

pub(crate) async fn serve(address: SocketAddr) {
    let routes = Router::new().route("/readyz", get(|| async {})).route("/api/v1/cron/workflows/{fire}", post(answer));
    axum::serve(TcpListener::bind(address).await.unwrap(), routes).await.unwrap();
}

async fn answer(Path(fire): Path<String>, Json(body): Json<Value>) -> Json<Value> {
    assert!(fire.ends_with(":invoke") && body["scheduled_time"].is_string(), "no fire: {fire} {body}");
    Json(json!({"accepted": false, "reason": "duplicate", "run_id": "01a22596-a79d-769a-87be-e2abd7591b4d"}))
}
