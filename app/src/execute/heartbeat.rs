//! Step 7 of 7: renews the leases of the attempts that this process executes, and stops attempts that lost their run.
//!
//! One statement renews exactly these attempts. An attempt that it does not return has lost its run; a returned one may
//! have to cancel. If no renewal has succeeded for two thirds of a lease, all attempts stop, because another instance
//! may soon claim their runs.

use std::time::{Duration, Instant};

use super::Executor;
use super::own::{Own, Stop};
use crate::runs::{self, Beat, Fence};

/// When the leases were last renewed.
pub(super) struct Pulse {
    kept: Instant,
}

/// Renews the leases of this instance's attempts until it is dropped.
pub(super) async fn keep(executor: Executor) {
    let mut pulse = Pulse::new(Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(executor.app.config.heartbeat_ms)).await;
        pulse.beat(&executor, &Instant::now).await;
    }
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Self {
        Self { kept: now }
    }

    /// Renews the leases once.
    pub(super) async fn beat(&mut self, executor: &Executor, now: &(dyn Fn() -> Instant + Sync)) {
        let lost_after = Duration::from_secs(executor.app.config.lost_after_secs);
        // Before the statement, because its result does not contain an attempt that is claimed meanwhile.
        let (ours, asked) = (executor.own.under_way(), now());
        if ours.is_empty() {
            self.kept = asked;
            return executor.release_stopped().await;
        }
        match tokio::time::timeout(lost_after / 8, renew(executor, &ours)).await {
            Ok(Ok(beats)) => {
                self.kept = asked;
                stop_what_is_not_ours(&executor.own, &ours, &beats);
                executor.release_stopped().await;
            }
            // Leaves time for a heartbeat, its reply and a margin, so that the attempts stop before the lease expires.
            _ if now().saturating_duration_since(self.kept) > lost_after * 2 / 3 => {
                tracing::error!(runs = ours.len(), "leases cannot be renewed; all work on runs stops here");
                ours.iter().for_each(|fence| executor.own.stop(*fence, Stop::Lost));
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot renew the leases of runs; trying again"),
            Err(_) => tracing::warn!("cannot renew the leases of runs in time; trying again"),
        }
    }
}

async fn renew(executor: &Executor, ours: &[Fence]) -> sqlx::Result<Vec<Beat>> {
    let app = &executor.app;
    let mut connection = app.pool.acquire().await?;
    runs::renew_leases(&mut connection, app.lease(), ours).await
}

fn stop_what_is_not_ours(own: &Own, ours: &[Fence], beats: &[Beat]) {
    for fence in ours {
        match beats.iter().find(|beat| beat.id == fence.id && beat.attempt == fence.attempt) {
            None => own.stop(*fence, Stop::Lost),
            Some(beat) if beat.is_cancelled => own.stop(*fence, Stop::Cancelled),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn what_does_not_come_back_stops_and_so_does_what_is_to_be_cancelled() {
        let own = Own::default();
        let [kept, lost, cancelled, retaken] = std::array::from_fn(|_| Uuid::new_v4());
        let mut attempts: HashMap<_, _> = [kept, lost, cancelled, retaken]
            .into_iter()
            .map(|id| (id, own.register(Fence { id, attempt: 1 })))
            .collect();
        let beat = |id, attempt, is_cancelled| Beat { id, attempt, is_cancelled };
        let beats = [beat(kept, 1, false), beat(cancelled, 1, true), beat(retaken, 2, false)];
        stop_what_is_not_ours(&own, &own.under_way(), &beats);
        let mut stopped = |id| attempts.get_mut(&id).and_then(|attempt| attempt.stopped.try_recv().ok());
        assert_eq!(stopped(kept), None);
        assert_eq!(stopped(lost), Some(Stop::Lost));
        assert_eq!(stopped(cancelled), Some(Stop::Cancelled));
        assert_eq!(stopped(retaken), Some(Stop::Lost), "another attempt is not ours");
    }
}
