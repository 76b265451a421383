//! The notifier as a Lambda: one invocation, one tick.

use std::time::{Duration, Instant, SystemTime};

use lambda_database::{Login, SecretVersions};
use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde_json::Value;

use crate::metrics::render_emf_line;
use crate::notifier::Notifier;
use crate::report::Report;

/// How long the reading of the metrics may take.
const METRICS_LIMIT: Duration = Duration::from_secs(5);

/// Handles Lambda's invocations until the sandbox ends; the report is the return value.
///
/// # Errors
/// Fails if the Lambda runtime API cannot be reached or refuses the request.
pub async fn serve_lambda(notifier: Notifier, login: Login) -> Result<(), Error> {
    let (notifier, login) = (&notifier, &login);
    // Boxed, because the nested request types would exceed the compiler's recursion limit.
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Value>| Box::pin(invoke(notifier, login, event)))).await
}

async fn invoke(notifier: &Notifier, login: &Login, event: LambdaEvent<Value>) -> Result<Report, TickError> {
    // Lambda gives the deadline as a time of day; everything below counts on the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "Lambda gives its deadline as a time of day")]
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let deadline = Instant::now() + left;
    let mut report = Report::default();
    let mut done = notifier.run_tick(deadline, &mut report).await.map_err(anyhow::Error::from);
    // The secret is read again only once: a second refusal is an error, and the next tick tries again.
    if let Err(error) = &done
        && login.renewed_after(notifier.pool(), error, SecretVersions::CurrentOrPrevious).await
    {
        done = notifier.run_tick(deadline, &mut report).await.map_err(anyhow::Error::from);
    }
    // Also after a failed tick, when the metrics matter most.
    let waited = tokio::time::timeout(METRICS_LIMIT, notifier.oldest_wait()).await.ok().flatten();
    println!("{}", render_emf_line(notifier.env(), report, waited, notifier.clock().now()));
    done.map_err(TickError)?;
    tracing::info!(report = %serde_json::json!(report), "tick ended");
    Ok(report)
}

/// Why a tick failed; the next tick tries again.
#[derive(Debug)]
struct TickError(anyhow::Error);

impl From<TickError> for Diagnostic {
    fn from(TickError(error): TickError) -> Diagnostic {
        let kind = match error.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut) => "DatabaseUnavailable",
            _ => "DatabaseError",
        };
        Diagnostic { error_type: kind.to_owned(), error_message: format!("{error:#}") }
    }
}
