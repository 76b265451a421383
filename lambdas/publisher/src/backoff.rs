//! Step 4 of 7: how long a workflow waits after a failure.
//!
//! Full jitter, because a fixed delay lets a thousand workflows come back as one herd. The steps
//! live in this process alone: forgetting them means no more than an earlier try.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
#[cfg(debug_assertions)]
use rand::SeedableRng;
use rand::rngs::StdRng;
use schedule::WorkflowId;

const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Of the jitter: not so little that the same drain meets the workflow again.
const LEAST: f64 = 0.05;

/// The failures in a row of each workflow.
#[derive(Debug)]
pub(crate) struct Backoff(Mutex<Waits>);

#[derive(Debug)]
struct Waits {
    failures: HashMap<WorkflowId, u32>,
    jitter: StdRng,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff(Mutex::new(Waits { failures: HashMap::new(), jitter: rand::make_rng() }))
    }
}

impl Backoff {
    /// One whose jitter repeats itself.
    #[cfg(debug_assertions)]
    pub(crate) fn seeded(seed: u64) -> Self {
        Backoff(Mutex::new(Waits { failures: HashMap::new(), jitter: StdRng::seed_from_u64(seed) }))
    }

    /// Counts a failure and says how long to wait.
    pub(crate) fn after_failure(&self, workflow: WorkflowId) -> Duration {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let step = waits.failures.entry(workflow).or_default();
        let wait = LONGEST.min(FIRST.saturating_mul(2_u32.saturating_pow(*step)));
        *step = step.saturating_add(1);
        wait.mul_f64(waits.jitter.random_range(LEAST..=1.0))
    }

    /// Forgets the failures of a workflow that has come to an end, good or bad.
    pub(crate) fn reset(&self, workflow: WorkflowId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failures.remove(&workflow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_quarter_of_an_hour_and_begin_anew_after_a_success() {
        let backoff = Backoff::default();
        for step in 0..40 {
            let most = LONGEST.min(FIRST * 2_u32.pow(step.min(20)));
            assert!(backoff.after_failure(WorkflowId(1)) <= most, "step {step}");
        }
        backoff.reset(WorkflowId(1));
        assert!(backoff.after_failure(WorkflowId(1)) <= FIRST);
    }
}
