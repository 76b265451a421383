//! Monotonic time, for leases and deadlines.
//!
//! No change of the machine's time moves it, and it continues while the machine is suspended: a machine that wakes up
//! must not treat a lease as valid that expired meanwhile.

use std::ops::Add;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The clock that also counts the time of a suspension.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A time of the machine's monotonic clock that also counts suspensions; std's `Instant` stops while Linux is suspended.
///
/// ```
/// use std::time::Duration;
/// use schedule::Moment;
/// let lease_ends = Moment::now() + Duration::from_secs(120);
/// assert!(Moment::now() < lease_ends);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Instant);

impl Moment {
    /// The current time.
    ///
    /// ```
    /// # use schedule::Moment;
    /// assert!(Moment::now() <= Moment::now());
    /// ```
    pub fn now() -> Self {
        // In this order, so that it is never behind std's clock.
        static BASE: LazyLock<(Instant, Duration)> = LazyLock::new(|| {
            let booted = since_boot();
            (Instant::now(), booted)
        });
        Self(later(*BASE, since_boot()))
    }

    /// The time that has passed since then; zero if it is in the future.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use schedule::Moment;
    /// assert_eq!((Moment::now() + Duration::from_secs(60)).elapsed(), Duration::ZERO);
    /// ```
    pub fn elapsed(self) -> Duration {
        Self::now().saturating_duration_since(self)
    }

    /// The time from `earlier` to this one; zero if `earlier` is later.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use schedule::Moment;
    /// let (now, minute) = (Moment::now(), Duration::from_secs(60));
    /// assert_eq!((now + minute).saturating_duration_since(now), minute);
    /// assert_eq!(now.saturating_duration_since(now + minute), Duration::ZERO);
    /// ```
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// An earlier time; `None` if the clock cannot show it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use schedule::Moment;
    /// let now = Moment::now();
    /// assert_eq!(now.checked_sub(Duration::ZERO), Some(now));
    /// ```
    pub fn checked_sub(self, by: Duration) -> Option<Self> {
        self.0.checked_sub(by).map(Self)
    }

    /// The same as std's type, for code that reads no other clock: std's own is behind it after a suspension.
    ///
    /// ```
    /// # use std::time::Instant;
    /// # use schedule::Moment;
    /// let began = Instant::now();
    /// assert!(Moment::now().into_std() >= began);
    /// ```
    pub fn into_std(self) -> Instant {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0 + by)
    }
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
        let before = Moment::now();
        while Moment::now() == before {}
        assert!(Moment::now() > before);
        assert!(before.elapsed() > Duration::ZERO);
    }
}
