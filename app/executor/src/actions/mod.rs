//! Step 7 of 7: what a run does. `workflows` parses an action when a workflow is saved; an attempt performs it.

mod call;
mod http;
mod log;
mod outcome;
#[cfg(test)]
mod rebinding;
mod send;
pub mod signature;

use egress::allowed::{self, Allowed, Tenant};
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

/// Refuses an action whose URL a team may not call when the team saves a workflow. Each send checks again.
///
/// # Errors
/// Returns the field `action.url` with the reason.
pub async fn check_reach(document: &Value, allowed: &Allowed, tenant: Tenant<'_>) -> Result<(), FieldError> {
    let Some(url) = url_of(document) else { return Ok(()) };
    allowed.check_now(&url, tenant).await.map_err(|refused| FieldError::invalid("action.url", refused.to_string()))
}

/// Refuses an action whose URL has none of the hosts that a team may call.
///
/// # Errors
/// Returns the field `action.url` with the reason.
pub fn check_host(document: &Value, hosts: &[String]) -> Result<(), FieldError> {
    let Some(url) = url_of(document) else { return Ok(()) };
    allowed::check_host(&url, hosts).map_err(|refused| FieldError::invalid("action.url", refused.to_string()))
}

/// Whether [`check_reach`] asks a name server.
pub async fn must_resolve(document: &Value, allowed: &Allowed) -> bool {
    match url_of(document) {
        Some(url) => allowed.must_resolve(&url).await,
        None => false,
    }
}

/// The caller refuses an action that cannot be parsed, with a reason of its own.
fn url_of(document: &Value) -> Option<Url> {
    let url = document.get("url").and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
    url.filter(|url| matches!(url.scheme(), "http" | "https"))
}
