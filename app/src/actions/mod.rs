//! Step 7 of 7: what a run does. The API parses an action when a workflow is saved, and `execute.rs` performs it.

pub mod address;
mod departure;
pub mod http;
pub mod log;
#[cfg(test)]
mod rebinding;
pub mod signature;

use std::time::Duration;

use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

pub use departure::Departure;

use crate::field::{self, FieldError};
use crate::teams::SigningSecret;

/// A workflow's action, validated.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes a line to the app's log.
    Log(log::Log),
    /// Sends a request.
    Http(Box<http::Http>),
}

impl Action {
    /// Reads `{"type": "log" | "http", ..}`.
    ///
    /// # Errors
    /// Returns the field of the action that is not valid.
    pub fn parse(document: &Value) -> Result<Self, FieldError> {
        let Value::Object(members) = document else {
            return Err(FieldError::invalid("action", "action must be an object with a type"));
        };
        let mut members = members.clone();
        match members.remove("type") {
            Some(Value::String(kind)) if kind == "log" => log::Log::parse(members.into()).map(Self::Log),
            Some(Value::String(kind)) if kind == "http" => {
                http::Http::parse(members.into()).map(Box::new).map(Self::Http)
            }
            None | Some(Value::Null) => Err(FieldError::new("missing_field", "action.type", "missing field `type`")),
            Some(_) => Err(FieldError::invalid("action.type", "action.type must be \"log\" or \"http\"")),
        }
    }
}

/// Returns the action as the API shows it: header values are secrets, so they become null.
#[must_use]
pub fn redacted(document: &Value) -> Value {
    let mut shown = document.clone();
    if let Some(headers) = shown.get_mut("headers").and_then(Value::as_object_mut) {
        headers.values_mut().for_each(|value| *value = Value::Null);
    }
    shown
}

/// What a run passes to its action.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// The run; a receiver deduplicates by it.
    pub run_id: Uuid,
    /// The workflow of the run.
    pub workflow_id: WorkflowId,
    /// What started the run.
    pub trigger: String,
    /// The scheduled time; `None` for a manual run.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// 1 at the first attempt.
    pub attempt: i32,
    /// The workflow's starting inputs, or the inputs of this run only.
    pub inputs: Value,
    /// Why and how late this run happens.
    pub context: Context,
}

/// Why and how late a run happens.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// The run replaces a time that was missed.
    pub is_catch_up: bool,
    /// The run continues after its instance was lost or ended: the receiver may have seen an earlier attempt.
    pub is_recovery: bool,
    /// Seconds from the nominal time to the start of this attempt.
    pub lateness_s: i64,
    /// The due time of the schedule.
    pub original_scheduled_time: Option<DateTime<Utc>>,
    /// When a recovery took the run; `None` without one.
    pub recovery_attempt_time: Option<DateTime<Utc>>,
    /// The nominal time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// The next five times of the schedule.
    pub next_scheduled_times: Vec<DateTime<Utc>>,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It succeeded, with this result.
    Succeeded(Value),
    /// It failed.
    Failed {
        /// What went wrong, for the workflow's owner.
        error: String,
        /// What the receiver answered, if it did.
        result: Option<Value>,
        /// Whether another attempt may succeed.
        again: Again,
    },
}

/// Whether an action that failed should be attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It would fail again.
    Never,
    /// Later, after at least the pause that the receiver requested.
    Later(Option<Duration>),
}

/// What an action needs to be sent.
pub struct Sender<'a> {
    /// The client of all actions.
    pub client: &'a http::Client,
    /// The secret that signs it.
    pub secret: &'a SigningSecret,
    /// When it is sent.
    pub now: DateTime<Utc>,
    /// Whether it may still be sent, and whether it was.
    pub departure: &'a Departure,
}

/// Executes an action once.
pub async fn perform(action: &Action, call: &Call, sender: &Sender<'_>) -> Outcome {
    match action {
        Action::Log(action) => {
            sender.departure.leave_or_wait().await;
            action.perform(call)
        }
        Action::Http(action) => action.perform(call, sender).await,
    }
}

/// Refuses an action whose URL leads to a private address when a workflow is saved. Each send checks again.
///
/// # Errors
/// Returns the field `action.url` with the reason.
pub async fn check_reach(document: &Value, allowed: &address::Allowed) -> Result<(), FieldError> {
    // The caller refuses an action that cannot be parsed, with a reason of its own.
    let url = document.get("url").and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
    let Some(url) = url else { return Ok(()) };
    allowed.check_now(&url).await.map_err(|refused| FieldError::invalid("action.url", refused.to_string()))
}

fn read<T: serde::de::DeserializeOwned>(document: Value) -> Result<T, FieldError> {
    field::read("action", document)
}

/// Returns the call as JSON.
fn document(call: &Call) -> Value {
    serde_json::to_value(call).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}
