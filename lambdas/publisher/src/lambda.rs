//! Steps 3 and 4 of 7: the publisher as a Lambda: one invocation, one tick.

use std::time::{Instant, SystemTime};

use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;

use crate::levels;
use crate::metrics::emf;
use crate::report::Report;
use crate::{Login, Publisher};

/// Serves Lambda's invocations until the sandbox ends; the report is the return value.
///
/// # Errors
/// The runtime API's.
pub async fn serve(publisher: Publisher, login: Login) -> Result<(), lambda_runtime::Error> {
    lambda_runtime::run(service_fn(|event| invoke(&publisher, &login, event))).await
}

async fn invoke(
    publisher: &Publisher,
    login: &Login,
    event: LambdaEvent<Value>,
) -> Result<Report, lambda_runtime::Error> {
    // Lambda tells a time of day; all that follows counts on the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "Lambda tells its deadline as a time of day")]
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let deadline = Instant::now() + left;
    let is_sweep = event.payload["sweep"] == true;
    let drained = match work(publisher, is_sweep, deadline).await {
        // Once: a second refusal is an error, and the next minute tries again.
        Err(error) if login.renewed_after(publisher.pool(), &error).await => work(publisher, is_sweep, deadline).await,
        drained => drained,
    };
    tell(publisher).await;
    let report = drained?;
    tracing::info!(report = %serde_json::json!(report), "drained");
    Ok(report)
}

async fn work(publisher: &Publisher, is_sweep: bool, deadline: Instant) -> anyhow::Result<Report> {
    if is_sweep {
        publisher.request_sweep("lambda").await?;
    }
    publisher.tick(deadline).await
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
