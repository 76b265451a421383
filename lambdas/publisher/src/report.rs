//! Steps 3 and 4 of 7: what one drain did, returned by the Lambda and printed by `--once`.

use serde::Serialize;

/// What one drain did; `processed` and `coalesced` count outbox rows, the others workflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Outbox rows settled as published.
    pub processed: u64,
    /// Rows beyond the first of each workflow: edits that cost no call of their own.
    pub coalesced: u64,
    /// Schedules created.
    pub created: u64,
    /// Schedules replaced.
    pub updated: u64,
    /// Schedules deleted, or found to be gone.
    pub deleted: u64,
    /// Workflows whose schedule already stood as wanted: no write.
    pub unchanged: u64,
    /// Workflows backed off, to be tried again.
    pub retried: u64,
    /// Workflows given up until their next edit.
    pub failed: u64,
    /// Workflows due or backed off when the drain ended.
    pub remaining: u64,
}

impl Report {
    /// Adds what another part of the drain did; `remaining` is a level, so the later one stands.
    pub(crate) fn add(&mut self, other: Report) {
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

/// `--once` ran out of its five minutes; what it did until then.
#[derive(Debug, thiserror::Error)]
#[error(
    "work was still due after {minutes} minutes: another publisher holds it, or edits come faster than they are published"
)]
pub struct Unsettled {
    /// What was done.
    pub report: Report,
    /// How long it tried.
    pub minutes: u64,
}

/// `--once` was ended by a signal; what it did until then. What it had claimed and not called is free.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal while work was still due")]
pub struct Stopped {
    /// What was done.
    pub report: Report,
}
