//! Steps 1 and 7 of 7: business time is the database's time, on every instance.
//!
//! Each pass of a job reads it. Requests use the last sample and the monotonic time since then, so that a fire needs no
//! further round trip. This instance's own clock decides nothing: it is compared with the database's, and the
//! difference is shown.

mod step;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::Clock;

use crate::App;

/// How often the database's time is sampled. While the database answers, no sample is older.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// A larger difference is shown as a warning.
const SHOWN_ABOVE: TimeDelta = TimeDelta::seconds(2);
/// With a larger difference this instance takes no jobs.
const NO_JOBS_ABOVE: TimeDelta = TimeDelta::seconds(30);

/// How far this instance's own clock differs from the database's.
#[derive(Debug, Default)]
pub struct ClockSkew(Mutex<TimeDelta>);

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
    pub fn seconds(&self) -> f64 {
        self.get().as_seconds_f64()
    }

    /// Whether the difference is small enough to take jobs.
    #[must_use]
    pub fn permits_jobs(&self) -> bool {
        SkewClass::of(self.get()) != SkewClass::NoJobs
    }

    fn get(&self) -> TimeDelta {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, skew: TimeDelta) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), skew);
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

/// Reads the database's time for one pass of a job, and corrects the app's clock. A set clock returns its own time.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn database_time(app: &App) -> sqlx::Result<DateTime<Utc>> {
    let Clock::Sampled(clock) = &app.clock else { return Ok(app.clock.now()) };
    let mut connection = app.pool.acquire().await?;
    // After the connection is acquired, because waiting for it is not part of the round trip.
    let asked = Instant::now();
    let time = cronbox_now(&mut connection).await?;
    let (answered, own, believed) = (Instant::now(), Clock::System.now(), clock.now());
    clock.observe(time, asked);
    app.clock_skew.set(skew(own, time, answered - asked));
    let step = skew(believed, time, answered - asked);
    let is_first = !app.is_clock_sampled.swap(true, Ordering::Relaxed);
    // The first sample corrects this machine's clock; it shows no step of the database's.
    if step > SHOWN_ABOVE && !is_first {
        tracing::warn!(step_secs = step.as_seconds_f64(), "database clock went back; what was due stays due");
        step::keep_due(&mut connection, believed).await?;
    }
    Ok(time)
}

/// Reads the database's time.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cronbox_now(db: &mut PgConnection) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar!(
        r#"
        -- database time
        SELECT cronbox_now() AS "now!"
        "#
    )
    .fetch_one(db)
    .await
}

/// How far `own` lies outside of the times that the database's clock can show, given the round trip.
fn skew(own: DateTime<Utc>, time: DateTime<Utc>, round_trip: Duration) -> TimeDelta {
    let latest = time + TimeDelta::from_std(round_trip).unwrap_or(TimeDelta::MAX);
    own - own.clamp(time, latest)
}

/// Samples the database's time until it is dropped.
pub(crate) async fn keep_sampling(app: App) {
    if let Clock::Fixed(_) = app.clock {
        return;
    }
    loop {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        if let Err(error) = database_time(&app).await {
            tracing::warn!(%error, "database time cannot be sampled; the last sample and the time since are used");
        }
    }
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
