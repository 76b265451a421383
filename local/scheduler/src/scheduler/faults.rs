//! Step 4 of 7: faults between the publisher and Scheduler, by seed.
//!
//! Each call of the five operations on schedules draws from one seeded source, and the plan decides what the draw
//! means. So the same calls in the same order get the same faults.

pub(super) mod injection;
mod late_requests;
mod plan;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::late_requests::LateRequests;
pub use self::plan::{Kind, Operation, Plan, Rule, Wrong};

/// The faults of one account: the plan, the random source, and the requests that have not arrived yet.
#[derive(Default)]
pub(super) struct Faults {
    seed_at_start: u64,
    dice: Mutex<Dice>,
    late_requests: LateRequests,
    ended: CancellationToken,
}

struct Dice {
    random: StdRng,
    plan: Plan,
    injected: Vec<u32>,
}

/// The fault of one call, and the number in 0..1 that scales it.
#[derive(Clone, Copy)]
struct Draw {
    kind: Kind,
    share: f64,
}

/// The plan and its progress.
#[derive(Serialize)]
pub struct Progress {
    seed: u64,
    late_secs: u32,
    slow_ms: u32,
    group_delete_secs: u32,
    faults: Vec<Injected>,
    /// Requests that have not arrived yet
    waiting: usize,
}

/// One rule, and how often it was applied.
#[derive(Serialize)]
struct Injected {
    #[serde(flatten)]
    rule: Rule,
    injected: u32,
}

impl Default for Dice {
    fn default() -> Self {
        Dice::new(Plan::default(), 0)
    }
}

impl Dice {
    fn new(plan: Plan, seed: u64) -> Dice {
        Dice { random: StdRng::seed_from_u64(seed), injected: vec![0; plan.faults.len()], plan }
    }

    /// Draws two numbers for each call, whatever its fault, so that no fault changes those of the next calls.
    fn draw(&mut self, operation: Operation) -> Option<Draw> {
        let (mut chance, share) = (self.random.random::<f64>(), self.random.random::<f64>());
        for (rule, injected) in self.plan.faults.iter().zip(&mut self.injected) {
            if !rule.applies_to(operation) {
                continue;
            }
            if chance < rule.chance {
                let is_used_up = rule.count.is_some_and(|count| *injected >= count);
                *injected += u32::from(!is_used_up);
                return (!is_used_up).then_some(Draw { kind: rule.kind, share });
            }
            chance -= rule.chance;
        }
        None
    }
}

impl Faults {
    /// Creates an account without faults; a plan without a seed uses `seed`.
    pub(super) fn new(seed: Option<u64>) -> Faults {
        Faults { seed_at_start: seed.unwrap_or_default(), ..Faults::default() }
    }

    /// Replaces the plan; one without faults ends all faults.
    pub(super) fn replace_plan(&self, plan: Plan) {
        let seed = plan.seed.unwrap_or(self.seed_at_start);
        *self.dice() = Dice::new(Plan { seed: Some(seed), ..plan }, seed);
    }

    /// The plan and its progress.
    pub(super) fn read_progress(&self) -> Progress {
        let dice = self.dice();
        let rules = dice.plan.faults.iter().cloned().zip(&dice.injected);
        Progress {
            seed: dice.plan.seed.unwrap_or(self.seed_at_start),
            late_secs: dice.plan.late_secs,
            slow_ms: dice.plan.slow_ms,
            group_delete_secs: dice.plan.group_delete_secs,
            faults: rules.map(|(rule, injected)| Injected { rule, injected: *injected }).collect(),
            waiting: self.late_requests.count_waiting(),
        }
    }

    /// Answers the requests that were to get no answer, because a server that stops waits for them.
    pub(super) fn end_silence(&self) {
        self.ended.cancel();
    }

    /// When the next late request arrives.
    pub(super) fn next_arrival(&self) -> Option<DateTime<Utc>> {
        self.late_requests.next_due()
    }

    /// Lets the late requests arrive that are due at `now`.
    pub(super) async fn receive_late_requests(&self, now: DateTime<Utc>) {
        self.late_requests.receive_due(now).await;
    }

    /// How long the deletion of a schedule group takes.
    pub(super) fn group_deletion(&self) -> TimeDelta {
        TimeDelta::seconds(self.dice().plan.group_delete_secs.into())
    }

    fn draw(&self, operation: Operation) -> Option<Draw> {
        self.dice().draw(operation)
    }

    fn lateness(&self, share: f64) -> TimeDelta {
        let millis = f64::from(self.dice().plan.late_secs) * 1000.0 * share;
        TimeDelta::from_std(Duration::from_secs_f64(millis / 1000.0)).unwrap_or_default()
    }

    fn slowness(&self, share: f64) -> Duration {
        Duration::from_millis(self.dice().plan.slow_ms.into()).mul_f64(share)
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
