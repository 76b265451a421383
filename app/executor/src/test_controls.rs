//! Controls for tests that step through an executor: a test decides when it claims, hands over and renews. Releases do
//! not contain them.

use std::sync::Arc;
use std::time::Instant;

use super::run::RunningAttempts;
use super::{Executor, heartbeat};
use crate::claim::Fence;
use crate::shutdown::Shutdown;

/// The next step of an executor that a test controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Claims the runs that are due.
    Claim,
    /// Hands over its attempts, as at the limit of a shutdown.
    HandOver,
}

impl Executor {
    /// Calls `call` whenever an action is done and its outcome is not written yet.
    #[must_use]
    pub fn after_each_action(self, call: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { after_action: Some(call), ..self }
    }

    /// Claims the runs that are due and executes them to their end.
    pub async fn execute_all(&self) {
        let mut running = RunningAttempts::default();
        self.start_due(&mut running, &Shutdown::default()).await;
        running.wait_for_all().await;
    }

    /// As [`Self::execute_all`], but takes the steps that `next` returns.
    pub async fn execute_stepwise(&self, mut next: impl AsyncFnMut() -> Step) {
        let mut running = RunningAttempts::default();
        self.start_due(&mut running, &Shutdown::default()).await;
        while !running.is_empty() {
            let step = tokio::select! {
                biased;
                _ = running.wait_for_end() => continue,
                step = next() => step,
            };
            match step {
                Step::Claim => drop(self.start_due(&mut running, &Shutdown::default()).await),
                Step::HandOver => {
                    self.in_flight.hand_over_unsent();
                    self.in_flight.hand_over_all();
                    running.wait_for_all().await;
                }
            }
        }
    }

    /// Renews the leases whenever `beat` resolves, at the time that `now` returns.
    pub async fn keep_leases(&self, mut beat: impl AsyncFnMut(), now: &(dyn Fn() -> Instant + Sync)) {
        loop {
            beat().await;
            heartbeat::renew_all_leases(self, now).await;
        }
    }

    /// Releases the attempts that stopped, as each heartbeat does.
    pub async fn release_stopped_attempts(&self) {
        self.release_stopped().await;
    }

    /// The attempts in progress.
    #[must_use]
    pub fn under_way(&self) -> Vec<Fence> {
        self.in_flight.under_way()
    }

    /// The attempts in progress, and the stopped ones that are not released yet.
    #[must_use]
    pub fn known_attempts(&self) -> Vec<Fence> {
        self.in_flight.known_attempts()
    }
}
