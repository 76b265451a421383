//! Steps through an executor: a test says when it claims, hands over and renews. No release has it.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::run::all_ended;
use super::{Executor, heartbeat};
use crate::claim::Fence;
use crate::shutdown::Shutdown;

/// What an executor that is stepped through does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Claims what is due.
    Claim,
    /// Hands over its attempts, as at the limit of a shutdown.
    HandOver,
}

impl Executor {
    /// Calls this whenever an action is done and its end is not yet written.
    #[must_use]
    pub fn after_each_action(self, call: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { after_action: Some(call), ..self }
    }

    /// Claims what is due and executes it to its end.
    pub async fn work_off(&self) {
        let (mut running, slots) = (JoinSet::new(), self.parts.settings.slots);
        self.start_due(&mut running, slots, &Shutdown::default()).await;
        all_ended(&mut running).await;
    }

    /// Works off, and does what `next` says whenever it resolves.
    pub async fn work_off_stepping(&self, mut next: impl AsyncFnMut() -> Step) {
        let (mut running, slots) = (JoinSet::new(), self.parts.settings.slots);
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

    /// Renews the leases whenever `beat` resolves, with the time that `now` says.
    pub async fn keep_leases(&self, mut beat: impl AsyncFnMut(), now: &(dyn Fn() -> Instant + Sync)) {
        let mut pulse = heartbeat::Pulse::new(now());
        loop {
            beat().await;
            pulse.beat(self, now).await;
        }
    }

    /// The attempts under way.
    #[must_use]
    pub fn under_way(&self) -> Vec<Fence> {
        self.own.under_way()
    }

    /// The attempts under way, and those that are stopped and not yet released.
    #[must_use]
    pub fn known(&self) -> Vec<Fence> {
        self.own.known()
    }
}
