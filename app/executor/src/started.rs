//! Step 7 of 7: takes over the runs that this instance started in the statement that decided their fires.
//!
//! Such a run is `running` with a lease of this instance, as after a claim. This reads what its attempt needs, registers
//! the attempt, and passes it to the loop. A run that it cannot take over becomes unknown, and the loop hands it over.

use std::sync::atomic::Ordering;

use ledger::runs::{SlotOffer, StartedRuns};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::Executor;
use super::attempts_in_flight::Registered;
use crate::claim::{self, Claimed, Lease};

/// A started run and its attempt, which the loop executes.
pub(super) type ReadyAttempt = (Claimed, Registered);

/// Passes started runs to the loop, until no fire can start one or the loop has ended.
pub(super) async fn receive_started_runs(
    executor: Executor,
    mut starts: UnboundedReceiver<StartedRuns>,
    ready: UnboundedSender<ReadyAttempt>,
) {
    while let Some(mut started) = starts.recv().await {
        if let Err(error) = executor.take_over(&mut started, &ready).await {
            tracing::warn!(%error, "started runs not read; they are handed over");
        }
        let is_incomplete = started.slots.has_slots();
        drop(started);
        if is_incomplete {
            executor.parts.wake.notify();
        }
    }
}

impl Executor {
    /// How this executor offers its slots to fires.
    pub(super) fn slot_offer(&self) -> SlotOffer {
        let Lease { instance, secs } = self.run_lease();
        SlotOffer { instance, lease_secs: secs }
    }

    async fn take_over(&self, started: &mut StartedRuns, ready: &UnboundedSender<ReadyAttempt>) -> sqlx::Result<()> {
        let mut connection = self.parts.pool.acquire().await?;
        let runs = claim::read_started_runs(&mut connection, &started.runs).await?;
        drop(connection);
        // Their leases began at the decision.
        if self.is_too_old(started.requested) {
            return Ok(());
        }
        for run in runs {
            let registered = self.in_flight.register_attempt(run.fence(), started.requested);
            let team_id = run.team_id;
            if ready.send((run, registered)).is_ok() {
                started.slots.pass_slot(team_id);
            }
        }
        Ok(())
    }

    /// Makes the started runs unknown whose attempts have not begun, so that they are handed over.
    pub(super) fn forget_ready_attempts(&self, ready: &mut UnboundedReceiver<ReadyAttempt>) {
        while let Ok((run, registered)) = ready.try_recv() {
            self.has_unknown_claims.store(true, Ordering::SeqCst);
            drop(registered);
            self.parts.offered.begin_attempt(run.team_id, 0);
            self.parts.offered.free_slot(run.team_id, 0);
        }
    }
}
