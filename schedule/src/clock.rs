//! Business time, passed as an argument: the machine's clock, or one that a test sets.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

/// Where "now" comes from; the only reader of the machine's clock.
///
/// ```
/// use chrono::{DateTime, Utc};
/// use schedule::Clock;
/// let dawn: DateTime<Utc> = "2026-03-29T05:00:00Z".parse()?;
/// assert_eq!(Clock::fixed(dawn).now(), dawn);
/// assert!(Clock::System.now() > dawn - chrono::TimeDelta::days(3650));
/// # Ok::<(), chrono::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that stands still until it is set.
    Fixed(FixedClock),
}

/// A clock that stands still until it is set; its clones show the same time.
///
/// ```
/// use chrono::{DateTime, TimeDelta};
/// use schedule::FixedClock;
/// let clock = FixedClock::new(DateTime::UNIX_EPOCH);
/// let twin = clock.clone();
/// clock.advance(TimeDelta::minutes(5));
/// assert_eq!(twin.now(), DateTime::UNIX_EPOCH + TimeDelta::minutes(5));
/// ```
#[derive(Clone, Debug)]
pub struct FixedClock(Arc<Mutex<DateTime<Utc>>>);

impl Clock {
    /// A clock that shows `at` until it is set.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// let clock = schedule::Clock::fixed(DateTime::UNIX_EPOCH);
    /// assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn fixed(at: DateTime<Utc>) -> Self {
        Self::Fixed(FixedClock::new(at))
    }

    /// The time it is.
    ///
    /// ```
    /// let clock = schedule::Clock::System;
    /// assert!(clock.now() <= clock.now());
    /// ```
    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Self::System => machine_time(),
            Self::Fixed(clock) => clock.now(),
        }
    }

    /// Sets a fixed clock.
    ///
    /// ```
    /// # use chrono::{DateTime, TimeDelta};
    /// let clock = schedule::Clock::fixed(DateTime::UNIX_EPOCH);
    /// clock.set(DateTime::UNIX_EPOCH + TimeDelta::days(1));
    /// assert_eq!(clock.now(), DateTime::UNIX_EPOCH + TimeDelta::days(1));
    /// ```
    ///
    /// # Panics
    ///
    /// On the machine's clock: a test that sets it would go on with the wrong time.
    pub fn set(&self, at: DateTime<Utc>) {
        match self {
            Self::System => panic!("the machine's clock cannot be set; use Clock::fixed"),
            Self::Fixed(clock) => clock.set(at),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn machine_time() -> DateTime<Utc> {
    Utc::now()
}

impl FixedClock {
    /// A clock that shows `at`.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// assert_eq!(schedule::FixedClock::new(DateTime::UNIX_EPOCH).now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn new(at: DateTime<Utc>) -> Self {
        Self(Arc::new(Mutex::new(at)))
    }

    /// The time it shows.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// assert_eq!(schedule::FixedClock::new(DateTime::UNIX_EPOCH).now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets it, backwards too.
    ///
    /// ```
    /// # use chrono::{DateTime, TimeDelta};
    /// let clock = schedule::FixedClock::new(DateTime::UNIX_EPOCH);
    /// clock.set(DateTime::UNIX_EPOCH - TimeDelta::hours(1));
    /// assert!(clock.now() < DateTime::UNIX_EPOCH);
    /// ```
    pub fn set(&self, at: DateTime<Utc>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Moves it by `delta`.
    ///
    /// ```
    /// # use chrono::{DateTime, TimeDelta};
    /// let clock = schedule::FixedClock::new(DateTime::UNIX_EPOCH);
    /// clock.advance(TimeDelta::seconds(90));
    /// assert_eq!(clock.now().timestamp(), 90);
    /// ```
    pub fn advance(&self, delta: TimeDelta) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += delta;
    }
}
