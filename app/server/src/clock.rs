//! Steps 1 and 7 of 7: business time is the database's time, on every instance.
//!
//! Each pass of a job reads it. Requests use the last sample and the monotonic time since then, so that a fire needs no
//! further round trip. This instance's own clock decides nothing: it is compared with the database's, and the
//! difference is shown.

mod step;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use schedule::{Clock, Moment};
use workflows::database_time::cronbox_now;

/// A larger difference is shown as a warning.
const SHOWN_ABOVE: TimeDelta = TimeDelta::seconds(2);
/// With a larger difference this instance takes no jobs.
const NO_JOBS_ABOVE: TimeDelta = TimeDelta::seconds(30);

/// How far this instance's own clock differs from the database's.
#[derive(Debug, Default)]
pub struct ClockSkew {
    skew: Mutex<TimeDelta>,
    /// Whether the database's time was sampled; before the first sample, a running clock shows the machine's time.
    is_sampled: AtomicBool,
}

/// The effect of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkewClass {
    Small,
    Shown,
    NoJobs,
}

impl SkewClass {
    fn of(skew: TimeDelta) -> Self {
        match skew.abs() {
            skew if skew > NO_JOBS_ABOVE => Self::NoJobs,
            skew if skew > SHOWN_ABOVE => Self::Shown,
            _ => Self::Small,
        }
    }
}

impl ClockSkew {
    /// Seconds; positive if this instance's clock is ahead of the database's.
    #[must_use]
    pub fn as_seconds(&self) -> f64 {
        self.get().as_seconds_f64()
    }

    /// Whether the difference is small enough to take jobs.
    #[must_use]
    pub fn permits_jobs(&self) -> bool {
        SkewClass::of(self.get()) != SkewClass::NoJobs
    }

    fn get(&self) -> TimeDelta {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that there was a sample; returns whether it is the first one.
    fn note_sample(&self) -> bool {
        !self.is_sampled.swap(true, Ordering::Relaxed)
    }

    fn set(&self, skew: TimeDelta) {
        let before = std::mem::replace(&mut *self.skew.lock().unwrap_or_else(PoisonError::into_inner), skew);
        let (before, class) = (SkewClass::of(before), SkewClass::of(skew));
        let skew_secs = skew.as_seconds_f64();
        match class {
            _ if class == before => {}
            SkewClass::Small => tracing::info!(skew_secs, "clock skew ended: this clock agrees with the database's"),
            SkewClass::Shown => tracing::warn!(skew_secs, "clock skew: this clock differs from the database's"),
            SkewClass::NoJobs => {
                tracing::warn!(skew_secs, "clock skew: this clock differs too much from the database's to take jobs");
            }
        }
    }
}

/// Business time of the app: the system's clock is replaced by the database's, a test's clock is kept.
pub(crate) fn of_database(clock: Clock) -> Clock {
    match clock {
        // Used until the first sample; the app serves nothing before it.
        Clock::System => Clock::Sampled(schedule::SampledClock::new(Clock::System.now())),
        Clock::Sampled(_) | Clock::Fixed(_) => clock,
    }
}

/// Reads the database's time for one pass of a job, and corrects the instance's clock. A set clock returns its own
/// time.
///
/// # Errors
/// Fails if the database does not answer.
pub(crate) async fn sample_clock(pool: &PgPool, clock: &Clock, clock_skew: &ClockSkew) -> sqlx::Result<DateTime<Utc>> {
    let Clock::Sampled(clock) = clock else { return Ok(clock.now()) };
    let mut connection = pool.acquire().await?;
    // The round trip begins after the connection is acquired, because the wait for it is not part of the trip.
    let requested = Moment::now();
    let time = cronbox_now(&mut connection).await?;
    let (round_trip, own, believed) = (requested.elapsed(), Clock::System.now(), clock.now());
    clock.observe_time(time, requested);
    clock_skew.set(skew(own, time, round_trip));
    let step = skew(believed, time, round_trip);
    let is_first = clock_skew.note_sample();
    // The first sample corrects this machine's clock; it shows no step of the database's.
    if step > SHOWN_ABOVE && !is_first {
        tracing::warn!(step_secs = step.as_seconds_f64(), "database clock went back; due times stay due");
        step::keep_due(&mut connection, believed).await?;
    }
    Ok(time)
}

/// How far `own` lies outside of the times that the database's clock can show, given the round trip.
fn skew(own: DateTime<Utc>, time: DateTime<Utc>, round_trip: Duration) -> TimeDelta {
    let latest = time + TimeDelta::from_std(round_trip).unwrap_or(TimeDelta::MAX);
    own - own.clamp(time, latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_ignores_the_round_trip() {
        let time = DateTime::UNIX_EPOCH;
        let skew = |own_secs| skew(time + TimeDelta::seconds(own_secs), time, Duration::from_secs(4)).num_seconds();
        assert_eq!([-3, 0, 4, 10].map(skew), [-3, 0, 0, 6]);
    }

    #[test]
    fn jobs_need_a_small_skew() {
        for (secs, permitted) in [(0, true), (30, true), (31, false), (-31, false), (-30, true)] {
            let shown = ClockSkew::default();
            shown.set(TimeDelta::seconds(secs));
            assert_eq!(shown.permits_jobs(), permitted, "{secs} s");
        }
    }
}
