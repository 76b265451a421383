//! Step 7 of 7: the outcome of a fire.

use uuid::Uuid;
use workflows::outbox::OrphanCleanup;

/// The outcome of a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A run was accepted, and waits for an executor.
    Accepted(Uuid),
    /// A run was accepted, and this instance executes it without a claim.
    Started(Uuid),
    /// This time already had this run.
    Duplicate(Uuid),
    /// There is no run, for this reason.
    Declined(Reason),
    /// The workflow is unknown or archived; whether the removal of its orphan was requested.
    Gone(OrphanCleanup),
    /// The time is too far in the future, so a clock is wrong.
    ClockSkew,
    /// The time is late and the database was restored: whether it ran is unknown until the ledger is accepted.
    Held,
}

impl Answer {
    /// The run that this fire began; `None` if it began none.
    #[must_use]
    pub fn new_run(self) -> Option<Uuid> {
        match self {
            Self::Accepted(run) | Self::Started(run) => Some(run),
            _ => None,
        }
    }
}

/// Why a fire starts no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The workflow is paused, or was paused at that time.
    Paused,
    /// The time lies outside `starts_at` to `ends_at`.
    OutsideWindow,
    /// The fire comes from a schedule older than the one in force at its time.
    StaleRevision,
    /// The time was not due.
    NotDue,
    /// The time was not due, and the published expression does not name it: zone data or a clock differ.
    #[serde(rename = "not_due")]
    Disagrees,
    /// Too late to run.
    TooOld,
    /// The time was missed.
    Missed,
    /// The previous run had not ended.
    Overlap,
    /// The time was abandoned.
    Abandoned,
}

impl Reason {
    /// The code in the answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Paused => "paused",
            Reason::OutsideWindow => "outside_window",
            Reason::StaleRevision => "stale_revision",
            Reason::NotDue | Reason::Disagrees => "not_due",
            Reason::TooOld => "too_old",
            Reason::Missed => "missed",
            Reason::Overlap => "overlap",
            Reason::Abandoned => "abandoned",
        }
    }
}
