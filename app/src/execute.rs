//! Step 7 of 7: executes accepted runs, so many at once, until it is told to stop.
//!
//! It polls, because a run must not depend on whoever accepted it; a wake-up only spares the wait.
//! What it has claimed it holds by a lease, renewed by a heartbeat; what it cannot finish at shutdown
//! it gives back for another instance.

mod attempt;
mod call;
mod heartbeat;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::actions::http;
use crate::inject::{self, Point};
use crate::runs::{self, Claimed};
use crate::{App, recover};
use heartbeat::Own;

/// Tells the executor of this process that a run was accepted.
#[derive(Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Makes the executor look now.
    pub fn poke(&self) {
        self.0.notify_one();
    }
}

/// Claims what is due and executes it to its end: all that a test that steps through it needs of an executor.
#[cfg(debug_assertions)]
pub async fn work_off(app: &App, client: &http::Client) {
    let executor = Executor::new(app.clone(), client.clone());
    let mut running = JoinSet::new();
    executor.start_due(&mut running, app.config.executor_slots).await;
    while running.join_next().await.is_some() {}
}

/// Executes runs on this instance.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) app: App,
    pub(crate) client: http::Client,
    own: Own,
}

impl Executor {
    pub(crate) fn new(app: App, client: http::Client) -> Self {
        Self { app, client, own: Own::default() }
    }

    /// Executes runs until `shutdown`, then lets the running ones end or gives them back.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) {
        let slots = self.app.config.executor_slots;
        let poll = Duration::from_millis(self.app.config.executor_poll_ms);
        let beating = tokio::spawn(heartbeat::keep(self.app.clone(), self.own.clone()));
        let mut running = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let started = self.start_due(&mut running, slots).await;
            // A full claim may have left more behind; otherwise wait for a slot, a word or the poll.
            if started > 0 && running.len() < slots {
                continue;
            }
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = running.join_next() => {}
                () = self.app.wake.0.notified(), if running.len() < slots => {}
                () = tokio::time::sleep(poll), if running.len() < slots => {}
            }
            while running.try_join_next().is_some() {}
        }
        self.drain(running).await;
        beating.abort();
    }

    async fn start_due(&self, running: &mut JoinSet<()>, slots: usize) -> usize {
        let free = slots.saturating_sub(running.len());
        if free == 0 {
            return 0;
        }
        let claimed = match self.claim(free).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "cannot claim runs; the next poll tries again");
                return 0;
            }
        };
        let started = claimed.len();
        for run in claimed {
            inject::at(Point::I4);
            running.spawn(self.clone().attempt(run));
        }
        started
    }

    async fn claim(&self, free: usize) -> sqlx::Result<Vec<Claimed>> {
        let mut connection = self.app.pool.acquire().await?;
        let limit = i64::try_from(free).unwrap_or(i64::MAX);
        runs::claim(&mut connection, self.app.instance, limit, self.app.clock.now()).await
    }

    async fn drain(&self, mut running: JoinSet<()>) {
        let all_ended = async { while running.join_next().await.is_some() {} };
        let drain = Duration::from_secs(self.app.config.shutdown_drain_secs);
        if tokio::time::timeout(drain, all_ended).await.is_ok() {
            return;
        }
        tracing::warn!(runs = running.len(), "runs still going at shutdown are cut off and given back");
        running.shutdown().await;
        if let Err(error) = recover::give_back(&self.app).await {
            tracing::warn!(%error, "cannot give runs back; their leases will lapse");
        }
    }
}
