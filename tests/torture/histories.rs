//! Runs many histories at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::coverage::Coverage;
use crate::database::Ground;
use crate::leaked_secrets::take_leaked_line;
use crate::ledger::{self, Ablation, Stage};
use crate::publishing::ablations::Variant;
use crate::publishing::history::{self, Outcome};

/// The subject of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// Edits, publishers and Scheduler.
    Publishing(Variant),
    /// Fires, executors, jobs and people.
    Ledger(Ablation),
}

impl About {
    /// Its name for `VARIANT=`.
    pub(crate) fn name(self) -> String {
        match self {
            About::Publishing(variant) => format!("{variant:?}"),
            About::Ledger(Ablation::Shipped) => "Ledger".to_owned(),
            About::Ledger(ablation) => format!("{ablation:?}"),
        }
    }

    /// The beginning of the message with which an ablation must fail.
    pub(crate) fn noticed_by(self) -> &'static str {
        match self {
            About::Publishing(_) => "",
            About::Ledger(ablation) => ablation.noticed_by(),
        }
    }

    /// Seeds at which an ablation has failed.
    pub(crate) fn known_seeds(self) -> &'static [u64] {
        match self {
            About::Publishing(variant) => variant.known_seeds(),
            About::Ledger(ablation) => ablation.known_seeds(),
        }
    }

    /// The rewrites that an ablation should have made, and has not made.
    pub(crate) fn unmade(self) -> Vec<String> {
        match self {
            About::Publishing(_) => Vec::new(),
            About::Ledger(ablation) => ablation.unmade(),
        }
    }
}

/// The environment of the histories of one thread, which run one after another.
enum Scene {
    Publishing(Ground, Variant),
    Ledger(Box<Stage>),
}

impl Scene {
    async fn of(about: About) -> Scene {
        match about {
            About::Publishing(variant) => Scene::Publishing(Ground::new().await, variant),
            About::Ledger(ablation) => Scene::Ledger(Box::new(Stage::new(ablation).await)),
        }
    }

    async fn history(&self, seed: u64) -> Outcome {
        match self {
            Scene::Publishing(ground, variant) => history::run(ground, seed, *variant).await,
            Scene::Ledger(stage) => ledger::run(stage, seed).await,
        }
    }
}

/// A seed whose history failed.
pub(crate) struct Bad {
    pub(crate) about: About,
    pub(crate) seed: u64,
    pub(crate) why: String,
    pub(crate) trace: Vec<String>,
}

/// The results of many histories.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) histories: usize,
    pub(crate) bad: Vec<Bad>,
    pub(crate) coverage: Coverage,
    /// What they contained too rarely to prove anything.
    pub(crate) gaps: Vec<String>,
    /// The trace, if there was only one history.
    pub(crate) replay: Vec<String>,
}

/// When to stop before all seeds have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    AllAreThrough,
    /// Stop at a failed history whose message begins like this.
    OneIsBad(&'static str),
}

/// Runs the histories of `seeds`.
pub(crate) fn torture(seeds: &[u64], about: About, until: Until) -> Verdict {
    let (next, verdict) = (AtomicUsize::new(0), Mutex::new(Verdict::default()));
    // A history waits for its Postgres most of the time, so a core runs two.
    let threads = (2 * thread::available_parallelism().map_or(2, usize::from)).min(seeds.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(seeds, about, until, &next, &verdict));
        }
    });
    verdict.into_inner().unwrap()
}

fn work(seeds: &[u64], about: About, until: Until, next: &AtomicUsize, verdict: &Mutex<Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scene = runtime.block_on(Scene::of(about));
    while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
        let began = std::time::Instant::now();
        let history = || runtime.block_on(scene.history(seed));
        let outcome = catch_unwind(AssertUnwindSafe(history)).unwrap_or_else(|_| Outcome {
            bad: Some("it panicked, see above".to_owned()),
            coverage: Coverage::default(),
            trace: Vec::new(),
        });
        tracing::info!(seed, steps = outcome.trace.len(), took = ?began.elapsed(), "a history is over");
        let mut verdict = verdict.lock().unwrap();
        verdict.histories += 1;
        verdict.coverage.add(outcome.coverage);
        let leaked = take_leaked_line().map(|line| format!("S10: a secret is in the log: {line}"));
        if let Some(why) = outcome.bad.or(leaked) {
            if until == Until::AllAreThrough {
                println!("{about:?}: seed {seed} is bad");
            }
            let is_wanted = matches!(until, Until::OneIsBad(reason) if why.starts_with(reason));
            verdict.bad.push(Bad { about, seed, why, trace: outcome.trace });
            if is_wanted {
                return next.store(seeds.len(), Ordering::Relaxed);
            }
        } else if seeds.len() == 1 {
            verdict.replay = outcome.trace;
        }
    }
}
