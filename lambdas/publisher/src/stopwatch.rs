//! Step 4 of 7: the monotonic clock by which leases and deadlines are kept.
//!
//! No change of the machine's time moves it, and it goes on while the machine is suspended: a laptop
//! that wakes up must not take a lease for live that ended in its sleep. A test can hold it and move it, so that a publisher
//! that slept for longer than its lease is a case like any other; no release can.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

#[cfg(debug_assertions)]
pub use held::Stopwatch;

/// The clock that counts a suspend, too.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The machine's monotonic time; std's own stands still while Linux is suspended.
fn machine_now() -> Instant {
    // In this order, so that it is never behind std's.
    static BASE: LazyLock<(Instant, Duration)> = LazyLock::new(|| {
        let booted = since_boot();
        (Instant::now(), booted)
    });
    later(*BASE, since_boot())
}

/// What an instant that was read together with the first clock is when the clock shows `clock`.
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
            self.0.as_ref().map_or_else(super::machine_now, |held| *held.lock().unwrap_or_else(PoisonError::into_inner))
        }

        /// Moves a held one on; the machine's moves by itself.
        pub fn advance(&self, by: Duration) {
            if let Some(held) = &self.0 {
                *held.lock().unwrap_or_else(PoisonError::into_inner) += by;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux's monotonic clocks it is the only one that goes on while the machine is suspended.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_runs_in_a_suspend() {
        assert_eq!(CLOCK, ClockId::Boottime);
    }

    #[test]
    fn a_suspend_counts() {
        // std's clock stood still at `base`, the other one went on for an hour.
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
