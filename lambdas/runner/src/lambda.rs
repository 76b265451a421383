//! Step 6 of 7: the runner as a Lambda.

use std::time::{Duration, SystemTime};

use lambda_runtime::{Context, Diagnostic, Error, LambdaEvent, service_fn};
use schedule::Delivered;
use serde_json::{Value, json};

use crate::delivery::{DeliverError, Runner};

/// How long a collector that does not answer delays the answer. Afterwards Lambda freezes the process.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);
/// How long the runtime may take to send the answer.
const ANSWERING: Duration = Duration::from_millis(300);

/// Handles Lambda's invocations until the sandbox ends.
///
/// # Errors
/// Fails if the Lambda runtime API cannot be reached or refuses the request.
pub async fn serve_lambda(runner: Runner) -> Result<(), Error> {
    // Boxed, because the nested request types would exceed the compiler's recursion limit.
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| Box::pin(invoke(&runner, event)))).await
}

/// EventBridge ignores the return value, because it invokes asynchronously; it is for manual invocations.
async fn invoke(runner: &Runner, event: LambdaEvent<Value>) -> Result<Value, DeliverError> {
    let delivered = runner.deliver_fire(event.payload).await;
    traces::flush(time_left(&event.context).min(FLUSH_LIMIT)).await;
    Ok(match delivered? {
        Delivered::Accepted { run_id } => json!({"accepted": true, "run_id": run_id}),
        Delivered::Declined { reason } => json!({"accepted": false, "reason": reason}),
        Delivered::Gone => json!({"accepted": false, "reason": "workflow_gone"}),
    })
}

#[expect(clippy::disallowed_methods, reason = "Lambda gives its deadline as a time of day")]
fn time_left(context: &Context) -> Duration {
    context.deadline().duration_since(SystemTime::now()).unwrap_or_default().saturating_sub(ANSWERING)
}

/// The content of a dead-letter message.
impl From<DeliverError> for Diagnostic {
    fn from(error: DeliverError) -> Diagnostic {
        Diagnostic { error_type: error.kind_name().to_owned(), error_message: error.to_string() }
    }
}
