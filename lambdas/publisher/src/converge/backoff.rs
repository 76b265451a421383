//! Step 4 of 7: how long a workflow waits after a failure.
//!
//! With full jitter, because after a fixed delay a thousand workflows would be due at once. The number of failures in a
//! row is stored in the publication, so an edit or a success resets it for every publisher.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
#[cfg(debug_assertions)]
use rand::SeedableRng;
use rand::rngs::StdRng;

const FIRST: Duration = Duration::from_secs(2);
/// The longest backoff.
pub(crate) const LONGEST: Duration = Duration::from_secs(15 * 60);
/// The lower bound of the jitter: large enough that the same drain does not claim the workflow again.
const LEAST: f64 = 0.05;

/// The source of the jitter.
#[derive(Debug)]
pub(crate) struct Backoff(Mutex<StdRng>);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(Mutex::new(rand::make_rng()))
    }
}

impl Backoff {
    /// Creates a source whose jitter is reproducible.
    #[cfg(debug_assertions)]
    pub(crate) fn with_seed(seed: u64) -> Self {
        Backoff(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// Returns how long to wait after a failure that follows `failures` others.
    pub(crate) fn wait_after(&self, failures: u32) -> Duration {
        let wait = LONGEST.min(FIRST.saturating_mul(2_u32.saturating_pow(failures)));
        wait.mul_f64(self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(LEAST..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_backoff() {
        let backoff = Backoff::default();
        for failures in 0..40 {
            let most = LONGEST.min(FIRST * 2_u32.pow(failures.min(20)));
            assert!(backoff.wait_after(failures) <= most, "{failures} failures");
        }
        assert!(backoff.wait_after(u32::MAX) <= LONGEST);
    }
}
