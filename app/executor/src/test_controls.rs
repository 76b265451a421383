//! Controls for tests that step through an executor: a test decides when it claims, hands over and renews. Releases do
//! not contain them.

use std::pin::pin;
use std::sync::Arc;

use ledger::runs::OfferedSlots;
use schedule::Moment;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_util::sync::CancellationToken;

use super::run::RunningAttempts;
use super::started::{ReadyAttempt, receive_started_runs};
use super::{Executor, heartbeat};
use crate::claim::Fence;
use crate::ends::EndBatches;
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

    /// Writes the outcomes of concurrent attempts together, as the loop of an instance does.
    #[must_use]
    pub fn end_in_batches(self) -> Self {
        let ends = EndBatches::new(self.parts.pool.clone(), self.parts.instance);
        Self { ends: Some(ends), ..self }
    }

    /// Claims the runs that are due and executes them to their end.
    pub async fn execute_all(&self) {
        let mut running = self.no_attempts();
        self.start_due(&mut running, &Shutdown::default()).await;
        running.wait_for_all().await;
    }

    /// As [`Self::execute_all`], but takes the steps that `next` returns.
    pub async fn execute_stepwise(&self, mut next: impl AsyncFnMut() -> Step) {
        let mut running = self.no_attempts();
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

    /// None yet; their slots are not offered to fires.
    fn no_attempts(&self) -> RunningAttempts {
        RunningAttempts::in_slots(OfferedSlots::new(self.parts.settings.capacity))
    }

    /// As [`Self::execute_stepwise`], but offers its slots to the fires that this instance decides meanwhile. It shuts
    /// down if a step hands over, or when `fires` has resolved and nothing is left to execute.
    pub async fn execute_beside_fires(&self, next: impl AsyncFnMut() -> Step, fires: impl Future<Output = ()>) {
        let (sender, ready) = mpsc::unbounded_channel();
        let starts = self.parts.offered.receive_starts();
        let fired = CancellationToken::new();
        let firing = async {
            fires.await;
            fired.cancel();
        };
        let working = async { tokio::join!(firing, self.start_until_fired(next, ready, &fired)) };
        tokio::select! {
            ((), ()) = working => {}
            () = receive_started_runs(self.clone(), starts, sender) => {}
        }
    }

    async fn start_until_fired(
        &self,
        mut next: impl AsyncFnMut() -> Step,
        mut ready: UnboundedReceiver<ReadyAttempt>,
        fired: &CancellationToken,
    ) {
        let mut running = RunningAttempts::in_slots(self.parts.offered.clone());
        loop {
            self.start_due(&mut running, &Shutdown::default()).await;
            self.end_claim(&running);
            let mut stepping = pin!(next());
            let step = loop {
                // A run that a fire has started uses a slot before its attempt is ready.
                if fired.is_cancelled() && running.is_empty() && self.parts.offered.count_used() == 0 {
                    break Step::HandOver;
                }
                tokio::select! {
                    biased;
                    Some(_) = running.wait_for_end() => {}
                    Some(attempt) = ready.recv() => self.start_ready(&mut running, attempt),
                    () = self.parts.wake.wait_for_notification() => break Step::Claim,
                    () = fired.cancelled(), if !fired.is_cancelled() => {}
                    step = &mut stepping => break step,
                }
            };
            if step == Step::HandOver {
                break;
            }
        }
        self.stop_starting(&mut ready).await;
        self.in_flight.hand_over_all();
        running.wait_for_all().await;
        self.forget_ready_attempts(&mut ready);
        self.hand_over_unknown().await;
        // Of a fire that was decided meanwhile.
        ready.close();
        self.forget_ready_attempts(&mut ready);
    }

    /// Renews the leases whenever `beat` resolves, at the time that `now` returns.
    pub async fn keep_leases(&self, mut beat: impl AsyncFnMut(), now: &(dyn Fn() -> Moment + Sync)) {
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
