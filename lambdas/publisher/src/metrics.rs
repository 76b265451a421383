//! Steps 3 and 4 of 7: what this process has done, counted once and told in two forms.
//!
//! `emf.rs` writes CloudWatch's lines for the Lambda, `prometheus.rs` answers a daemon's scrapes.

pub(crate) mod emf;
pub(crate) mod prometheus;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fault::{Fault, Kind};
use crate::report::Report;

/// What this process has done since it started.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Totals>);

/// Sums, but for `report.remaining`, which is a level.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) report: Report,
    pub(crate) calls: [u64; ANSWERS.len()],
    /// Drains that were stopped because EventBridge refused everybody.
    pub(crate) stops: u64,
    /// Schedules that finished sweeps listed, and those that they read in full.
    pub(crate) sweep_listed: u64,
    pub(crate) sweep_read: u64,
}

/// How calls of EventBridge's API end, as labels.
pub(crate) const ANSWERS: [&str; 9] =
    ["done", "not_found", "conflict", "throttled", "transient", "denied", "environment", "invalid", "unclassified"];

impl Metrics {
    /// A call was answered; one that was never sent is none.
    pub(crate) fn called<T>(&self, answer: &Result<T, Fault>) {
        let name = match answer {
            Ok(_) => "done",
            Err(fault) => match fault.kind {
                Kind::NotSent => return,
                Kind::NotFound => "not_found",
                Kind::Conflict => "conflict",
                Kind::Throttled => "throttled",
                Kind::Transient => "transient",
                Kind::Denied => "denied",
                Kind::Environment | Kind::Role => "environment",
                Kind::Invalid | Kind::Setting => "invalid",
                Kind::Unclassified => "unclassified",
            },
        };
        if let Some(at) = ANSWERS.iter().position(|answer| *answer == name) {
            self.totals().calls[at] += 1;
        }
    }

    /// Something was settled; counted at once, so that a drain that ends in an error counts too.
    pub(crate) fn settled(&self, report: Report) {
        let totals = &mut self.totals().report;
        totals.add(Report { remaining: totals.remaining, ..report });
    }

    /// So many workflows are due or backed off.
    pub(crate) fn remaining(&self, count: u64) {
        self.totals().report.remaining = count;
    }

    /// A drain was stopped.
    pub(crate) fn stopped(&self) {
        self.totals().stops += 1;
    }

    /// A sweep has finished.
    pub(crate) fn swept(&self, listed: u64, read: u64) {
        let mut totals = self.totals();
        totals.sweep_listed += listed;
        totals.sweep_read += read;
    }

    /// The sums so far.
    pub(crate) fn so_far(&self) -> Totals {
        *self.totals()
    }

    /// The sums since the last time this was asked.
    pub(crate) fn take(&self) -> Totals {
        std::mem::take(&mut *self.totals())
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    /// The calls by how they ended.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ANSWERS.into_iter().zip(self.calls)
    }
}
