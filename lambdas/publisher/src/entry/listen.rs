//! Steps 3 and 4 of 7: `--listen`, the daemon that publishes an edit as soon as it is notified.
//!
//! A notification is only a hint: it may be lost, so the daemon polls too. `LISTEN` comes before the scan, at the start
//! and after each reconnect, so that no edit is missed between the two.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use db::Listener;
use lambda_database::{Login, SecretVersions};
use tokio::net::TcpListener;

use crate::claim;
use crate::drain::pipeline::SETTLE_AGAIN;
use crate::drain::{Drained, Ending};
use crate::failpoint::Point;
use crate::metrics::prometheus;
use crate::publisher::Publisher;
use crate::report::Report;
use crate::scheduler::lease::{Renewal, Span};

/// The channel on which the app notifies the publisher after the commit of an edit.
const CHANNEL: &str = "cronbox_outbox";
/// How often it mirrors the dead letters, so that a requested redrive waits no longer.
const MIRROR_EVERY: Duration = Duration::from_secs(15);
/// The pause before it listens again after the connection was lost.
const RECONNECT: Duration = Duration::from_secs(1);

impl Publisher {
    /// Publishes until `shutdown`; then the calls in flight are awaited and settled.
    ///
    /// # Errors
    /// Never fails at present: the task logs database errors and tries again.
    pub async fn publish_on_notification(
        &self,
        metrics: Option<TcpListener>,
        login: Option<&Login>,
        shutdown: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let span = self.new_span(None, Renewal::On);
        let mut working = pin!(async {
            tokio::join!(self.drain_often(&span, login), self.sweep_often(&span), self.mirror_often(&span))
        });
        let mut listening = pin!(self.receive_notifications(&span, login));
        let mut serving = pin!(self.serve_metrics(metrics));
        tokio::select! {
            never = &mut listening => match never {},
            never = &mut serving => match never {},
            ((), (), ()) = &mut working => return Ok(()),
            () = shutdown => span.end_span(),
        }
        tokio::select! {
            never = listening => match never {},
            never = serving => match never {},
            ((), (), ()) = working => Ok(()),
        }
    }

    async fn serve_metrics(&self, metrics: Option<TcpListener>) -> Infallible {
        match metrics {
            Some(listener) => prometheus::serve_scrapes(self.pool(), self.metrics(), listener).await,
            None => std::future::pending().await,
        }
    }

    /// Drains, and waits for a notification, for the next workflow to become due, or for the poll.
    async fn drain_often(&self, span: &Span, login: Option<&Login>) {
        let poll = self.poll();
        while span.may_claim() {
            let pause = match self.drain_for(span).await {
                Ok(Drained { report, ending }) => {
                    log_report(report);
                    match ending {
                        Ending::Done if self.has_locked() => SETTLE_AGAIN,
                        Ending::Done => claim::next_due(self.pool()).await.ok().flatten().unwrap_or(poll).min(poll),
                        // The other workflows are all due, and EventBridge would refuse them again.
                        Ending::Stopped | Ending::Outdated | Ending::Held => poll,
                    }
                }
                Err(error) => {
                    tracing::warn!("drain failed: {error:#}");
                    self.log_in_anew(login, &error).await;
                    RECONNECT
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = span.wait_for_notification() => {}
                () = span.wait_for_end() => {}
            }
        }
    }

    /// Mirrors the dead letters again and again; each pass logs its failures.
    async fn mirror_often(&self, span: &Span) {
        while span.may_claim() {
            self.mirror_dead_letters().await;
            tokio::select! {
                () = tokio::time::sleep(MIRROR_EVERY) => {}
                () = span.wait_for_end() => {}
            }
        }
    }

    /// Passes on each notification, and each new connection, because notifications may have been lost before it.
    async fn receive_notifications(&self, span: &Span, login: Option<&Login>) -> Infallible {
        loop {
            let Err(error) = self.listen_on_one_connection(span).await;
            tracing::warn!(%error, "notifications not received; the outbox is polled");
            self.log_in_anew(login, &error.into()).await;
            tokio::time::sleep(RECONNECT).await;
        }
    }

    /// Renews the login; the next statement shows whether that helped.
    async fn log_in_anew(&self, login: Option<&Login>, error: &anyhow::Error) {
        if let Some(login) = login {
            login.renewed_after(self.pool(), error, SecretVersions::Current).await;
        }
    }

    async fn listen_on_one_connection(&self, span: &Span) -> sqlx::Result<Infallible> {
        self.injector().pass_point(Point::L1).await;
        let mut listener = Listener::connect(self.pool(), CHANNEL).await?;
        loop {
            span.notify_drain();
            listener.next_notification().await?;
        }
    }
}

fn log_report(report: Report) {
    if (Report { remaining: 0, ..report }) != Report::default() {
        tracing::info!(report = %serde_json::json!(report), "drain ended");
    }
}
