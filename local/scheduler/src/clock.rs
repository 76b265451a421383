//! The clock by which schedules fire: the machine's, or one that is set.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, SubsecRound as _, Utc};

/// The source of "now"; the only reader of the machine's clock in this crate.
///
/// ```
/// use chrono::DateTime;
/// let clock = stand_in::Clock::fixed(DateTime::UNIX_EPOCH);
/// assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
/// ```
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock
    System,
    /// A clock that changes only when it is set
    Fixed(FixedClock),
}

/// A clock that changes only when it is set; its clones show the same time.
#[derive(Clone)]
pub struct FixedClock {
    read: Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>,
    write: Arc<dyn Fn(DateTime<Utc>) + Send + Sync>,
}

impl Clock {
    /// Creates a clock that shows `at` until it is set.
    pub fn fixed(at: DateTime<Utc>) -> Clock {
        Clock::Fixed(FixedClock::new(at))
    }

    /// The current time, in microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Clock::System => machine_time(),
            Clock::Fixed(clock) => clock.now(),
        }
    }

    /// Sets a fixed clock.
    ///
    /// # Panics
    /// Panics if it is the machine's clock, because a test that sets it would continue with the wrong time.
    pub fn set(&self, at: DateTime<Utc>) {
        match self {
            Clock::System => panic!("the machine's clock cannot be set; use Clock::fixed"),
            Clock::Fixed(clock) => clock.set(at),
        }
    }
}

impl FixedClock {
    /// Creates a clock that shows `at`.
    pub fn new(at: DateTime<Utc>) -> FixedClock {
        let time = Arc::new(Mutex::new(at));
        let same = Arc::clone(&time);
        FixedClock::shared(
            move || *time.lock().unwrap_or_else(PoisonError::into_inner),
            move |at| *same.lock().unwrap_or_else(PoisonError::into_inner) = at,
        )
    }

    /// A clock of the program that contains the stand-in: to set either of them sets both.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicI64, Ordering::SeqCst}};
    /// use chrono::DateTime;
    /// let secs = Arc::new(AtomicI64::new(60));
    /// let same = Arc::clone(&secs);
    /// let clock = stand_in::FixedClock::shared(
    ///     move || DateTime::from_timestamp(secs.load(SeqCst), 0).unwrap_or_default(),
    ///     move |at| same.store(at.timestamp(), SeqCst),
    /// );
    /// clock.set(DateTime::UNIX_EPOCH);
    /// assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn shared(
        read: impl Fn() -> DateTime<Utc> + Send + Sync + 'static,
        write: impl Fn(DateTime<Utc>) + Send + Sync + 'static,
    ) -> FixedClock {
        FixedClock { read: Arc::new(read), write: Arc::new(write) }
    }

    /// The current time of the clock.
    pub fn now(&self) -> DateTime<Utc> {
        (self.read)()
    }

    /// Sets the clock, also backwards.
    pub fn set(&self, at: DateTime<Utc>) {
        (self.write)(at);
    }
}

impl fmt::Debug for FixedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FixedClock").field(&self.now()).finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn machine_time() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_fixed_clock_agree() {
        let clock = Clock::fixed(DateTime::UNIX_EPOCH);
        let (twin, later) = (clock.clone(), "2026-03-02T10:00:00Z".parse().unwrap());
        clock.set(later);
        assert_eq!(twin.now(), later);
    }

    #[test]
    fn machine_clock_shows_microseconds() {
        assert_eq!(Clock::System.now().timestamp_subsec_nanos() % 1_000, 0);
    }
}
