//! Scheduler's refusals, with AWS's names and status codes.

use axum::Json;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// A refusal; the text becomes the body's `Message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The value of a field is one that AWS refuses.
    Validation(String),
    /// The body is not JSON of the operation.
    Serialization(String),
    /// The body is longer than any operation accepts.
    TooLarge,
    /// No such schedule or schedule group.
    NotFound(String),
    /// The name is taken.
    Conflict(String),
    /// The account has reached its quota.
    Quota(String),
    /// The account has exceeded its calls per second.
    Throttled,
    /// A failure of the service.
    Internal,
    /// A path that is not an operation of Scheduler.
    UnknownOperation,
}

impl Error {
    /// `Schedule {name} does not exist.`
    pub fn no_schedule(name: &str) -> Error {
        Error::NotFound(format!("Schedule {name} does not exist."))
    }

    /// `Schedule group {name} does not exist.`
    pub fn no_group(name: &str) -> Error {
        Error::NotFound(format!("Schedule group {name} does not exist."))
    }

    fn parts(self) -> (StatusCode, &'static str, String) {
        match self {
            Error::Validation(message) => (StatusCode::BAD_REQUEST, "ValidationException", message),
            Error::Serialization(message) => (StatusCode::BAD_REQUEST, "SerializationException", message),
            Error::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLargeException",
                "Request size exceeds the limit.".to_owned(),
            ),
            Error::NotFound(message) => (StatusCode::NOT_FOUND, "ResourceNotFoundException", message),
            Error::Conflict(message) => (StatusCode::CONFLICT, "ConflictException", message),
            Error::Quota(message) => (StatusCode::PAYMENT_REQUIRED, "ServiceQuotaExceededException", message),
            Error::Throttled => (StatusCode::TOO_MANY_REQUESTS, "ThrottlingException", "Rate exceeded".to_owned()),
            Error::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerException", "Unexpected error.".to_owned())
            }
            Error::UnknownOperation => {
                (StatusCode::NOT_FOUND, "UnknownOperationException", "The operation is unknown.".to_owned())
            }
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, error_type, message) = self.parts();
        (status, [(ERROR_TYPE, error_type)], Json(json!({ "Message": message }))).into_response()
    }
}
