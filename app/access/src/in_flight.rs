//! Steps 1 and 7 of 7: how many requests of each key, team and address this instance processes now.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// All requests of a key.
    Key(Uuid),
    /// The streams of a key.
    Streams(Uuid),
    /// All requests of a team.
    Team(i64),
    /// The edits of a team.
    Edits(i64),
    /// The lists and statistics of a team.
    Lists(i64),
    /// All requests of an address, without those of the sign-in.
    Address(IpAddr),
    /// All requests, without those of the sign-in.
    Instance,
    /// The requests of an address to the sign-in of the console.
    SignInsOfAddress(IpAddr),
    /// All requests to the sign-in of the console.
    SignIns,
}

/// A limit that is reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// What is counted.
    pub counted: Counted,
    /// How many may be in progress at once.
    pub limit: i64,
}

/// The requests in progress; clones share them.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<HashMap<Counted, i64>>>);

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub struct Place {
    counted: Counted,
    among: InFlight,
}

impl InFlight {
    /// Counts a request. Without a limit (`None` or 0) it is counted, too.
    ///
    /// # Errors
    /// Fails if the limit is reached.
    pub fn take_place(&self, counted: Counted, limit: Option<i64>) -> Result<Place, Full> {
        let mut all = self.lock();
        let count = all.entry(counted).or_default();
        if let Some(limit) = limit.filter(|limit| *limit > 0 && *count >= *limit) {
            return Err(Full { counted, limit });
        }
        *count += 1;
        Ok(Place { counted, among: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Counted, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.among.lock();
        let Some(count) = all.get_mut(&self.counted) else { return };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_free_after_their_requests() {
        let in_flight = InFlight::default();
        let take = |team| in_flight.take_place(Counted::Edits(team), Some(1));
        let first = take(1).unwrap();
        assert_eq!(take(1).unwrap_err(), Full { counted: Counted::Edits(1), limit: 1 });
        let other = take(2).unwrap();
        drop(first);
        let again = take(1).unwrap();
        drop((again, other));
        assert!(in_flight.lock().is_empty(), "no team stays in memory");
        let unlimited: Vec<_> = (0..9).map(|_| in_flight.take_place(Counted::Lists(1), Some(0)).unwrap()).collect();
        assert_eq!(in_flight.lock()[&Counted::Lists(1)], 9);
        drop(unlimited);
    }
}
