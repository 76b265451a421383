//! Step 4 of 7: the monotonic clock by which leases and deadlines are kept.
//!
//! No change of the machine's time moves it. A test can hold it and move it, so that a publisher
//! that slept for longer than its lease is a case like any other; no release can.

use std::time::Instant;

#[cfg(debug_assertions)]
pub use held::Stopwatch;

/// Monotonic time.
#[cfg(not(debug_assertions))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch;

#[cfg(not(debug_assertions))]
impl Stopwatch {
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use super::Instant;

    /// Monotonic time: the machine's, or one that a test moves; clones show the same.
    #[derive(Clone, Debug, Default)]
    pub struct Stopwatch(Option<Arc<Mutex<Instant>>>);

    impl Stopwatch {
        /// One that stands still until it is moved.
        #[must_use]
        pub fn held() -> Self {
            Stopwatch(Some(Arc::new(Mutex::new(Instant::now()))))
        }

        /// The time it shows.
        #[must_use]
        pub fn now(&self) -> Instant {
            self.0.as_ref().map_or_else(Instant::now, |held| *held.lock().unwrap_or_else(PoisonError::into_inner))
        }

        /// Moves a held one on; the machine's moves by itself.
        pub fn advance(&self, by: Duration) {
            if let Some(held) = &self.0 {
                *held.lock().unwrap_or_else(PoisonError::into_inner) += by;
            }
        }
    }
}
