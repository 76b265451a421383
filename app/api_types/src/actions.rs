//! The two forms of an action in the description of the API.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What a run does; `type` selects the form.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(discriminator(property_name = "type", mapping(
    ("log" = "#/components/schemas/LogAction"),
    ("http" = "#/components/schemas/HttpAction"),
)))]
pub enum ActionBody {
    /// A line of the app's log
    Log(LogAction),
    /// A request
    Http(HttpAction),
}

/// Writes a line to the app's log.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"type": "log", "message": "hello"}))]
pub struct LogAction {
    /// `log`
    #[serde(rename = "type")]
    kind: LogType,
    /// The text, 1 to 10,000 characters.
    message: String,
}

/// Sends a request.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"type": "http", "method": "POST", "url": "https://example.com/payroll"}))]
pub struct HttpAction {
    /// `http`
    #[serde(rename = "type")]
    kind: HttpType,
    /// The method of the request.
    #[schema(example = "POST")]
    method: String,
    /// Where the request is sent: http or https.
    #[schema(example = "https://example.com/payroll")]
    url: String,
    /// Headers of the request. Their values are write-only, and read as null.
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, Option<String>>>,
    /// The body of the request, any JSON; absent = the call: workflow, run, times and inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    body: Option<Value>,
}

/// The type of a log action.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogType {
    /// It writes a line.
    Log,
}

/// The type of an http action.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpType {
    /// It sends a request.
    Http,
}
