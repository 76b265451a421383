//! Step 7 of 7: what a run does. `workflows` parses an action when a workflow is saved; an attempt performs it.

mod call;
mod http;
mod log;
mod outcome;
#[cfg(test)]
mod rebinding;
mod send;
pub mod signature;

use egress::allowed::Allowed;
use serde_json::Value;
use url::Url;
use workflows::definition::action::Action;
use workflows::definition::field::FieldError;

pub use call::{Call, Context};
pub use outcome::{Again, Outcome};
pub use send::Sender;

/// Executes an action once.
pub async fn perform_action(action: &Action, call: &Call, sender: &Sender<'_>) -> Outcome {
    match action {
        Action::Log(action) => {
            sender.departure.leave_or_wait().await;
            log::log_call(action, call)
        }
        Action::Http(action) => http::send_request(action, call, sender).await,
    }
}

/// Refuses an action whose URL leads to a private address when a workflow is saved. Each send checks again.
///
/// # Errors
/// Returns the field `action.url` with the reason.
pub async fn check_reach(document: &Value, allowed: &Allowed) -> Result<(), FieldError> {
    // The caller refuses an action that cannot be parsed, with a reason of its own.
    let url = document.get("url").and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
    let Some(url) = url else { return Ok(()) };
    allowed.check_now(&url).await.map_err(|refused| FieldError::invalid("action.url", refused.to_string()))
}
