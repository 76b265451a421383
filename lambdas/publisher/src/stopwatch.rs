//! Step 4 of 7: the monotonic clock of leases and deadlines, which continues while the machine is suspended.
//!
//! A test can stop and move it, so that a suspension longer than the lease is an ordinary test case. A release cannot.

#[cfg(debug_assertions)]
pub use stopped::Stopwatch;

/// Monotonic time.
#[cfg(not(debug_assertions))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch;

#[cfg(not(debug_assertions))]
impl Stopwatch {
    pub(crate) fn now(&self) -> std::time::Instant {
        schedule::Moment::now().into_std()
    }
}

#[cfg(debug_assertions)]
mod stopped {
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use schedule::Moment;

    /// Monotonic time: the machine's, or one that a test moves; clones share it.
    #[derive(Clone, Debug, Default)]
    pub struct Stopwatch(Option<Arc<Mutex<Instant>>>);

    impl Stopwatch {
        /// Creates a clock that only a test moves.
        #[must_use]
        pub fn new_stopped() -> Self {
            Stopwatch(Some(Arc::new(Mutex::new(Instant::now()))))
        }

        /// The current time.
        #[must_use]
        pub fn now(&self) -> Instant {
            let stopped = self.0.as_ref().map(|stopped| *stopped.lock().unwrap_or_else(PoisonError::into_inner));
            stopped.unwrap_or_else(|| Moment::now().into_std())
        }

        /// Advances a test's clock; the machine's advances by itself.
        pub fn advance_by(&self, by: Duration) {
            if let Some(stopped) = &self.0 {
                *stopped.lock().unwrap_or_else(PoisonError::into_inner) += by;
            }
        }
    }
}
