//! Steps 1 and 7 of 7: lines in which requests wait for their turn, in this process and not in the pool.
//!
//! A request that waits for a lock or a share of the connections would occupy a connection meanwhile, and 250 edits of
//! one row would occupy all of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A line for each key that a request names; clones share them. A line without requests uses no memory.
#[derive(Clone, Debug)]
pub(crate) struct Lines<K: Copy + Eq + Hash> {
    lines: Arc<Mutex<HashMap<K, Line>>>,
    /// How many requests of a line have their turn at once.
    at_once: usize,
    /// How many requests of a line wait at most.
    most_waiting: usize,
}

#[derive(Debug)]
struct Line {
    turns: Arc<Semaphore>,
    /// The requests that have their turn or wait for it.
    requests: usize,
}

/// A line has as many requests as may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineFull {
    /// How many requests of a line may wait.
    pub(crate) most_waiting: usize,
}

/// The turn of a request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<K: Copy + Eq + Hash> {
    // Dropped first, so that the next request has its turn before the line may be removed.
    _permit: OwnedSemaphorePermit,
    _request: InLine<K>,
}

/// A request in a line.
#[derive(Debug)]
struct InLine<K: Copy + Eq + Hash> {
    key: K,
    lines: Lines<K>,
}

impl<K: Copy + Eq + Hash> Lines<K> {
    /// Creates lines of which `at_once` requests have their turn, and `most_waiting` wait.
    pub(crate) fn new(at_once: usize, most_waiting: usize) -> Self {
        Self { lines: Arc::default(), at_once, most_waiting }
    }

    /// Waits for the turn of a request, in the order of their arrival.
    ///
    /// # Errors
    /// Fails at once if as many requests of the line wait as may wait.
    pub(crate) async fn wait_turn(&self, key: K) -> Result<Turn<K>, LineFull> {
        let (turns, request) = self.join_line(key)?;
        // The semaphore is never closed.
        let permit = turns.acquire_owned().await.map_err(|_| LineFull { most_waiting: self.most_waiting })?;
        Ok(Turn { _permit: permit, _request: request })
    }

    fn join_line(&self, key: K) -> Result<(Arc<Semaphore>, InLine<K>), LineFull> {
        let mut lines = self.lock();
        let line =
            lines.entry(key).or_insert_with(|| Line { turns: Arc::new(Semaphore::new(self.at_once)), requests: 0 });
        if line.requests >= self.at_once.saturating_add(self.most_waiting) {
            return Err(LineFull { most_waiting: self.most_waiting });
        }
        line.requests += 1;
        let turns = Arc::clone(&line.turns);
        Ok((turns, InLine { key, lines: self.clone() }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Eq + Hash> Drop for InLine<K> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else { return };
        line.requests -= 1;
        if line.requests == 0 {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn turns_are_taken_in_order() {
        let lines = Lines::new(1, 2);
        let first = lines.wait_turn("row").await.unwrap();
        let (mut second, mut third) = (Box::pin(lines.wait_turn("row")), Box::pin(lines.wait_turn("row")));
        assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
        assert_eq!(lines.wait_turn("row").await.unwrap_err(), LineFull { most_waiting: 2 });
        drop(lines.wait_turn("another row").now_or_never().expect("it has a line of its own").unwrap());
        drop(first);
        assert!(futures::poll!(&mut third).is_pending());
        drop(second.await.unwrap());
        drop(third.await.unwrap());
        assert!(lines.lock().is_empty(), "no line stays in memory");
    }

    /// The wait of a client that disconnects is dropped.
    #[tokio::test]
    async fn cancelled_waits_leave_their_line() {
        let lines = Lines::new(1, 1);
        let first = lines.wait_turn(1).await.unwrap();
        let mut waiting = Box::pin(lines.wait_turn(1));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(waiting);
        let mut next = Box::pin(lines.wait_turn(1));
        assert!(futures::poll!(&mut next).is_pending(), "there is room for it");
        drop(first);
        drop(next.await.unwrap());
        assert!(lines.lock().is_empty());
    }
}
