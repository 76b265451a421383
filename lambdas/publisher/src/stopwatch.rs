//! Step 4 of 7: the monotonic clock of leases and deadlines.
//!
//! No change of the machine's time moves it, and it continues while the machine is suspended: a laptop that wakes up
//! must not treat a lease as valid that expired meanwhile. A test can stop and move it, so that a suspension longer
//! than the lease is an ordinary test case. A release cannot.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

#[cfg(debug_assertions)]
pub use stopped::Stopwatch;

/// The clock that also counts the time of a suspension.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The machine's monotonic time; std's clock stops while Linux is suspended.
fn machine_now() -> Instant {
    // In this order, so that it is never behind std's clock.
    static BASE: LazyLock<(Instant, Duration)> = LazyLock::new(|| {
        let booted = since_boot();
        (Instant::now(), booted)
    });
    later(*BASE, since_boot())
}

/// Returns the instant at which the clock shows `clock`; both values of the base were read together.
fn later((base, at_base): (Instant, Duration), clock: Duration) -> Instant {
    base + clock.saturating_sub(at_base)
}

fn since_boot() -> Duration {
    let time = clock_gettime(CLOCK);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}

/// Monotonic time.
#[cfg(not(debug_assertions))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch;

#[cfg(not(debug_assertions))]
impl Stopwatch {
    pub(crate) fn now(&self) -> Instant {
        machine_now()
    }
}

#[cfg(debug_assertions)]
mod stopped {
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use super::Instant;

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
            self.0
                .as_ref()
                .map_or_else(super::machine_now, |stopped| *stopped.lock().unwrap_or_else(PoisonError::into_inner))
        }

        /// Advances a test's clock; the machine's advances by itself.
        pub fn advance_by(&self, by: Duration) {
            if let Some(stopped) = &self.0 {
                *stopped.lock().unwrap_or_else(PoisonError::into_inner) += by;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is the only monotonic clock of Linux that continues while the machine is suspended.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_runs_in_a_suspend() {
        assert_eq!(CLOCK, ClockId::Boottime);
    }

    #[test]
    fn a_suspend_counts() {
        // std's clock stopped at `base`, the other one continued for an hour.
        let (base, boot) = (Instant::now(), Duration::from_secs(5));
        assert_eq!(later((base, boot), boot + Duration::from_secs(3600)), base + Duration::from_secs(3600));
        assert_eq!(later((base, boot), Duration::ZERO), base, "it never goes back");
    }

    #[test]
    fn the_machine_s_clock_goes_on() {
        let before = machine_now();
        while machine_now() == before {}
        assert!(machine_now() > before);
    }
}
