//! Steps 3 and 4 of 7: the result of one drain, which the Lambda returns and `--once` prints.

use serde::Serialize;

/// The result of one drain; `processed` and `coalesced` count outbox rows, the others count workflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Outbox rows settled as published.
    pub processed: u64,
    /// Rows beyond the first of each workflow: edits that needed no separate call.
    pub coalesced: u64,
    /// Schedules created.
    pub created: u64,
    /// Schedules replaced.
    pub updated: u64,
    /// Schedules deleted, or found to be deleted already.
    pub deleted: u64,
    /// Workflows whose schedule already was as required, so that nothing was written.
    pub unchanged: u64,
    /// Workflows backed off, to be tried again.
    pub retried: u64,
    /// Workflows that failed permanently, until their next edit.
    pub failed: u64,
    /// Workflows due or backed off when the drain ended; up to 100,000 due edits, due repairs and backed-off workflows each.
    pub remaining: u64,
}

impl Report {
    /// Adds another part of the drain; `remaining` is a gauge, so the later value replaces the earlier one.
    pub(crate) fn add_part(&mut self, other: Report) {
        self.processed += other.processed;
        self.coalesced += other.coalesced;
        self.created += other.created;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.unchanged += other.unchanged;
        self.retried += other.retried;
        self.failed += other.failed;
        self.remaining = other.remaining;
    }
}

/// `--once` did not finish within its five minutes.
#[derive(Debug, thiserror::Error)]
#[error(
    "publications were still due after {minutes} minutes: another publisher has leased them, or edits come faster than they are published"
)]
pub struct Unsettled {
    /// The result until then.
    pub report: Report,
    /// How many minutes it tried.
    pub minutes: u64,
}

/// A signal ended `--once`. Workflows that it had claimed and not called can be claimed again.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal while publications were still due")]
pub struct Stopped {
    /// The result until then.
    pub report: Report,
}
