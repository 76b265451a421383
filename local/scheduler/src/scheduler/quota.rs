//! How many calls per second the API accepts: above the quota, it refuses calls for the rest of the second, like AWS.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::Error;

/// Calls per second, measured in real time whatever the business clock shows.
pub(super) struct Quota {
    calls_per_second: Option<u32>,
    second: Mutex<(Instant, u32)>,
}

impl Quota {
    /// Creates a quota; `None` = no limit.
    pub(super) fn new(calls_per_second: Option<u32>) -> Quota {
        Quota { calls_per_second, second: Mutex::new((Instant::now(), 0)) }
    }

    /// Counts one call.
    ///
    /// # Errors
    /// Returns a `ThrottlingException` above the quota.
    pub(super) fn count_call(&self) -> Result<(), Error> {
        let Some(limit) = self.calls_per_second else { return Ok(()) };
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if second.0.elapsed() >= Duration::from_secs(1) {
            *second = (Instant::now(), 0);
        }
        if second.1 >= limit {
            return Err(Error::Throttled);
        }
        second.1 += 1;
        Ok(())
    }
}
