//! Step 7 of 7: the attempts that this process executes, from their claim on. Only their leases are renewed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::Moment;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::claim::{Claimed, Fence, Lease, Slots, claim_due_runs};
use egress::Departure;

/// Why an attempt stops before its action is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A caller requested the cancellation of its run.
    Cancelled,
    /// The run no longer belongs to this attempt, or may soon belong to another.
    Lost,
    /// This instance shuts down.
    HandedOver,
}

/// The attempts in progress on this instance; clones share the set.
#[derive(Clone, Default)]
pub(super) struct AttemptsInFlight {
    attempts: Arc<Mutex<Attempts>>,
    /// For how long after the last renewal of its lease an attempt may send its request; `None` = always, in tests.
    may_send_for: Option<Duration>,
}

#[derive(Default)]
struct Attempts {
    under_way: HashMap<Uuid, Entry>,
    /// Attempts that stopped or panicked, and are not released in the database yet: their requests may have been sent.
    stopped: HashSet<Fence>,
}

struct Entry {
    attempt: i32,
    /// The lease of the attempt began no earlier than this.
    renewed: Moment,
    departure: Departure,
    stop: Option<oneshot::Sender<Stop>>,
}

/// An attempt in progress; dropping it removes the attempt from the set.
pub(super) struct Registered {
    in_flight: AttemptsInFlight,
    fence: Fence,
    /// Whether its request was sent.
    pub(super) departure: Departure,
    /// Resolves when it must stop; an error means that another attempt has replaced it.
    pub(super) stopped: oneshot::Receiver<Stop>,
}

impl AttemptsInFlight {
    /// None yet; each may send its request so long after the last renewal of its lease.
    pub(super) fn that_may_send_for(after_renewal: Duration) -> Self {
        Self { attempts: Arc::default(), may_send_for: Some(after_renewal) }
    }

    /// Claims runs that are due, except those with a known attempt, and registers the attempt of each.
    ///
    /// Their leases begin no earlier than the time that it returns with them.
    pub(super) async fn claim_and_register(
        &self,
        db: &mut PgConnection,
        lease: Lease,
        slots: &Slots,
        now: DateTime<Utc>,
    ) -> sqlx::Result<(Moment, Vec<(Claimed, Registered)>)> {
        let executing: Vec<_> = self.known_attempts().iter().map(|fence| fence.id).collect();
        let requested = Moment::now();
        let claimed = claim_due_runs(db, lease, slots, &executing, now).await?;
        let registered = claimed.into_iter().map(|run| {
            let registered = self.register_attempt(run.fence(), requested);
            (run, registered)
        });
        Ok((requested, registered.collect()))
    }

    /// Registers an attempt that was claimed no earlier than `requested`; an older one of the same run is stopped.
    pub(super) fn register_attempt(&self, fence: Fence, requested: Moment) -> Registered {
        let (stop, stopped) = oneshot::channel();
        let departure = Departure::default();
        self.permit_to_send(&departure, requested);
        let entry =
            Entry { attempt: fence.attempt, renewed: requested, departure: departure.clone(), stop: Some(stop) };
        if let Some(mut replaced) = self.attempts().under_way.insert(fence.id, entry) {
            replaced.stop(Stop::Lost);
        }
        Registered { in_flight: self.clone(), fence, departure, stopped }
    }

    /// The attempts in progress.
    pub(super) fn under_way(&self) -> Vec<Fence> {
        self.attempts().under_way.iter().map(|(id, entry)| Fence { id: *id, attempt: entry.attempt }).collect()
    }

    /// The attempts that stopped and are not released yet.
    pub(super) fn stopped_attempts(&self) -> Vec<Fence> {
        self.attempts().stopped.iter().copied().collect()
    }

    /// All attempts of this process whose outcome may be unwritten: those in progress and the stopped ones.
    pub(super) fn known_attempts(&self) -> Vec<Fence> {
        [self.under_way(), self.stopped_attempts()].concat()
    }

    /// Removes attempts that were released in the database.
    pub(super) fn forget_stopped(&self, released: &[Fence]) {
        let mut attempts = self.attempts();
        for fence in released {
            attempts.stopped.remove(fence);
        }
    }

    /// Stops one attempt.
    pub(super) fn stop_attempt(&self, fence: Fence, why: Stop) {
        if let Some(entry) = self.attempts().of(fence) {
            entry.stop(why);
        }
    }

    /// Records that the lease of one attempt was renewed no earlier than `requested`.
    ///
    /// An attempt whose request came after the lease before is handed over: it has sent nothing, and never will.
    pub(super) fn renew_lease(&self, fence: Fence, requested: Moment) {
        if let Some(entry) = self.attempts().of(fence) {
            entry.renewed = requested;
            self.permit_to_send(&entry.departure, requested);
            if entry.departure.is_prevented() {
                entry.stop(Stop::HandedOver);
            }
        }
    }

    fn permit_to_send(&self, departure: &Departure, renewed: Moment) {
        if let Some(length) = self.may_send_for {
            departure.permit_until(renewed + length);
        }
    }

    /// Stops the attempts whose last renewal is longer ago than `limit`; returns how many these were.
    pub(super) fn stop_unrenewed(&self, now: Moment, limit: Duration) -> usize {
        let mut stopped = 0;
        for entry in self.attempts().under_way.values_mut() {
            if now.saturating_duration_since(entry.renewed) > limit {
                entry.stop(Stop::Lost);
                stopped += 1;
            }
        }
        stopped
    }

    /// Hands over every attempt that has sent nothing; from now on it cannot.
    pub(super) fn hand_over_unsent(&self) {
        for entry in self.attempts().under_way.values_mut() {
            if entry.departure.try_to_prevent() {
                entry.stop(Stop::HandedOver);
            }
        }
    }

    /// Hands over every attempt.
    pub(super) fn hand_over_all(&self) {
        self.attempts().under_way.values_mut().for_each(|entry| entry.stop(Stop::HandedOver));
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    fn of(&mut self, fence: Fence) -> Option<&mut Entry> {
        self.under_way.get_mut(&fence.id).filter(|entry| entry.attempt == fence.attempt)
    }
}

impl Entry {
    fn stop(&mut self, why: Stop) {
        if let Some(stop) = self.stop.take() {
            // An attempt that no longer listens is done.
            let _done = stop.send(why);
        }
    }
}

impl Registered {
    /// Moves the attempt to the stopped ones: it has no outcome, so its row is to be released.
    pub(super) fn into_stopped(self) {
        self.in_flight.attempts().stopped.insert(self.fence);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut attempts = self.in_flight.attempts();
        // This instance may have claimed the same run again meanwhile.
        if attempts.under_way.get(&self.fence.id).is_some_and(|entry| entry.attempt == self.fence.attempt) {
            attempts.under_way.remove(&self.fence.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(attempt: i32) -> Fence {
        Fence { id: Uuid::nil(), attempt }
    }

    fn register(in_flight: &AttemptsInFlight, fence: Fence) -> Registered {
        in_flight.register_attempt(fence, Moment::now())
    }

    #[test]
    fn replaced_attempt_is_stopped() {
        let in_flight = AttemptsInFlight::default();
        let mut first = register(&in_flight, fence(1));
        let mut second = register(&in_flight, fence(2));
        assert_eq!(first.stopped.try_recv(), Ok(Stop::Lost));
        assert!(second.stopped.try_recv().is_err());
        drop(first);
        assert_eq!(in_flight.under_way(), [fence(2)], "the end of the first does not forget the second");
        drop(second);
        assert!(in_flight.under_way().is_empty());
    }

    #[test]
    fn unsent_attempts_are_handed_over() {
        let in_flight = AttemptsInFlight::default();
        let (mut sent, mut unsent) =
            (register(&in_flight, fence(1)), register(&in_flight, Fence { id: Uuid::max(), attempt: 1 }));
        assert!(sent.departure.try_to_leave());
        in_flight.hand_over_unsent();
        assert!(sent.stopped.try_recv().is_err(), "it drains");
        assert_eq!(unsent.stopped.try_recv(), Ok(Stop::HandedOver));
        assert!(!unsent.departure.try_to_leave(), "it cannot be sent any more");
        in_flight.hand_over_all();
        assert_eq!(sent.stopped.try_recv(), Ok(Stop::HandedOver));
    }

    /// A process that was stopped for longer goes on here before its next heartbeat.
    #[test]
    fn nothing_is_sent_after_the_lease() {
        let in_flight = AttemptsInFlight::that_may_send_for(Duration::from_secs(80));
        let long_ago = Moment::now().checked_sub(Duration::from_secs(81)).unwrap();
        let mut late = in_flight.register_attempt(fence(1), long_ago);
        assert!(!late.departure.try_to_leave());
        in_flight.renew_lease(fence(1), Moment::now());
        assert!(!late.departure.try_to_leave(), "the first decision is final");
        assert_eq!(late.stopped.try_recv(), Ok(Stop::HandedOver), "another attempt sends it");
        let mut renewed = in_flight.register_attempt(fence(2), long_ago);
        in_flight.renew_lease(fence(2), Moment::now());
        assert!(renewed.departure.try_to_leave());
        in_flight.renew_lease(fence(2), Moment::now());
        assert!(renewed.stopped.try_recv().is_err(), "it goes on");
        renewed.departure.permit_until(long_ago);
        assert!(renewed.departure.try_to_leave() && renewed.departure.has_left(), "it is on its way");
    }

    #[test]
    fn stopped_attempts_are_known_until_released() {
        let in_flight = AttemptsInFlight::default();
        register(&in_flight, fence(1)).into_stopped();
        assert!(in_flight.under_way().is_empty());
        assert_eq!(in_flight.known_attempts(), [fence(1)]);
        in_flight.forget_stopped(&[fence(1)]);
        assert!(in_flight.known_attempts().is_empty());
    }
}
