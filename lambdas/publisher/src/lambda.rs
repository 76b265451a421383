//! Steps 3 and 4 of 7: the publisher as a Lambda: one invocation, one tick.

use std::time::{Instant, SystemTime};

use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;

use crate::Publisher;
use crate::levels;
use crate::metrics::emf;
use crate::report::Report;

/// Serves Lambda's invocations until the sandbox ends; the report is the return value.
///
/// # Errors
/// The runtime API's.
pub async fn serve(publisher: Publisher) -> Result<(), lambda_runtime::Error> {
    lambda_runtime::run(service_fn(|event| invoke(&publisher, event))).await
}

async fn invoke(publisher: &Publisher, event: LambdaEvent<Value>) -> Result<Report, lambda_runtime::Error> {
    // Lambda tells a time of day; all that follows counts on the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "Lambda tells its deadline as a time of day")]
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    if event.payload["sweep"] == true {
        publisher.request_sweep("lambda").await?;
    }
    let drained = publisher.tick(Instant::now() + left).await;
    tell(publisher).await;
    let report = drained?;
    tracing::info!(report = %serde_json::json!(report), "drained");
    Ok(report)
}

/// Metrics of an invocation that failed matter most; without a database there are none to tell.
async fn tell(publisher: &Publisher) {
    match levels::read(publisher.pool()).await {
        Ok(levels) => {
            let totals = publisher.metrics().take();
            println!("{}", emf::line(&publisher.config().env, &totals, &levels, publisher.clock().now()));
        }
        Err(error) => tracing::warn!(%error, "the outbox cannot be measured"),
    }
}
