//! The wire's own answers in place of Scheduler's.

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;

/// The error type in the body; the SDK reads it there and in the header.
pub(super) fn error_body(typed: &str, body: &[u8]) -> Vec<u8> {
    let mut json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    json["__type"] = typed.into();
    json.to_string().into_bytes()
}

pub(super) fn refusal(status: u16, typed: &str, message: &str) -> HttpResponse {
    answer(status, serde_json::json!({"__type": typed, "Message": message}).to_string().into_bytes())
}

pub(super) fn answer(status: u16, body: Vec<u8>) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), body.into())
}

pub(super) fn silence() -> ConnectorError {
    ConnectorError::timeout("no answer came".into())
}
