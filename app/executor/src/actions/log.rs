//! Step 7 of 7: the `log` action prints what an `http` action would have sent, without marked values.

use serde_json::json;
use workflows::definition::action::Log;
use workflows::definition::redaction;

use super::{Call, Outcome};

/// Logs the message.
pub(super) fn log_call(action: &Log, call: &Call) -> Outcome {
    let mut shown = json!(call);
    redaction::redact_marked(&mut shown["inputs"]);
    tracing::info!(
        run_id = %call.run_id,
        workflow_id = call.workflow_id.0,
        call = %shown,
        text = action.message,
        "log action executed"
    );
    Outcome::Succeeded(json!({ "message": action.message }))
}
