//! Step 7 of 7: when a failed run is attempted again.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// The pause after the first failed attempt, in seconds; it doubles each time.
const BACKOFF_BASE_SECS: u32 = 10;
/// The longest pause, in seconds.
const BACKOFF_MAX_SECS: u32 = 60 * 60;

/// Returns when the next attempt may start; `None` if the failed attempt was the last.
///
/// `tries` is the number of attempts that had failed before it; `at_least` is the pause that the receiver requested.
#[must_use]
pub(crate) fn next_try(
    tries: i32,
    max_attempts: i32,
    at_least: Option<Duration>,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let failed = tries + 1;
    if failed >= max_attempts {
        return None;
    }
    let doublings = u32::try_from(failed - 1).unwrap_or_default().min(16);
    let most = (f64::from(BACKOFF_BASE_SECS) * f64::from(1_u32 << doublings)).min(f64::from(BACKOFF_MAX_SECS));
    // Half of the pause is random, so that runs that failed together are not repeated together.
    let pause = Duration::from_secs_f64(most / 2.0 * (1.0 + rand::random::<f64>()));
    let pause = pause.max(at_least.unwrap_or_default().min(Duration::from_secs(BACKOFF_MAX_SECS.into())));
    TimeDelta::from_std(pause).ok().map(|pause| now + pause)
}
