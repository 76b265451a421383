//! Step 7 of 7: the result of verification: how many times it compared, and what differs.

use chrono::{DateTime, Utc};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Cursor;
use crate::occurrences::Decision;

/// How many differences and unverified workflows one answer names.
const DIFFERENCES: usize = 1_000;

/// A span of time, from the first instant to just before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Inclusive.
    pub from: DateTime<Utc>,
    /// Exclusive.
    pub to: DateTime<Utc>,
}

/// Why a span cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is empty.
    Empty,
    /// Times before its end are not decided yet; the latest end that is possible.
    NotSettled(DateTime<Utc>),
    /// Times after its start may be pruned; the earliest start that is possible.
    Pruned(DateTime<Utc>),
    /// The cursor names a position that a comparison of the span never has.
    ForeignCursor,
}

/// How the ledger differs from the schedule, or a decision from its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DifferenceKind)]
pub enum Kind {
    /// The time was due, and no decision is recorded.
    Missing,
    /// A decision is recorded, and the time was not due.
    NotDue,
    /// The decision says that the time ran, and its run does not exist.
    NoRun,
    /// The time has two automatic runs.
    TwoRuns,
    /// The time has an automatic run that no decision names.
    RunWithoutDecision,
    /// Decision and run contradict each other, for example `missed` and a run of the schedule.
    Contradicted,
    /// The decision says that the time ran by the schedule, and a freeze was in force before the decision.
    RanFrozen,
}

impl Kind {
    /// The word of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::NotDue => "not_due",
            other => other.name_before(),
        }
    }

    /// The name in the answers of the previous version.
    #[must_use]
    pub fn name_before(self) -> &'static str {
        match self {
            Kind::Missing => "missing",
            Kind::NotDue => "not_owed",
            Kind::NoRun => "no_run",
            Kind::TwoRuns => "two_runs",
            Kind::RunWithoutDecision => "run_without_decision",
            Kind::Contradicted => "contradicted",
            Kind::RanFrozen => "ran_frozen",
        }
    }
}

/// One time on which schedule, decision and runs disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The workflow.
    pub workflow_id: i64,
    /// The time.
    pub scheduled_time: DateTime<Utc>,
    /// The kind of the difference.
    pub kind: Kind,
    /// The recorded decision, if there is one.
    pub decision: Option<Decision>,
    /// The run that disagrees, or that does not exist.
    pub run_id: Option<Uuid>,
}

/// A schedule version whose due times cannot be computed, because its timezone or cron is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The workflow.
    pub workflow_id: i64,
    /// The schedule version.
    pub revision: i64,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Due times.
    pub due: u64,
    /// Decisions recorded.
    pub decided: u64,
    /// Decisions for which it cannot be computed whether they were due.
    pub unjudged: u64,
    /// The schedule versions of these decisions.
    pub unjudged_workflows: Vec<Unjudged>,
    /// Workflows with times that have no decision, because the watchdog fails to process them.
    pub undecided_workflows: Vec<i64>,
    /// Where schedule, decisions and runs disagree.
    pub differences: Vec<Difference>,
    /// The first instant that was compared; later than the start of the span if a prune happened meanwhile.
    pub compared_from: DateTime<Utc>,
    /// Where the rest begins; `None`: there is no rest.
    pub next: Option<Cursor>,
}

impl Findings {
    pub(super) fn empty_from(from: DateTime<Utc>) -> Self {
        Self {
            due: 0,
            decided: 0,
            unjudged: 0,
            unjudged_workflows: Vec::new(),
            undecided_workflows: Vec::new(),
            differences: Vec::new(),
            compared_from: from,
            next: None,
        }
    }

    pub(super) fn has_room_for(&self, entries: usize) -> bool {
        let unproven = self.unjudged_workflows.len() + self.undecided_workflows.len();
        self.differences.len() + unproven + entries <= DIFFERENCES
    }
}
