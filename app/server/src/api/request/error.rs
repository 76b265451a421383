//! Steps 1 and 7 of 7: the errors that a client receives.
//!
//! | what happened | here | status |
//! |---|---|---|
//! | a field is not valid | `FieldError`, by `?` | 400, with `field` |
//! | the database refused a constraint | [`Error::from`] a `sqlx::Error`, by the constraint's name | 400 or 409 |
//! | the database is unavailable or busy | the same, by the kind of error | 503, `Retry-After` |
//! | a limit of the key, the address or the team | [`Error::limited`] | 429, `Retry-After`, `RateLimit` |
//! | an unknown error | `Error::Internal`, logged once here, never sent | 500 |

use api_types::problem::FieldProblem;
pub use api_types::problem::Problem;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use workflows::definition::field::FieldError;
use workflows::secrets::SecretError;

use super::request_id::{RequestId, current_id};

/// Why a request is refused.
#[derive(Debug)]
pub enum Error {
    /// 400: a field of the body or the query is not valid.
    Field(FieldError),
    /// Any other refusal: its status, its stable code and a sentence.
    Refused(StatusCode, &'static str, String),
    /// 503: try again after this number of seconds.
    Later(StatusCode, &'static str, &'static str, u32),
    /// 429: a limit is reached.
    Limited(&'static str, String, Limit),
    /// 500: logged, never sent.
    Internal(anyhow::Error),
    /// 401: a token is refused; the answer never says why.
    TokenRefused,
}

/// A limit of requests, for the headers `RateLimit-Policy`, `RateLimit` and `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it limits: the name of the policy.
    pub policy: &'static str,
    /// How many requests it permits.
    pub quota: i64,
    /// In how many seconds; `None` = at once.
    pub window_secs: Option<u32>,
    /// After how many seconds a client may try again.
    pub retry_secs: u32,
}

impl Limit {
    /// The value of `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
    fn policy_header(&self) -> String {
        let Self { policy, quota, .. } = self;
        match self.window_secs {
            Some(seconds) => format!("\"{policy}\";q={quota};w={seconds}"),
            None => format!("\"{policy}\";q={quota};qu=\"concurrent-requests\""),
        }
    }

    /// The value of `RateLimit`: no request is left until the seconds have passed.
    fn remaining_header(&self) -> String {
        format!("\"{}\";r=0;t={}", self.policy, self.retry_secs)
    }
}

/// In the extensions of a response that refuses a caller: why, by the code of the answer or the name of the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusalReason(pub(crate) &'static str);

impl Error {
    /// 404; the same answer if the object does not exist and if it belongs to another team.
    #[must_use]
    pub fn not_found() -> Self {
        Self::Refused(StatusCode::NOT_FOUND, "not_found", "it does not exist, or it belongs to another team".into())
    }

    /// 403.
    #[must_use]
    pub fn forbidden(detail: &str) -> Self {
        Self::Refused(StatusCode::FORBIDDEN, "forbidden", detail.into())
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::Refused(StatusCode::UNAUTHORIZED, "unauthorized", "send an active key in X-API-Key".into())
    }

    /// The answer to a token where a key would be refused: 401 names the scheme that the client used.
    #[must_use]
    pub fn of_token(self) -> Self {
        match self {
            Self::Refused(StatusCode::UNAUTHORIZED, ..) => Self::TokenRefused,
            other => other,
        }
    }

    /// 401: only a client that has the secret of the key gets it.
    #[must_use]
    pub fn key_expired() -> Self {
        Self::Refused(
            StatusCode::UNAUTHORIZED,
            "key_expired",
            "the key has expired: send an active key in X-API-Key".into(),
        )
    }

    /// 408.
    #[must_use]
    pub fn timeout() -> Self {
        let detail = "the request took too long; read the object to see whether it was changed";
        Self::Refused(StatusCode::REQUEST_TIMEOUT, "request_timeout", detail.into())
    }

    /// 409.
    #[must_use]
    pub fn conflict(code: &'static str, detail: &str) -> Self {
        Self::Refused(StatusCode::CONFLICT, code, detail.into())
    }

    /// 429.
    #[must_use]
    pub fn limited(code: &'static str, detail: String, limit: Limit) -> Self {
        Self::Limited(code, detail, limit)
    }

    /// The scheme that a refused client should use.
    fn challenge(&self) -> &'static str {
        match self {
            Self::TokenRefused => "Bearer error=\"invalid_token\"",
            _ => "ApiKey header=\"X-API-Key\"",
        }
    }

    /// The status and the document of the answer.
    pub(crate) fn problem(&self) -> (StatusCode, Problem) {
        let (status, code, detail, field) = match self {
            Error::Field(error) => {
                let field = Some(error.field.clone()).filter(|field| !field.is_empty());
                (StatusCode::BAD_REQUEST, error.code, error.detail.clone(), field)
            }
            Error::Refused(status, code, detail) => (*status, *code, detail.clone(), None),
            Error::Later(status, code, detail, _) => (*status, *code, (*detail).to_owned(), None),
            Error::Limited(code, detail, _) => (StatusCode::TOO_MANY_REQUESTS, *code, detail.clone(), None),
            Error::Internal(_) => {
                let detail = "cronbox has an error; its log has the cause, with the id of the request".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", detail, None)
            }
            Error::TokenRefused => {
                let detail = "send a valid token of the identity provider, or an active key in X-API-Key".to_owned();
                (StatusCode::UNAUTHORIZED, "unauthorized", detail, None)
            }
        };
        let cron_field = match self {
            Error::Field(error) => error.cron_field,
            Error::Refused(..) | Error::Later(..) | Error::Limited(..) | Error::Internal(_) | Error::TokenRefused => {
                None
            }
        };
        let errors = match self {
            Error::Field(first) if !first.others.is_empty() => {
                std::iter::once(first).chain(&first.others).map(view_field_problem).collect()
            }
            _ => Vec::new(),
        };
        let title = status.canonical_reason().unwrap_or("Error");
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail,
            field,
            cron_field: cron_field.map(str::to_owned),
            errors,
            request_id: current_id().map(|id| id.as_str().to_owned()),
        };
        (status, problem)
    }
}

fn view_field_problem(error: &FieldError) -> FieldProblem {
    FieldProblem {
        code: error.code.to_owned(),
        detail: error.detail.clone(),
        field: error.field.clone(),
        cron_field: error.cron_field.map(str::to_owned),
    }
}

impl Error {
    /// Why the caller is refused, unless the answer is about the object or the server.
    fn refusal_reason(&self) -> Option<RefusalReason> {
        match self {
            Error::Limited(_, _, limit) => Some(RefusalReason(limit.policy)),
            Error::Refused(status, code, _) => {
                (is_of_caller(*status) || *code == "invalid_host").then_some(RefusalReason(code))
            }
            Error::TokenRefused => Some(RefusalReason("unauthorized")),
            Error::Field(_) | Error::Later(..) | Error::Internal(_) => None,
        }
    }
}

fn is_of_caller(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::REQUEST_TIMEOUT)
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if let Error::Internal(error) = &self {
            let id = current_id();
            let request_id = id.as_ref().map(RequestId::as_str);
            tracing::error!(request_id, error = format!("{error:#}"), "request failed");
        }
        let (status, problem) = self.problem();
        let mut response = (status, Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match &self {
            Error::Later(_, _, _, seconds) => set_retry_after(headers, *seconds),
            Error::Limited(_, _, limit) => set_limit(headers, limit),
            Error::Field(_) | Error::Refused(..) | Error::Internal(_) | Error::TokenRefused => {}
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge()));
        }
        if let Some(reason) = self.refusal_reason() {
            response.extensions_mut().insert(reason);
        }
        response
    }
}

fn set_retry_after(headers: &mut HeaderMap, seconds: u32) {
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
}

fn set_limit(headers: &mut HeaderMap, limit: &Limit) {
    set_retry_after(headers, limit.retry_secs);
    for (name, value) in [("ratelimit-policy", limit.policy_header()), ("ratelimit", limit.remaining_header())] {
        // Names of policies are ASCII.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Internal(error)
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Arc::new(error).into()
    }
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Database(error) => error.into(),
            error => Self::Internal(error.into()),
        }
    }
}

/// Requests that wait for the same decision share its error.
impl From<Arc<sqlx::Error>> for Error {
    fn from(error: Arc<sqlx::Error>) -> Self {
        if let Some(refusal) = error.as_database_error().and_then(|error| error.constraint()).and_then(by_constraint) {
            return refusal;
        }
        let id = current_id();
        let request_id = id.as_ref().map(RequestId::as_str);
        match classify_failure(&error) {
            DatabaseFailure::Unreachable => {
                tracing::warn!(request_id, %error, "database unreachable");
                Self::Later(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "database_unavailable",
                    "the database cannot be reached",
                    2,
                )
            }
            DatabaseFailure::Busy => {
                tracing::warn!(request_id, %error, "database busy");
                Self::Later(StatusCode::SERVICE_UNAVAILABLE, "database_busy", "the database is busy", 1)
            }
            DatabaseFailure::Other => Self::Internal(error.into()),
        }
    }
}

/// Maps a constraint of the database to the error for the client.
fn by_constraint(constraint: &str) -> Option<Error> {
    match constraint {
        "workflows_team_id_name_key" => {
            Some(Error::conflict("name_taken", "another workflow of the team has this name and is not archived"))
        }
        "team_limits_team_id_fkey" => Some(Error::not_found()),
        "notification_channels_name" => {
            Some(Error::conflict("name_taken", "another channel of the team has this name"))
        }
        "teams_name_key" => Some(Error::conflict("name_taken", "another team has this name")),
        "workflows_team_id_fkey"
        | "api_keys_team_id_fkey"
        | "bulk_operations_team_id_fkey"
        | "freezes_team_id_fkey"
        | "notification_channels_team_id_fkey"
        | "notification_rules_team_id_fkey" => {
            Some(FieldError::new("unknown_team", "team_id", "no team has this id").into())
        }
        _ => None,
    }
}

enum DatabaseFailure {
    Unreachable,
    Busy,
    Other,
}

/// Classifies errors that pass without a change: a lost connection, a restart, a deadlock, a timeout.
fn classify_failure(failure: &sqlx::Error) -> DatabaseFailure {
    match failure {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        // For example a server that stops during a handshake.
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => DatabaseFailure::Unreachable,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some(code) if code.starts_with("08") || code.starts_with("57P") => DatabaseFailure::Unreachable,
            // too_many_connections; read_only_sql_transaction after a failover
            Some("53300" | "25006") => DatabaseFailure::Unreachable,
            // During a rotation of the password.
            _ if db::is_refused_login(failure) => DatabaseFailure::Unreachable,
            Some("40001" | "40P01" | "55P03" | "57014") => DatabaseFailure::Busy,
            _ => DatabaseFailure::Other,
        },
        _ => DatabaseFailure::Other,
    }
}
