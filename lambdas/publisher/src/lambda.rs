//! Steps 3 and 4 of 7: the publisher as a Lambda: one invocation, one tick.

use std::time::{Duration, Instant, SystemTime};

use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::drain::{Drained, Ending};
use crate::lease::{Renewal, Span};
use crate::levels;
use crate::metrics::emf;
use crate::outbox;
use crate::pipeline::SETTLE_AGAIN;
use crate::report::Report;
use crate::{Login, Publisher};

/// How long the runtime may take to send an answer: after the metrics before the deadline, and after a signal.
const ANSWERING: Duration = Duration::from_millis(300);
/// While a tick waits for a retry, it looks this often for edits.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Serves Lambda's invocations until the sandbox ends; the report is the return value.
///
/// # Errors
/// Fails if the Lambda runtime API cannot be reached or refuses the request.
pub async fn serve(publisher: Publisher, login: Login) -> Result<(), lambda_runtime::Error> {
    let busy = Mutex::new(());
    let (publisher, login, is_busy) = (&publisher, &login, &busy);
    let serving = lambda_runtime::run(service_fn(move |event| async move {
        let _busy = is_busy.lock().await;
        invoke(publisher, login, event).await
    }));
    tokio::select! {
        served = serving => served,
        () = publisher.ended_and(&busy) => Ok(()),
    }
}

impl Publisher {
    /// Returns when it was ended, and the invocation that was under way is answered.
    async fn ended_and(&self, busy: &Mutex<()>) {
        self.span(None, Renewal::Off).ended().await;
        let _idle = busy.lock().await;
        tokio::time::sleep(ANSWERING).await;
    }
}

async fn invoke(publisher: &Publisher, login: &Login, event: LambdaEvent<Value>) -> Result<Report, TickError> {
    // Lambda tells a time of day; all that follows counts on the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "Lambda tells its deadline as a time of day")]
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let deadline = publisher.now() + left;
    let is_sweep = event.payload["sweep"] == true;
    let drained = match work(publisher, is_sweep, deadline).await {
        // Once: a second refusal is an error, and the next minute tries again.
        Err(error) if login.renewed_after(publisher.pool(), &error).await => work(publisher, is_sweep, deadline).await,
        drained => drained,
    };
    tell(publisher, deadline).await;
    let report = drained.map_err(TickError)?;
    tracing::info!(report = %serde_json::json!(report), "drained");
    Ok(report)
}

async fn work(publisher: &Publisher, is_sweep: bool, deadline: Instant) -> anyhow::Result<Report> {
    if is_sweep {
        publisher.request_sweep("lambda").await?;
    }
    let span = publisher.span(Some(deadline), Renewal::Off);
    // Boxed: the whole tick in one future is deeper than the compiler follows.
    let mut drained = Box::pin(publisher.tick_for(&span)).await?;
    while wait_for_retry(publisher, &span, &drained).await? {
        drained.add(Box::pin(publisher.drain_for(&span)).await?);
    }
    Ok(drained.report)
}

/// Waits for the next retry or settle that is due within the tick; without one, the next tick comes in time.
async fn wait_for_retry(publisher: &Publisher, span: &Span, drained: &Drained) -> anyhow::Result<bool> {
    // Who was refused for all would be refused again.
    if drained.ending != Ending::Done {
        return Ok(false);
    }
    let wait = if publisher.has_locked() { Some(SETTLE_AGAIN) } else { outbox::next_retry(publisher.pool()).await? };
    let Some(wait) = wait.filter(|wait| span.may_claim_after(*wait)) else { return Ok(false) };
    tokio::select! {
        () = tokio::time::sleep(wait.min(LOOK_AGAIN)) => {}
        () = span.ended() => {}
    }
    Ok(span.may_claim())
}

/// Metrics of an invocation that failed matter most; what cannot be read is left out.
async fn tell(publisher: &Publisher, deadline: Instant) {
    // They must not turn a good tick into a timeout.
    let left = deadline.saturating_duration_since(publisher.now()).saturating_sub(ANSWERING);
    let levels = levels::read(publisher.pool(), left).await;
    let totals = publisher.metrics().take();
    println!("{}", emf::line(&publisher.config().env, &totals, &levels, publisher.clock().now()));
}

/// Why a tick failed; the next minute tries again.
#[derive(Debug)]
struct TickError(anyhow::Error);

impl TickError {
    /// The name of its kind, as Lambda's console and a dead letter show it.
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

    /// By a clock that runs ahead: the database takes connections and never answers.
    #[tokio::test(start_paused = true)]
    async fn metrics_of_a_silent_database_keep_their_limit() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dsn = format!("postgres://u@{}/d?sslmode=disable", silent.local_addr().unwrap());
        let publisher = Publisher::of_test(&dsn, "http://127.0.0.1:9").await;
        let (began, left) = (tokio::time::Instant::now(), Duration::from_secs(3));
        tell(&publisher, publisher.now() + left).await;
        assert!(began.elapsed() <= left, "{:?}", began.elapsed());
    }
}
