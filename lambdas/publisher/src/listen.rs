//! Steps 3 and 4 of 7: `--listen`, the daemon that publishes an edit as soon as it is told of it.
//!
//! A notification is a hint, nothing more: they get lost, so the daemon polls too. `LISTEN` comes
//! before the scan, at the start and after each reconnect, so that nothing falls between the two.

use std::convert::Infallible;
use std::pin::pin;
use std::time::{Duration, Instant};

use sqlx::postgres::PgListener;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::drain::{Drained, Ending};
use crate::inject::Point;
use crate::lease::{Renewal, Span};
use crate::metrics::prometheus;
use crate::outbox;
use crate::report::Report;
use crate::{Login, Publisher};

/// The channel on which the app tells of an edit, after its commit.
const CHANNEL: &str = "cronbox_outbox";
/// The longest that a lost notification delays an edit.
const POLL: Duration = Duration::from_secs(5);
/// Before listening again after the connection was lost.
const RECONNECT: Duration = Duration::from_secs(1);
/// A daemon's drain has no end of its own.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl Publisher {
    /// Publishes until `shutdown`; then what is in flight is awaited and settled.
    ///
    /// # Errors
    /// None at present: the database's are logged, and tried again.
    pub async fn listen(
        &self,
        metrics: Option<TcpListener>,
        login: Option<&Login>,
        shutdown: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let (word, over) = (Notify::new(), Notify::new());
        let span = Span::until(Instant::now() + FOREVER, Renewal::On, self.injector().stopwatch());
        let mut working = pin!(async {
            tokio::join!(self.drain_often(&span, &word, login), self.sweep_often(&span, &word, &over));
        });
        let mut hearing = pin!(self.hear(&word, login));
        let mut telling = pin!(self.tell_on(metrics));
        tokio::select! {
            never = &mut hearing => match never {},
            never = &mut telling => match never {},
            () = &mut working => return Ok(()),
            () = shutdown => {
                span.end();
                word.notify_one();
                over.notify_one();
            }
        }
        tokio::select! {
            never = hearing => match never {},
            never = telling => match never {},
            () = working => Ok(()),
        }
    }

    async fn tell_on(&self, metrics: Option<TcpListener>) -> Infallible {
        match metrics {
            Some(listener) => prometheus::serve(self, listener).await,
            None => std::future::pending().await,
        }
    }

    /// Drains, and waits for a word, for the next workflow to fall due, or for the poll.
    async fn drain_often(&self, span: &Span, word: &Notify, login: Option<&Login>) {
        while span.may_claim() {
            let pause = match self.drain_for(span).await {
                Ok(Drained { report, ending }) => {
                    tell(report);
                    match ending {
                        Ending::Done => outbox::next_due(self.pool()).await.ok().flatten().unwrap_or(POLL).min(POLL),
                        // All the rest is due; asking again at once would be refused again.
                        Ending::Stopped => POLL,
                    }
                }
                Err(error) => {
                    tracing::warn!("the outbox could not be drained: {error:#}");
                    self.log_in_anew(login, &error).await;
                    RECONNECT
                }
            };
            if span.may_claim() {
                let _ = tokio::time::timeout(pause, word.notified()).await;
            }
        }
    }

    /// Passes on each notification, and each new connection: it may have missed some.
    async fn hear(&self, word: &Notify, login: Option<&Login>) -> Infallible {
        loop {
            let Err(error) = self.hear_on_one_connection(word).await;
            tracing::warn!(%error, "notifications are lost for now; the outbox is polled");
            self.log_in_anew(login, &error.into()).await;
            tokio::time::sleep(RECONNECT).await;
        }
    }

    /// The next try of whoever met `error` finds out whether it helped.
    async fn log_in_anew(&self, login: Option<&Login>, error: &anyhow::Error) {
        if let Some(login) = login {
            login.renewed_after(self.pool(), error).await;
        }
    }

    async fn hear_on_one_connection(&self, word: &Notify) -> sqlx::Result<Infallible> {
        let mut listener = PgListener::connect_with(self.pool()).await?;
        self.injector().at(Point::L1).await;
        listener.listen(CHANNEL).await?;
        loop {
            word.notify_one();
            // `None`: the connection was lost and is back, listening; so a scan is due then too.
            listener.try_recv().await?;
        }
    }
}

fn tell(report: Report) {
    if (Report { remaining: 0, ..report }) != Report::default() {
        tracing::info!(report = %serde_json::json!(report), "drained");
    }
}
