//! Step 7 of 7: says that this instance is still at its runs, and stops those that it must not go on with.
//!
//! One statement renews the leases of all runs of this instance. What does not come back is not ours
//! any more; what comes back may have been asked to be cancelled. And if the database has been away
//! for so long that somebody else may hold our runs soon, all work stops: silence is no renewal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::App;
use crate::runs::{self, Beat};

/// Why work stops before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Somebody asked for it.
    Cancelled,
    /// The run is not ours any more, or may soon not be.
    Lost,
}

/// The attempts under way on this instance.
#[derive(Clone, Default)]
pub(super) struct Own(Arc<Mutex<HashMap<Uuid, Entry>>>);

struct Entry {
    attempt: i32,
    stop: Option<oneshot::Sender<Stop>>,
}

/// An attempt under way; dropping it forgets it.
pub(super) struct Registered {
    own: Own,
    id: Uuid,
    attempt: i32,
}

impl Own {
    /// Makes an attempt known; the receiver hears when its work must stop.
    pub(super) fn register(&self, id: Uuid, attempt: i32) -> (Registered, oneshot::Receiver<Stop>) {
        let (stop, stopped) = oneshot::channel();
        self.entries().insert(id, Entry { attempt, stop: Some(stop) });
        (Registered { own: self.clone(), id, attempt }, stopped)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Uuid, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self) -> Vec<(Uuid, i32)> {
        self.entries().iter().map(|(id, entry)| (*id, entry.attempt)).collect()
    }

    fn stop(&self, id: Uuid, attempt: i32, why: Stop) {
        let mut entries = self.entries();
        let entry = entries.get_mut(&id).filter(|entry| entry.attempt == attempt);
        if let Some(stop) = entry.and_then(|entry| entry.stop.take()) {
            // Whoever does not listen any more is done already.
            let _done = stop.send(why);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut entries = self.own.entries();
        // The same run may have been lost and claimed here again meanwhile.
        if entries.get(&self.id).is_some_and(|entry| entry.attempt == self.attempt) {
            entries.remove(&self.id);
        }
    }
}

/// Renews the leases of this instance's runs until it is dropped.
pub(super) async fn keep(app: App, own: Own) {
    let lost_after = Duration::from_secs(app.config.lost_after_secs);
    let mut kept = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(app.config.heartbeat_ms)).await;
        // Before the statement: a run that is claimed while it runs is not in its answer.
        let ours = own.snapshot();
        let asked = Instant::now();
        if ours.is_empty() {
            kept = asked;
            continue;
        }
        match tokio::time::timeout(lost_after / 8, beat(&app)).await {
            Ok(Ok(beats)) => {
                kept = asked;
                judge(&own, &ours, &beats);
            }
            // Beat, answer and margin together: the work has stopped before the lease is dead.
            _ if kept.elapsed() > lost_after * 2 / 3 => {
                tracing::error!(runs = ours.len(), "leases cannot be renewed; all work on runs stops here");
                ours.iter().for_each(|(id, attempt)| own.stop(*id, *attempt, Stop::Lost));
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot renew the leases of runs; trying again"),
            Err(_) => tracing::warn!("cannot renew the leases of runs in time; trying again"),
        }
    }
}

async fn beat(app: &App) -> sqlx::Result<Vec<Beat>> {
    let mut connection = app.pool.acquire().await?;
    runs::heartbeat(&mut connection, app.instance).await
}

fn judge(own: &Own, ours: &[(Uuid, i32)], beats: &[Beat]) {
    for (id, attempt) in ours {
        match beats.iter().find(|beat| beat.id == *id && beat.attempt == *attempt) {
            None => own.stop(*id, *attempt, Stop::Lost),
            Some(beat) if beat.is_cancelled => own.stop(*id, *attempt, Stop::Cancelled),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_come_back_stops_and_so_does_what_is_to_be_cancelled() {
        let own = Own::default();
        let [kept, lost, cancelled, retaken] = std::array::from_fn(|_| Uuid::new_v4());
        let mut attempts: HashMap<_, _> =
            [kept, lost, cancelled, retaken].into_iter().map(|id| (id, own.register(id, 1))).collect();
        let beat = |id, attempt, is_cancelled| Beat { id, attempt, is_cancelled };
        judge(&own, &own.snapshot(), &[beat(kept, 1, false), beat(cancelled, 1, true), beat(retaken, 2, false)]);
        let mut told = |id| attempts.get_mut(&id).and_then(|(_, stopped)| stopped.try_recv().ok());
        assert_eq!(told(kept), None);
        assert_eq!(told(lost), Some(Stop::Lost));
        assert_eq!(told(cancelled), Some(Stop::Cancelled));
        assert_eq!(told(retaken), Some(Stop::Lost), "another attempt is not ours");
    }

    #[test]
    fn an_attempt_that_ends_late_does_not_forget_the_next_one() {
        let own = Own::default();
        let id = Uuid::new_v4();
        let (first, _stopped) = own.register(id, 1);
        let (second, _stopped) = own.register(id, 2);
        drop(first);
        assert_eq!(own.snapshot(), [(id, 2)]);
        drop(second);
        assert!(own.snapshot().is_empty());
    }
}
