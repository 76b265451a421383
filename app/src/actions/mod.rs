//! Step 7 of 7: what a run does. Parsed at the edge, executed by `execute.rs`.

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

/// The action as it may be shown: header values are secrets, so they read as null.
#[must_use]
pub fn redacted(document: &Value) -> Value {
    let mut shown = document.clone();
    if let Some(headers) = shown.get_mut("headers").and_then(Value::as_object_mut) {
        headers.values_mut().for_each(|value| *value = Value::Null);
    }
    shown
}

/// What a run hands to its action.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// The run; a receiver deduplicates by it.
    pub run_id: Uuid,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// What started it.
    pub trigger: String,
    /// The nominal time, none for a run by hand.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// 1 at the first attempt.
    pub attempt: i32,
    /// The workflow's starting inputs, or those of this run alone.
    pub inputs: Value,
    /// Why and how late this run happens.
    pub context: Context,
}

/// Why and how late a run happens.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// Run for a time that was missed.
    pub is_catch_up: bool,
    /// Continued after its instance was lost or ended: the receiver may have seen an earlier attempt.
    pub is_recovery: bool,
    /// Seconds from the nominal time to the start of this attempt.
    pub lateness_s: i64,
    /// The time that the schedule owed.
    pub original_scheduled_time: Option<DateTime<Utc>>,
    /// When a recovery picked the run up, none without one.
    pub recovery_attempt_time: Option<DateTime<Utc>>,
    /// The nominal time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// The next five times of the schedule.
    pub next_scheduled_times: Vec<DateTime<Utc>>,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It did what it should.
    Succeeded(Value),
    /// It did not; the sentence says why.
    Failed {
        /// For the workflow's owner.
        error: String,
        /// What came back, if anything did.
        result: Option<Value>,
        /// Whether another try may fare better.
        again: Again,
    },
}

/// Whether an action that failed is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It would fail again.
    Never,
    /// Later; not before the pause that the receiver asked for.
    Later(Option<Duration>),
}

/// As whom an action is sent.
pub struct Sender<'a> {
    /// The client of all actions.
    pub client: &'a http::Client,
    /// What signs it.
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

/// Refuses an action that leads inside, when it is saved; each send judges again.
///
/// # Errors
/// Returns the field `action.url` with the reason.
pub async fn check_reach(document: &Value, allowed: &address::Allowed) -> Result<(), FieldError> {
    // What cannot be parsed is refused with its own reason, by whoever saves it.
    let url = document.get("url").and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
    let Some(url) = url else { return Ok(()) };
    allowed.check_now(&url).await.map_err(|refused| FieldError::invalid("action.url", refused.to_string()))
}

fn read<T: serde::de::DeserializeOwned>(document: Value) -> Result<T, FieldError> {
    field::read("action", document)
}

/// The call as JSON; it holds nothing that JSON cannot say.
fn document(call: &Call) -> Value {
    serde_json::to_value(call).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}
