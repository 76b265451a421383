//! Step 7 of 7: the loop of an executor: it claims runs and starts their attempts until the process shuts down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use db::failpoint::pass_point;
use tokio::task::JoinSet;
use workflows::failpoint::Point;

use super::{Executor, heartbeat};
use crate::shutdown::Shutdown;

/// How long interrupted attempts may take to hand over their runs.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);

impl Executor {
    /// Executes runs until `shutdown`, then waits for the running ones or hands them over.
    pub async fn run(self, shutdown: Shutdown) {
        let slots = self.parts.settings.slots;
        let poll = self.parts.settings.poll;
        let beating = tokio::spawn(heartbeat::keep(self.clone()));
        let mut running = JoinSet::new();
        while !shutdown.is_draining() {
            let started = self.start_due(&mut running, slots, &shutdown).await;
            // A full claim may have left more runs; otherwise wait for a slot, a notification or the poll.
            if started > 0 && running.len() < slots {
                continue;
            }
            tokio::select! {
                () = shutdown.draining() => break,
                Some(_) = running.join_next() => {}
                () = self.parts.wake.notified(), if running.len() < slots => {}
                () = tokio::time::sleep(poll), if running.len() < slots => {}
            }
            while running.try_join_next().is_some() {}
        }
        self.drain(running, &shutdown).await;
        beating.abort();
    }

    pub(super) async fn start_due(&self, running: &mut JoinSet<()>, slots: usize, shutdown: &Shutdown) -> usize {
        let free = slots.saturating_sub(running.len());
        if free == 0 || !self.hand_over_unknown().await {
            return 0;
        }
        // A locked one is handed over by a later poll.
        let are_some_unknown = self.has_unknown_claims.load(Ordering::SeqCst);
        let claimed = self.claim(free).await;
        // Set until the attempts below are registered: before that, a committed claim may have no attempt.
        self.has_unknown_claims.store(true, Ordering::SeqCst);
        let (requested, claimed) = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "runs not claimed; the next poll tries again");
                return 0;
            }
        };
        // The leases began when the database executed the claim, not when its reply arrived.
        if shutdown.is_draining() || requested.elapsed() > Duration::from_secs(self.parts.settings.lost_after_secs) / 3
        {
            return 0;
        }
        let started = claimed.len();
        for run in claimed {
            pass_point(Point::I4);
            let (registered, slot) = (self.own.register(run.fence(), requested), self.shares.use_slot(run.team_id));
            let executor = self.clone();
            running.spawn(async move {
                executor.attempt(run, registered).await;
                drop(slot);
            });
        }
        self.has_unknown_claims.store(are_some_unknown, Ordering::SeqCst);
        started
    }

    async fn drain(&self, mut running: JoinSet<()>, shutdown: &Shutdown) {
        let limit = tokio::time::sleep(self.parts.settings.drain);
        self.own.hand_over_unsent();
        // Runs that the last claim took while the shutdown began have no attempt, so they need not wait for the others
        // to drain.
        self.hand_over_unknown().await;
        tokio::select! {
            () = all_ended(&mut running) => {}
            () = limit => {}
            () = shutdown.handing_over() => {}
        }
        if !running.is_empty() {
            tracing::warn!(runs = running.len(), "runs handed over, because they did not end before the shutdown");
            self.own.hand_over_all();
            if tokio::time::timeout(HAND_OVER_LIMIT, all_ended(&mut running)).await.is_err() {
                tracing::warn!(runs = running.len(), "runs not handed over in time; their leases expire");
                running.shutdown().await;
                // This process no longer knows which requests it sent, so no run may be treated as an unknown claim.
                return;
            }
        }
        self.hand_over_unknown().await;
    }
}

/// Waits until all attempts have ended.
pub(super) async fn all_ended(running: &mut JoinSet<()>) {
    while running.join_next().await.is_some() {}
}
