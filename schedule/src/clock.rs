//! Business time, passed as an argument: another machine's clock, this machine's, or one that a test sets.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use crate::moment::Moment;

/// The source of "now"; the only reader of the machine's clock.
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
    /// The clock of another machine, sampled: the database's.
    Sampled(SampledClock),
    /// A clock that changes only when it is set.
    Fixed(FixedClock),
}

/// A clock that changes only when it is set; its clones show the same time.
///
/// ```
/// use chrono::{DateTime, TimeDelta};
/// use schedule::FixedClock;
/// let clock = FixedClock::new(DateTime::UNIX_EPOCH);
/// let twin = clock.clone();
/// clock.advance_by(TimeDelta::minutes(5));
/// assert_eq!(twin.now(), DateTime::UNIX_EPOCH + TimeDelta::minutes(5));
/// ```
#[derive(Clone, Debug)]
pub struct FixedClock(Arc<Mutex<DateTime<Utc>>>);

impl Clock {
    /// Creates a clock that shows `at` until it is set.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// let clock = schedule::Clock::fixed(DateTime::UNIX_EPOCH);
    /// assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn fixed(at: DateTime<Utc>) -> Self {
        Self::Fixed(FixedClock::new(at))
    }

    /// The current time in microseconds, like Postgres, so that a stored value is read back unchanged.
    ///
    /// ```
    /// let clock = schedule::Clock::System;
    /// assert!(clock.now() <= clock.now());
    /// ```
    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Self::System => machine_time(),
            Self::Sampled(clock) => clock.now(),
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
    /// Panics if the clock is not a fixed one, because a test that sets it would continue with the wrong time.
    pub fn set(&self, at: DateTime<Utc>) {
        match self {
            Self::System | Self::Sampled(_) => panic!("a clock that runs cannot be set; use Clock::fixed"),
            Self::Fixed(clock) => clock.set(at),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
fn machine_time() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6) + offset::read_offset()
}

#[cfg(debug_assertions)]
pub use offset::offset_machine_clock;

/// The offset by which a test changes the machine's clock for this process.
#[cfg(debug_assertions)]
mod offset {
    use std::sync::atomic::{AtomicI64, Ordering};

    use chrono::TimeDelta;

    static SECS: AtomicI64 = AtomicI64::new(0);

    /// Changes the machine's clock by seconds for this process. Not in a release.
    pub fn offset_machine_clock(secs: i64) {
        SECS.store(secs, Ordering::Relaxed);
    }

    pub(super) fn read_offset() -> TimeDelta {
        TimeDelta::seconds(SECS.load(Ordering::Relaxed))
    }
}

#[cfg(not(debug_assertions))]
mod offset {
    pub(super) fn read_offset() -> chrono::TimeDelta {
        chrono::TimeDelta::zero()
    }
}

/// The clock of another machine: its last sample plus the monotonic time since then.
///
/// It never reads this machine's time of day, so a step of that clock changes nothing. A suspension of this machine counts.
///
/// ```
/// use chrono::{DateTime, TimeDelta};
/// use schedule::{Moment, SampledClock};
/// let clock = SampledClock::new(DateTime::UNIX_EPOCH);
/// clock.observe_time(DateTime::UNIX_EPOCH + TimeDelta::hours(1), Moment::now());
/// assert!(clock.now() >= DateTime::UNIX_EPOCH + TimeDelta::hours(1));
/// ```
#[derive(Clone, Debug)]
pub struct SampledClock(Arc<Mutex<Sample>>);

/// The time of the other machine's clock at an instant of this one.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: DateTime<Utc>,
    at: Moment,
}

impl Sample {
    fn time_at(self, instant: Moment) -> DateTime<Utc> {
        self.time + since(self.at, instant)
    }

    /// Returns the sample at `answered`, corrected only if the other clock's answer contradicts it.
    ///
    /// The other machine read `time` at some moment between `requested` and `answered`, so its clock now shows a time from
    /// `time` to `time` plus the round trip. So a slow answer corrects little, and a corrected clock is more likely
    /// behind the other one than ahead of it.
    fn corrected(self, time: DateTime<Utc>, requested: Moment, answered: Moment) -> Self {
        let believed = self.time_at(answered);
        let is_possible = (time..=time + since(requested, answered)).contains(&believed);
        Self { time: if is_possible { believed } else { time }, at: answered }
    }
}

fn since(earlier: Moment, later: Moment) -> TimeDelta {
    let micros = later.saturating_duration_since(earlier).as_micros();
    TimeDelta::microseconds(i64::try_from(micros).unwrap_or(i64::MAX))
}

impl SampledClock {
    /// Creates a clock that shows `time` now, until the first sample corrects it.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// assert!(schedule::SampledClock::new(DateTime::UNIX_EPOCH).now() >= DateTime::UNIX_EPOCH);
    /// ```
    pub fn new(time: DateTime<Utc>) -> Self {
        Self(Arc::new(Mutex::new(Sample { time, at: Moment::now() })))
    }

    /// The time that the other machine's clock shows now.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// let clock = schedule::SampledClock::new(DateTime::UNIX_EPOCH);
    /// assert!(clock.now() <= clock.now());
    /// ```
    pub fn now(&self) -> DateTime<Utc> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).time_at(Moment::now())
    }

    /// Adds a sample: the request was sent at `requested`, and the answer that just arrived contains `time`.
    ///
    /// ```
    /// # use chrono::{DateTime, TimeDelta};
    /// let clock = schedule::SampledClock::new(DateTime::UNIX_EPOCH + TimeDelta::hours(1));
    /// clock.observe_time(DateTime::UNIX_EPOCH, schedule::Moment::now());
    /// assert!(clock.now() < DateTime::UNIX_EPOCH + TimeDelta::hours(1));
    /// ```
    pub fn observe_time(&self, time: DateTime<Utc>, requested: Moment) {
        let mut sample = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *sample = sample.corrected(time, requested, Moment::now());
    }
}

impl FixedClock {
    /// Creates a clock that shows `at`.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// assert_eq!(schedule::FixedClock::new(DateTime::UNIX_EPOCH).now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn new(at: DateTime<Utc>) -> Self {
        Self(Arc::new(Mutex::new(at)))
    }

    /// The current time of the clock.
    ///
    /// ```
    /// # use chrono::DateTime;
    /// assert_eq!(schedule::FixedClock::new(DateTime::UNIX_EPOCH).now(), DateTime::UNIX_EPOCH);
    /// ```
    pub fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the clock, also backwards.
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

    /// Moves the clock by `delta`.
    ///
    /// ```
    /// # use chrono::{DateTime, TimeDelta};
    /// let clock = schedule::FixedClock::new(DateTime::UNIX_EPOCH);
    /// clock.advance_by(TimeDelta::seconds(90));
    /// assert_eq!(clock.now().timestamp(), 90);
    /// ```
    pub fn advance_by(&self, delta: TimeDelta) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += delta;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seconds(secs: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(secs)
    }

    #[test]
    fn system_clock_shows_microseconds() {
        assert_eq!(Clock::System.now().timestamp_subsec_nanos() % 1_000, 0);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn machine_clock_offset_moves_system_clock() {
        let day = TimeDelta::days(1);
        let before = Clock::System.now();
        offset_machine_clock(day.num_seconds());
        let moved = Clock::System.now();
        offset_machine_clock(0);
        let after = Clock::System.now();
        assert!((before + day..=after + day).contains(&moved), "{moved} between {before} and {after}");
    }

    #[test]
    fn sampled_clock_stays_within_round_trip() {
        let requested = Moment::now();
        let answered = requested + Duration::from_secs(10);
        let believed = |secs| Sample { time: seconds(secs), at: answered };
        let corrected = |secs| believed(secs).corrected(seconds(100), requested, answered).time_at(answered);
        assert_eq!(corrected(50), seconds(100), "it was behind");
        assert_eq!(corrected(105), seconds(105), "a slow answer does not contradict it");
        assert_eq!(corrected(200), seconds(100), "it was ahead");
    }

    #[test]
    fn sampled_clock_follows_monotonic_time() {
        let at = Moment::now();
        let sample = Sample { time: seconds(100), at };
        assert_eq!(sample.time_at(at + Duration::from_micros(2_500_000)), seconds(102) + TimeDelta::milliseconds(500));
    }
}
