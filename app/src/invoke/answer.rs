//! Step 7 of 7: what a fire leads to.

use uuid::Uuid;

use crate::outbox::Healing;

/// What a fire led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A run was accepted.
    Accepted(Uuid),
    /// This time already had this run.
    Duplicate(Uuid),
    /// No run, for this reason.
    Declined(Reason),
    /// The workflow is unknown or archived; whether its orphan is being removed.
    Gone(Healing),
    /// The time is too far in the future: somebody's clock is wrong.
    ClockSkew,
    /// The time is late and the database was restored: whether it ran is unknown until the ledger is accepted.
    Held,
}

/// Why a fire led to no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The workflow is paused, or was at that time.
    Paused,
    /// The time lies outside `starts_at` to `ends_at`.
    OutsideWindow,
    /// The fire is of a schedule older than the one in force at its time.
    StaleRevision,
    /// The schedule did not owe this time.
    NotDue,
    /// The same, and the published expression does not name this time: zone data or a clock differ.
    #[serde(rename = "not_due")]
    Disagrees,
    /// Too late to run.
    TooOld,
    /// The time had been missed.
    Missed,
    /// The run before it had not ended.
    Overlap,
    /// The time had been given up.
    Abandoned,
}

impl Reason {
    /// The word in the answer.
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
