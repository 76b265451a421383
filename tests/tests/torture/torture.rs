//! Many histories, on as many threads as there are cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::coverage::Coverage;
use crate::ground::Ground;
use crate::history::{self, Outcome};
use crate::weaker::Variant;

/// A seed whose history ended wrong.
pub(crate) struct Bad {
    pub(crate) seed: u64,
    pub(crate) why: String,
    pub(crate) trace: Vec<String>,
}

/// What many histories came to.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) histories: usize,
    pub(crate) bad: Vec<Bad>,
    pub(crate) coverage: Coverage,
}

/// When to stop before all seeds are through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    AllAreThrough,
    /// One bad history is what was looked for.
    OneIsBad,
}

/// Runs the histories of `seeds`.
pub(crate) fn torture(seeds: &[u64], variant: Variant, until: Until) -> Verdict {
    let (next, verdict) = (AtomicUsize::new(0), Mutex::new(Verdict::default()));
    let threads = thread::available_parallelism().map_or(2, usize::from).min(seeds.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(seeds, variant, until, &next, &verdict));
        }
    });
    verdict.into_inner().unwrap()
}

fn work(seeds: &[u64], variant: Variant, until: Until, next: &AtomicUsize, verdict: &Mutex<Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ground = runtime.block_on(Ground::new());
    while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
        let history = || runtime.block_on(history::run(&ground, seed, variant));
        let outcome = catch_unwind(AssertUnwindSafe(history)).unwrap_or_else(|_| Outcome {
            bad: Some("it panicked, see above".to_owned()),
            coverage: Coverage::default(),
            trace: Vec::new(),
        });
        let mut verdict = verdict.lock().unwrap();
        verdict.histories += 1;
        verdict.coverage.add(outcome.coverage);
        if let Some(why) = outcome.bad {
            println!("{variant:?}: seed {seed} is bad");
            verdict.bad.push(Bad { seed, why, trace: outcome.trace });
            if until == Until::OneIsBad {
                return next.store(seeds.len(), Ordering::Relaxed);
            }
        }
    }
}
