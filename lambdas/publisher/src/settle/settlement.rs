//! Step 4 of 7: the outcome of a claim.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use schedule::Revision;

use crate::claim::Claim;
use crate::report::Report;
use crate::scheduler::fault::Effect;

/// A claim and its outcome.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) claim: Claim,
    pub(crate) outcome: Outcome,
    /// When the row requires something else without an edit, if that is in the future; the publisher checks a minute
    /// later.
    pub(crate) changes_on: Option<DateTime<Utc>>,
    /// Whether a verify pass that was due is done.
    pub(crate) is_verified: bool,
    /// Whether a request may still arrive, whatever the outcome.
    pub(crate) is_in_doubt: bool,
    /// If the workflow failed permanently: the hash of what was refused.
    pub(crate) refused_hash: Option<String>,
}

/// The outcome of a claim.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// EventBridge has the required schedule.
    Applied(Applied),
    /// To be tried again after a pause.
    Retry(Setback),
    /// Failed permanently, until the next edit.
    Failed { message: String, effect: Effect },
    /// No call was made: any publisher may try again at once.
    NotCalled,
}

/// What EventBridge has now.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) change: Change,
    pub(crate) revision: Revision,
    pub(crate) spec_hash: String,
    pub(crate) schedule_name: Option<String>,
    pub(crate) template: Option<i32>,
}

/// The change that was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Updated,
    Deleted,
    Unchanged,
}

/// Why, and for how long, a workflow is backed off.
#[derive(Debug)]
pub(crate) struct Setback {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    pub(crate) effect: Effect,
    pub(crate) wait: Duration,
}

/// `publications.error_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Transient,
    Environment,
    Unclassified,
    Permanent,
}

/// Counts the workflows; outbox rows are counted where they are marked.
pub(crate) fn count_outcomes<'a>(settlements: impl Iterator<Item = &'a Settlement>) -> Report {
    let mut report = Report::default();
    for settlement in settlements {
        match &settlement.outcome {
            Outcome::Applied(Applied { change: Change::Created, .. }) => report.created += 1,
            Outcome::Applied(Applied { change: Change::Updated, .. }) => report.updated += 1,
            Outcome::Applied(Applied { change: Change::Deleted, .. }) => report.deleted += 1,
            Outcome::Applied(Applied { change: Change::Unchanged, .. }) => report.unchanged += 1,
            Outcome::Retry(_) => report.retried += 1,
            Outcome::Failed { .. } => report.failed += 1,
            Outcome::NotCalled => {}
        }
    }
    report
}

impl ErrorClass {
    /// The value in the column.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ErrorClass::Transient => "transient",
            ErrorClass::Environment => "environment",
            ErrorClass::Unclassified => "unclassified",
            ErrorClass::Permanent => "permanent",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Created => "created",
            Change::Updated => "updated",
            Change::Deleted => "deleted",
            Change::Unchanged => "unchanged",
        })
    }
}
