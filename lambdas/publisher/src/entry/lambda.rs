//! Steps 3 and 4 of 7: the publisher as a Lambda: one invocation, one tick.

use std::time::{Duration, Instant, SystemTime};

use lambda_database::{Login, SecretVersions};
use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::claim;
use crate::drain::pipeline::SETTLE_AGAIN;
use crate::drain::{Drained, Ending};
use crate::metrics::emf::render_emf_line;
use crate::metrics::gauges::read_gauges;
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::{Renewal, Span};

/// How long the runtime may take to send an answer: before the deadline, and before the exit after a signal.
const ANSWERING: Duration = Duration::from_millis(300);
/// How long a collector that does not answer delays the answer. Afterwards Lambda freezes the process.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);
/// While a tick waits for a retry, it checks for edits this often.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Handles Lambda's invocations until the sandbox ends; the report is the return value.
///
/// # Errors
/// Fails if the Lambda runtime API cannot be reached or refuses the request.
pub async fn serve_lambda(publisher: Publisher, login: Login) -> Result<(), lambda_runtime::Error> {
    let busy = Mutex::new(());
    let (publisher, login, is_busy) = (&publisher, &login, &busy);
    let serving = lambda_runtime::run(service_fn(move |event| async move {
        let _busy = is_busy.lock().await;
        Box::pin(invoke(publisher, login, event)).await
    }));
    tokio::select! {
        served = serving => served,
        () = publisher.ended_and(&busy) => Ok(()),
    }
}

impl Publisher {
    /// Returns when the publisher was ended and the current invocation is answered.
    async fn ended_and(&self, busy: &Mutex<()>) {
        self.new_span(None, Renewal::Off).wait_for_end().await;
        let _idle = busy.lock().await;
        tokio::time::sleep(ANSWERING).await;
    }
}

async fn invoke(publisher: &Publisher, login: &Login, event: LambdaEvent<Value>) -> Result<Report, TickError> {
    // Lambda gives the deadline as a time of day; everything below counts on the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "Lambda gives its deadline as a time of day")]
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let deadline = publisher.now() + left;
    let is_sweep = event.payload["sweep"] == true;
    // Boxed, as below.
    let drained = match Box::pin(work(publisher, is_sweep, deadline)).await {
        // The secret is read again only once: a second refusal is an error, and the next tick tries again.
        Err(error)
            if Box::pin(login.renewed_after(publisher.pool(), &error, SecretVersions::CurrentOrPrevious)).await =>
        {
            Box::pin(work(publisher, is_sweep, deadline)).await
        }
        drained => drained,
    };
    Box::pin(write_metrics(publisher, deadline)).await;
    Box::pin(traces::flush(time_left(publisher, deadline).min(FLUSH_LIMIT))).await;
    let report = drained.map_err(TickError)?;
    tracing::info!(report = %serde_json::json!(report), "drain ended");
    Ok(report)
}

async fn work(publisher: &Publisher, is_sweep: bool, deadline: Instant) -> anyhow::Result<Report> {
    if is_sweep {
        publisher.request_sweep("lambda").await?;
    }
    let span = publisher.new_span(Some(deadline), Renewal::Off);
    // Boxed, because the tick as one future exceeds the compiler's recursion limit.
    let mut drained = Box::pin(publisher.tick_for(&span)).await?;
    while wait_for_retry(publisher, &span, &drained).await? {
        drained.add_drain(Box::pin(publisher.drain_for(&span)).await?);
    }
    Ok(drained.report)
}

/// Waits for the next retry or settle that is due within the tick. Without one, the next tick comes in time.
async fn wait_for_retry(publisher: &Publisher, span: &Span, drained: &Drained) -> anyhow::Result<bool> {
    // If EventBridge refused all workflows, it would refuse them again.
    if drained.ending != Ending::Done {
        return Ok(false);
    }
    let wait = if publisher.has_locked() { Some(SETTLE_AGAIN) } else { claim::next_retry(publisher.pool()).await? };
    let Some(wait) = wait.filter(|wait| span.may_claim_after(*wait)) else { return Ok(false) };
    tokio::select! {
        () = tokio::time::sleep(wait.min(CHECK_EVERY)) => {}
        () = span.wait_for_end() => {}
    }
    Ok(span.may_claim())
}

/// Writes metrics, also after a failed invocation, when they matter most. Gauges that cannot be read are left out.
async fn write_metrics(publisher: &Publisher, deadline: Instant) {
    // The metrics must not make a successful tick time out.
    let left = time_left(publisher, deadline);
    let metrics = publisher.metrics();
    let gauges = read_gauges(publisher.pool(), metrics.outbox_mark(), metrics.queues(), left).await;
    let totals = metrics.take_totals();
    let dropped = traces::take_dropped_spans();
    println!("{}", render_emf_line(&publisher.config().env, &totals, dropped, &gauges, publisher.clock().now()));
}

/// How long the tick may continue before it answers.
fn time_left(publisher: &Publisher, deadline: Instant) -> Duration {
    deadline.saturating_duration_since(publisher.now()).saturating_sub(ANSWERING)
}

/// Why a tick failed; the next tick tries again.
#[derive(Debug)]
struct TickError(anyhow::Error);

impl TickError {
    /// The name of its kind, for Lambda's console and dead-letter messages.
    fn kind(&self) -> &'static str {
        match self.0.chain().find_map(|cause| cause.downcast_ref::<sqlx::Error>()) {
            Some(sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut) => "DatabaseUnavailable",
            Some(_) => "DatabaseError",
            None => "TickFailed",
        }
    }
}

impl From<TickError> for Diagnostic {
    fn from(error: TickError) -> Diagnostic {
        Diagnostic { error_type: error.kind().to_owned(), error_message: format!("{:#}", error.0) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// With a paused clock: the database accepts connections and never answers.
    #[tokio::test(start_paused = true)]
    async fn silent_database_metrics_keep_their_limit() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dsn = format!("postgres://u@{}/d?sslmode=disable", silent.local_addr().unwrap());
        let publisher = Publisher::of_test(&dsn, "http://127.0.0.1:9").await;
        let (began, left) = (tokio::time::Instant::now(), Duration::from_secs(3));
        write_metrics(&publisher, publisher.now() + left).await;
        assert!(began.elapsed() <= left, "{:?}", began.elapsed());
    }
}
