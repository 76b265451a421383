//! Refusals, by RFC 9457.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// RFC 9457 `application/problem+json`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`; `code` distinguishes the errors.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: String,
    /// The reason phrase of the status.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable, for programs.
    pub code: String,
    /// A sentence, for people.
    pub detail: String,
    /// The field of the body or the query that is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The field of the cron that is not valid, if `field` is a cron.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "minute")]
    pub cron_field: Option<String>,
    /// All fields that are not valid, if there are several: the first one is that of this problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
    /// The id of the request, as in the header `x-request-id` and in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "4bf92f3577b34da6a3ce929d0e0e4736")]
    pub request_id: Option<String>,
}

/// One of several fields that are not valid.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct FieldProblem {
    /// Stable, for programs.
    pub code: String,
    /// A sentence, for people.
    pub detail: String,
    /// The field.
    pub field: String,
    /// The field of the cron that is not valid, if `field` is a cron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron_field: Option<String>,
}
