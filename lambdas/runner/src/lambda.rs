//! Step 6 of 7: the runner as a Lambda.

use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use schedule::Delivered;
use serde_json::{Value, json};

use crate::delivery::{DeliverError, Runner};

/// Handles Lambda's invocations until the sandbox ends.
///
/// # Errors
/// Fails if the Lambda runtime API cannot be reached or refuses the request.
pub async fn serve_lambda(runner: Runner) -> Result<(), Error> {
    // Boxed, because the nested request types would exceed the compiler's recursion limit.
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| Box::pin(invoke(&runner, event.payload)))).await
}

/// EventBridge ignores the return value, because it invokes asynchronously; it is for manual invocations.
async fn invoke(runner: &Runner, event: Value) -> Result<Value, DeliverError> {
    Ok(match runner.deliver_fire(event).await? {
        Delivered::Accepted { run_id } => json!({"accepted": true, "run_id": run_id}),
        Delivered::Declined { reason } => json!({"accepted": false, "reason": reason}),
        Delivered::Gone => json!({"accepted": false, "reason": "workflow_gone"}),
    })
}

/// The content of a dead-letter message.
impl From<DeliverError> for Diagnostic {
    fn from(error: DeliverError) -> Diagnostic {
        Diagnostic { error_type: error.kind_name().to_owned(), error_message: error.to_string() }
    }
}
