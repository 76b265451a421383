//! Step 7 of 7: the `log` action prints what an `http` action would have sent.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, Outcome};
use crate::field::{self, FieldError};

/// `{"type": "log", "message": ".."}`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The text to log.
    pub message: String,
}

impl Log {
    pub(super) fn parse(document: Value) -> Result<Self, FieldError> {
        let log: Self = super::read(document)?;
        field::text("action.message", &log.message, 1, 10_000)?;
        Ok(log)
    }

    pub(super) fn perform(&self, call: &Call) -> Outcome {
        tracing::info!(
            run_id = %call.run_id,
            workflow_id = call.workflow_id.0,
            call = %super::document(call),
            "log action: {}",
            self.message,
        );
        Outcome::Succeeded(json!({ "message": self.message }))
    }
}
