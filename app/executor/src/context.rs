//! Step 7 of 7: the context of an attempt: why it happens, how late it is, and which times come next.

use chrono::{DateTime, Utc};
use workflows::definition::spec::Timing;
use workflows::trigger::Trigger;

use crate::actions::Context;

/// How many of the next times a context has.
const NEXT_TIMES: usize = 5;

/// What the context of an attempt is made of.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What started the run.
    pub trigger: Trigger,
    /// The scheduled time; `None` for a manual run.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// Whether the run goes on after its instance was lost or ended during an attempt.
    pub is_recovery: bool,
    /// The scheduled time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// Cron, timezone and end of the schedule at the start of the attempt.
    pub timing: Timing,
}

/// The context of an attempt that started at `started`.
#[must_use]
pub fn build_context(facts: &Facts, started: DateTime<Utc>) -> Context {
    Context {
        is_catch_up: facts.trigger == Trigger::CatchUp,
        is_recovery: facts.is_recovery,
        lateness_s: facts.scheduled_time.map_or(0, |time| (started - time).num_seconds()),
        original_scheduled_time: facts.scheduled_time,
        recovery_attempt_time: facts.is_recovery.then_some(started),
        last_scheduled_time: facts.last_scheduled_time,
        next_scheduled_times: next_times(&facts.timing, started),
    }
}

fn next_times(timing: &Timing, started: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let Some((cron, timezone)) = timing.parsed_now() else { return Vec::new() };
    cron.times_after(started, timezone).take_while(|time| timing.is_before_end(*time)).take(NEXT_TIMES).collect()
}
