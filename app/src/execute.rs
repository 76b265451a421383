//! Step 7 of 7: executes accepted runs, a bounded number at once, until the process shuts down.
//!
//! It polls, because a run must not depend on the instance that accepted it; a notification only shortens the wait.
//! Each attempt has a lease, which a heartbeat renews. Runs that this process claimed but does not execute are returned
//! at once; runs that it cannot finish at shutdown are handed over to another instance.

mod attempt;
mod call;
mod heartbeat;
mod own;
mod shares;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::actions::http;
use crate::inject::{self, Point};
use crate::runs::{self, Claimed};
use crate::{App, Shutdown};
use own::Own;
use shares::Shares;

/// How long interrupted attempts may take to hand over their runs.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);

/// Notifies the executor of this process that a run was accepted.
#[derive(Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Makes the executor claim now.
    pub fn poke(&self) {
        self.0.notify_one();
    }
}

/// Executes runs on this instance; clones are the same executor.
#[derive(Clone)]
pub struct Executor {
    pub(crate) app: App,
    pub(crate) client: http::Client,
    own: Own,
    shares: Shares,
    /// Whether a claim whose reply was lost may have been committed.
    has_unknown_claims: Arc<AtomicBool>,
    #[cfg(debug_assertions)]
    after_action: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Executor {
    /// Creates an executor that has claimed nothing yet.
    #[must_use]
    pub fn new(app: App, client: http::Client) -> Self {
        Self {
            app,
            client,
            own: Own::default(),
            shares: Shares::default(),
            has_unknown_claims: Arc::default(),
            #[cfg(debug_assertions)]
            after_action: None,
        }
    }

    /// Executes runs until `shutdown`, then waits for the running ones or hands them over.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let slots = self.app.config.executor_slots;
        let poll = Duration::from_millis(self.app.config.executor_poll_ms);
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
                () = self.app.wake.0.notified(), if running.len() < slots => {}
                () = tokio::time::sleep(poll), if running.len() < slots => {}
            }
            while running.try_join_next().is_some() {}
        }
        self.drain(running, &shutdown).await;
        beating.abort();
    }

    async fn start_due(&self, running: &mut JoinSet<()>, slots: usize, shutdown: &Shutdown) -> usize {
        let free = slots.saturating_sub(running.len());
        if free == 0 || !self.hand_over_unknown().await {
            return 0;
        }
        let asked = Instant::now();
        let claimed = self.claim(free).await;
        // Set until the attempts below are registered: before that, a committed claim may have no attempt.
        self.has_unknown_claims.store(true, Ordering::SeqCst);
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "cannot claim runs; the next poll tries again");
                return 0;
            }
        };
        // The leases began when the database executed the claim, not when its reply arrived.
        if shutdown.is_draining() || asked.elapsed() > Duration::from_secs(self.app.config.lost_after_secs) / 3 {
            return 0;
        }
        let started = claimed.len();
        for run in claimed {
            inject::at(Point::I4);
            let (registered, slot) = (self.own.register(run.fence(), asked), self.shares.use_slot(run.team_id));
            let executor = self.clone();
            running.spawn(async move {
                executor.attempt(run, registered).await;
                drop(slot);
            });
        }
        self.has_unknown_claims.store(false, Ordering::SeqCst);
        started
    }

    async fn claim(&self, free: usize) -> sqlx::Result<Vec<Claimed>> {
        let mut connection = self.app.pool.acquire().await?;
        let slots = self.shares.slots_to_claim(free, &self.app.config);
        let executing: Vec<_> = self.own.known().iter().map(|fence| fence.id).collect();
        runs::claim(&mut connection, self.app.lease(), &slots, &executing, self.app.clock.now()).await
    }

    /// Hands over the runs that a claim with a lost reply may have taken; returns false if that is not possible now.
    ///
    /// Only the loop of the executor calls it: no claim is in progress then.
    async fn hand_over_unknown(&self) -> bool {
        if !self.has_unknown_claims.load(Ordering::SeqCst) {
            return true;
        }
        let handed_over = async {
            let mut connection = self.app.pool.acquire().await?;
            let max_age = f64::from(self.app.config.recovery_max_age_secs);
            runs::hand_over_unknown(&mut connection, self.app.instance, &self.own.known(), max_age).await
        };
        match handed_over.await {
            Ok(runs) => {
                self.has_unknown_claims.store(false, Ordering::SeqCst);
                if runs > 0 {
                    tracing::warn!(runs, "runs handed over: the reply to their claim was lost");
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot hand over runs of an unanswered claim; the next poll tries again");
                false
            }
        }
    }

    /// Ends the leases of attempts that stopped without an outcome, so that recovery decides them.
    async fn release_stopped(&self) {
        let stopped = self.own.stopped();
        if stopped.is_empty() {
            return;
        }
        let released = async {
            let mut connection = self.app.pool.acquire().await?;
            runs::release(&mut connection, self.app.instance, &stopped).await
        };
        match released.await {
            Ok(()) => self.own.forget_stopped(&stopped),
            Err(error) => tracing::warn!(%error, "cannot release stopped runs; their leases expire"),
        }
    }

    async fn drain(&self, mut running: JoinSet<()>, shutdown: &Shutdown) {
        let limit = tokio::time::sleep(Duration::from_secs(self.app.config.shutdown_drain_secs));
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
            tracing::warn!(runs = running.len(), "runs cut off by shutdown are handed over");
            self.own.hand_over_all();
            if tokio::time::timeout(HAND_OVER_LIMIT, all_ended(&mut running)).await.is_err() {
                tracing::warn!(runs = running.len(), "runs cannot be handed over in time; their leases expire");
                running.shutdown().await;
                // This process no longer knows which requests it sent, so no run may be treated as an unknown claim.
                return;
            }
        }
        self.hand_over_unknown().await;
    }
}

async fn all_ended(running: &mut JoinSet<()>) {
    while running.join_next().await.is_some() {}
}

/// The next step of an executor that a test controls.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Claims the runs that are due.
    Claim,
    /// Hands over its attempts, as at the limit of a shutdown.
    HandOver,
}

/// Controls for tests that step through an executor.
#[cfg(debug_assertions)]
impl Executor {
    /// Calls `call` whenever an action is done and its outcome is not written yet.
    #[must_use]
    pub fn after_each_action(self, call: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { after_action: Some(call), ..self }
    }

    /// Claims the runs that are due and executes them to their end.
    pub async fn work_off(&self) {
        let (mut running, slots) = (JoinSet::new(), self.app.config.executor_slots);
        self.start_due(&mut running, slots, &Shutdown::default()).await;
        all_ended(&mut running).await;
    }

    /// As [`Self::work_off`], but takes the steps that `next` returns.
    pub async fn work_off_stepping(&self, mut next: impl AsyncFnMut() -> Step) {
        let (mut running, slots) = (JoinSet::new(), self.app.config.executor_slots);
        self.start_due(&mut running, slots, &Shutdown::default()).await;
        while !running.is_empty() {
            let step = tokio::select! {
                biased;
                _ = running.join_next() => continue,
                step = next() => step,
            };
            match step {
                Step::Claim => drop(self.start_due(&mut running, slots, &Shutdown::default()).await),
                Step::HandOver => {
                    self.own.hand_over_unsent();
                    self.own.hand_over_all();
                    all_ended(&mut running).await;
                }
            }
        }
    }

    /// Renews the leases whenever `beat` resolves, at the time that `now` returns.
    pub async fn keep_leases(&self, mut beat: impl AsyncFnMut(), now: &(dyn Fn() -> Instant + Sync)) {
        loop {
            beat().await;
            heartbeat::beat(self, now).await;
        }
    }

    /// The attempts in progress.
    #[must_use]
    pub fn under_way(&self) -> Vec<runs::Fence> {
        self.own.under_way()
    }

    /// The attempts in progress, and the stopped ones that are not released yet.
    #[must_use]
    pub fn known(&self) -> Vec<runs::Fence> {
        self.own.known()
    }
}
