//! Steps 3 and 4 of 7: the counters of this process, written in two formats.
//!
//! `emf.rs` writes CloudWatch's lines for the Lambda, `prometheus.rs` answers a daemon's scrapes.

pub(crate) mod emf;
pub(crate) mod gauges;
pub(crate) mod prometheus;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::gauges::outbox::OutboxMark;
use crate::report::Report;
use crate::scheduler::fault::{Fault, Kind};

/// The counters of this process since its start; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    totals: Arc<Mutex<Totals>>,
    outbox_mark: Arc<OutboxMark>,
    /// The dead-letter queues that this publisher mirrors.
    queues: Arc<[&'static str]>,
}

/// Sums, except `report.remaining`, which is a gauge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) report: Report,
    pub(crate) calls: [u64; ANSWERS.len()],
    /// Drains that stopped because EventBridge refused all workflows.
    pub(crate) stops: u64,
    /// Schedules that finished sweeps listed, and those that they read in full.
    pub(crate) sweep_listed: u64,
    pub(crate) sweep_read: u64,
}

/// The results of EventBridge API calls, as labels.
pub(crate) const ANSWERS: [&str; 9] =
    ["done", "not_found", "conflict", "throttled", "transient", "denied", "environment", "invalid", "unclassified"];

impl Metrics {
    /// Creates the counters of a publisher that mirrors these dead-letter queues.
    pub(crate) fn of_queues(queues: Vec<&'static str>) -> Self {
        Metrics { queues: queues.into(), ..Metrics::default() }
    }

    /// The dead-letter queues that this publisher mirrors.
    pub(crate) fn queues(&self) -> &[&'static str] {
        &self.queues
    }

    /// Counts a call that was answered; a call that was never sent does not count.
    pub(crate) fn count_call<T>(&self, answer: &Result<T, Fault>) {
        let name = match answer {
            Ok(_) => "done",
            Err(Fault { kind: Kind::NotSent, .. }) => return,
            Err(fault) => fault.kind.as_str(),
        };
        if let Some(at) = ANSWERS.iter().position(|answer| *answer == name) {
            self.totals().calls[at] += 1;
        }
    }

    /// Counts settled workflows at once, so that a drain that ends in an error counts too.
    pub(crate) fn count_settled(&self, report: Report) {
        let totals = &mut self.totals().report;
        totals.add_part(Report { remaining: totals.remaining, ..report });
    }

    /// Sets how many workflows are due or backed off.
    pub(crate) fn set_remaining(&self, count: u64) {
        self.totals().report.remaining = count;
    }

    /// Counts a drain that was stopped, or that ended while EventBridge refused every workflow.
    pub(crate) fn count_stopped_drain(&self) {
        self.totals().stops += 1;
    }

    /// Counts a finished sweep.
    pub(crate) fn count_sweep(&self, listed: u64, read: u64) {
        let mut totals = self.totals();
        totals.sweep_listed += listed;
        totals.sweep_read += read;
    }

    /// Where the reading of the oldest open edit begins.
    pub(crate) fn outbox_mark(&self) -> &OutboxMark {
        &self.outbox_mark
    }

    /// Returns the sums so far.
    pub(crate) fn so_far(&self) -> Totals {
        *self.totals()
    }

    /// Returns the sums since the last call.
    pub(crate) fn take_totals(&self) -> Totals {
        std::mem::take(&mut *self.totals())
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    /// Returns the number of calls by result.
    pub(crate) fn calls_by_answer(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ANSWERS.into_iter().zip(self.calls)
    }
}
