//! The only source of randomness in a history: its seed determines the history.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Clones share one generator.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A number from 0 to `below`, exclusive.
    pub(crate) fn below(&self, below: usize) -> usize {
        self.random().random_range(0..below.max(1))
    }

    /// A number from `least` to `most`, inclusive.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        self.random().random_range(least..=most)
    }

    pub(crate) fn chance(&self, of_one: f64) -> bool {
        self.random().random::<f64>() < of_one
    }

    /// A random element.
    pub(crate) fn pick<'a, T>(&self, some: &'a [T]) -> Option<&'a T> {
        if some.is_empty() { None } else { some.get(self.below(some.len())) }
    }

    /// A random element, chosen by weight.
    pub(crate) fn weighted<T: Copy>(&self, some: &[(u32, T)]) -> Option<T> {
        let sum: u32 = some.iter().map(|(weight, _)| weight).sum();
        let mut at = self.random().random_range(0..sum.max(1));
        for (weight, what) in some {
            if at < *weight {
                return Some(*what);
            }
            at -= weight;
        }
        None
    }

    fn random(&self) -> MutexGuard<'_, StdRng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
