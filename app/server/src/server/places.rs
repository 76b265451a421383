//! Steps 1 and 7 of 7: the places of connections. When all are taken, a connection makes room: first one without a key, then
//! one of another key than a scheduler's. Fires keep theirs.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use access::network::network_of;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Rank};

/// The places; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// How many connections an address may have; 0 = no limit.
    most_of_address: usize,
    open: Arc<Mutex<Open>>,
    /// Dismisses all connections.
    dismissal: CancellationToken,
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    /// In the order in which they were opened.
    connections: BTreeMap<u64, Arc<Connection>>,
    of_network: HashMap<IpAddr, usize>,
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    open: Arc<Mutex<Open>>,
    pub(super) connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// `most` places, of which an address may take `most_of_address`; 0 = no limit of its own.
    pub(super) fn new(most: usize, most_of_address: usize) -> Self {
        let free = Arc::new(Semaphore::new(most));
        Self { free, most_of_address, open: Arc::default(), dismissal: CancellationToken::new() }
    }

    /// Ends each connection after the answer to its present request.
    pub(super) fn dismiss_all(&self) {
        self.dismissal.cancel();
    }

    /// Whether the address, or its IPv6 network, has as many connections as it may have.
    pub(super) fn is_limit_reached(&self, address: IpAddr) -> bool {
        let count = self.lock().of_network.get(&network_of(address)).copied();
        self.most_of_address > 0 && count.is_some_and(|count| count >= self.most_of_address)
    }

    /// Takes a place if one is free.
    pub(super) fn try_take(&self, address: IpAddr) -> Option<Place> {
        Some(self.register(address, self.free.clone().try_acquire_owned().ok()?))
    }

    /// Takes a place as soon as one is free.
    pub(super) async fn take(&self, address: IpAddr) -> Option<Place> {
        // The semaphore is never closed.
        Some(self.register(address, self.free.clone().acquire_owned().await.ok()?))
    }

    /// Makes a connection end, and returns its address: the oldest idle one on which no request had an active key; else the
    /// oldest of those that have a request in progress; else the oldest that is not a scheduler's, after its present answer.
    /// A new one without a key keeps its place for a moment. If it did so also against teams that have most of the places,
    /// one team and a silent client would keep all others out; so then a connection of a team makes room.
    pub(super) fn end_expendable(&self, now: Instant) -> Option<IpAddr> {
        let open = self.lock();
        let of = |rank| open.connections.values().filter(move |connection| connection.is_expendable(rank));
        let unknown = || of(Rank::Unknown).filter(|connection| !connection.is_new(now));
        if let Some(unknown) = unknown().find(|connection| connection.is_idle()).or_else(|| unknown().next()) {
            unknown.end();
            return Some(unknown.address);
        }
        let new = of(Rank::Unknown).count();
        if new > 0 && new >= of(Rank::Known).count() {
            return None;
        }
        let known = of(Rank::Known).find(|connection| connection.is_idle());
        let known = known.or_else(|| of(Rank::Known).next())?;
        known.dismiss();
        Some(known.address)
    }

    fn register(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Place {
        let connection = Arc::new(Connection::new(address, Instant::now(), self.dismissal.child_token()));
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        open.connections.insert(id, connection.clone());
        *open.of_network.entry(network_of(address)).or_default() += 1;
        drop(open);
        Place { id, open: self.open.clone(), connection, _permit: permit }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.connections.remove(&self.id);
        let network = network_of(self.connection.address);
        let Some(count) = open.of_network.get_mut(&network) else { return };
        *count -= 1;
        if *count == 0 {
            open.of_network.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::FIRST_ANSWER;

    fn address(nth: u32) -> IpAddr {
        IpAddr::V4(nth.into())
    }

    /// A time at which no connection is new.
    fn later() -> Instant {
        Instant::now() + FIRST_ANSWER
    }

    /// On a full server, the second of two clients took the place of the first before its request had arrived.
    #[test]
    fn new_connections_may_wait_for_their_first_answer() {
        let places = Places::new(2, 0);
        let now = Instant::now();
        let taken: Vec<Place> = (1..=2).map(|nth| places.try_take(address(nth)).unwrap()).collect();
        taken[0].connection.raise_rank(Rank::Known);
        assert_eq!(places.end_expendable(now), None, "the second one is new, and the first one has a key");
        taken[1].connection.begin_request();
        assert_eq!(places.end_expendable(now), None, "its answer is not there yet");
        taken[1].connection.end_request();
        assert_eq!(places.end_expendable(now), Some(address(2)), "it had its answer");
    }

    /// A team has all places but one, and silent newcomers take that one after the other.
    #[test]
    fn silent_newcomers_do_not_keep_the_places_of_a_team() {
        let places = Places::new(4, 0);
        let now = Instant::now();
        let taken: Vec<Place> = (1..=4).map(|nth| places.try_take(address(nth)).unwrap()).collect();
        for known in &taken[..3] {
            known.connection.raise_rank(Rank::Known);
        }
        assert_eq!(places.end_expendable(now), Some(address(1)), "the next one does not wait for the newcomer");
        taken[1].connection.dismiss();
        assert_eq!(places.end_expendable(now), None, "half of those that stay are new");
    }

    #[test]
    fn connections_without_a_key_make_room() {
        let places = Places::new(4, 0);
        let taken: Vec<Place> = (1..=4).map(|nth| places.try_take(address(nth)).unwrap()).collect();
        assert!(places.try_take(address(5)).is_none());
        assert!(!places.is_limit_reached(address(1)), "there is no limit of an address");
        taken[0].connection.raise_rank(Rank::Scheduler);
        taken[1].connection.begin_request();
        assert_eq!(places.end_expendable(later()), Some(address(3)), "the oldest idle one");
        assert_eq!(places.end_expendable(later()), Some(address(4)), "the first one ends already");
        assert_eq!(places.end_expendable(later()), Some(address(2)), "no other is idle");
        assert_eq!(places.end_expendable(later()), None, "the last one is a scheduler's");
        drop(taken);
        assert!(places.try_take(address(5)).is_some());
    }

    #[test]
    fn connections_of_other_keys_make_room_for_fires() {
        let places = Places::new(3, 0);
        let taken: Vec<Place> = (1..=3).map(|nth| places.try_take(address(nth)).unwrap()).collect();
        taken[0].connection.raise_rank(Rank::Scheduler);
        taken[0].connection.raise_rank(Rank::Known);
        for known in &taken[1..] {
            known.connection.raise_rank(Rank::Known);
        }
        taken[1].connection.begin_request();
        assert_eq!(places.end_expendable(later()), Some(address(3)), "the oldest idle one of a key");
        assert_eq!(places.end_expendable(later()), Some(address(2)), "then the one that has a request");
        assert_eq!(places.end_expendable(later()), None, "fires keep their places");
    }

    #[test]
    fn connections_are_limited_by_network() {
        let places = Places::new(4, 2);
        let [ours, neighbour, other] =
            ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"].map(|address| address.parse::<IpAddr>().unwrap());
        let first = places.try_take(ours).unwrap();
        assert!(!places.is_limit_reached(ours));
        let second = places.try_take(neighbour).unwrap();
        assert!(places.is_limit_reached(ours) && places.is_limit_reached(neighbour), "one client has all of a /64");
        assert!(!places.is_limit_reached(other));
        drop(first);
        assert!(!places.is_limit_reached(ours));
        drop(second);
        assert!(places.lock().of_network.is_empty() && places.lock().connections.is_empty());
    }
}
