//! Steps 4 and 5 of 7 without AWS: Scheduler, Lambda's asynchronous invoke and the dead-letter queues together.

use crate::clock::Clock;
use crate::dead_letters::DeadLetters;
use crate::fires::{self, Fires};
use crate::invoke::{self, Lambda};
use crate::scheduler::{self, Scheduler};

/// One account; clones share it.
#[derive(Clone)]
pub struct StandIn {
    /// The schedules
    pub scheduler: Scheduler,
    /// The functions
    pub lambda: Lambda,
    /// The dead-letter queues
    pub dead_letters: DeadLetters,
    /// The loop that fires schedules
    pub fires: Fires,
}

/// How the parts behave.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Options of the API
    pub scheduler: scheduler::Options,
    /// Options of the functions
    pub invoke: invoke::Options,
    /// Options of the fires
    pub fires: fires::Options,
}

impl StandIn {
    /// Creates an empty account.
    pub fn new(options: Options, clock: Clock) -> StandIn {
        let dead_letters = DeadLetters::default();
        let scheduler = Scheduler::new(options.scheduler, clock);
        let lambda = Lambda::new(options.invoke, dead_letters.clone());
        let fires = Fires::new(scheduler.clone(), lambda.clone(), dead_letters.clone(), options.fires);
        StandIn { scheduler, lambda, dead_letters, fires }
    }
}
