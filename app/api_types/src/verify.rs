//! How schedule, decisions and runs compare.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::occurrences::Decision;

/// How schedule, decisions and runs compare.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct VerifyView {
    /// The first time of the span.
    pub from: DateTime<Utc>,
    /// The end of the span, exclusive.
    pub to: DateTime<Utc>,
    /// Due times, in this part.
    pub due: u64,
    /// The same as `due`, which replaces it in the next version.
    #[schema(deprecated)]
    pub owed: u64,
    /// Decisions recorded, in this part.
    pub decided: u64,
    /// Decisions of schedules whose timezone or cron is unknown, so that their due times cannot be computed.
    pub unjudged: u64,
    /// Newest version of the IANA database here. Each time is computed by the version that was in force at it.
    #[schema(example = "2026f")]
    pub zone_data: String,
    /// Workflows that are not verified, because the due times of a schedule version cannot be computed.
    pub unjudged_workflows: Vec<UnjudgedView>,
    /// Workflows that are not verified, because the watchdog fails to process them: some of their times have no
    /// decision yet.
    pub undecided_workflows: Vec<i64>,
    /// Empty: the ledger is correct. Together with the workflows that are not verified at most 1,000 entries.
    pub differences: Vec<DifferenceView>,
    /// Times before this were pruned during the verification and are left out; usually `from`.
    pub compared_from: DateTime<Utc>,
    /// Send it as `cursor` for the rest; null: the complete span is compared.
    pub next_cursor: Option<String>,
}

/// A time on which schedule, decision and runs disagree.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DifferenceView {
    /// The workflow.
    pub workflow_id: i64,
    /// The time that the schedule named; null: no schedule fired it.
    pub scheduled_time: DateTime<Utc>,
    /// The kind, by the names of the previous version: `not_owed` instead of `not_due`. The next version has the value
    /// of `kind_code` here.
    #[schema(deprecated, example = "missing")]
    pub kind: String,
    /// `missing`: the time was due and has no decision; `not_due`: it has a decision and was not due; `no_run`: the
    /// decision says that it ran, and its run does not exist; `two_runs`: it has two automatic runs;
    /// `run_without_decision`: no decision names its automatic run; `contradicted`: decision and run contradict each
    /// other; `ran_frozen`: it ran by the schedule although a freeze was in force.
    pub kind_code: DifferenceKind,
    /// What was decided.
    pub decision: Option<Decision>,
    /// The run that disagrees, or that does not exist; null for `missing` and `not_due`.
    pub run_id: Option<Uuid>,
}

/// A schedule version whose due times cannot be computed: its timezone or cron is unknown.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct UnjudgedView {
    /// The workflow.
    pub workflow_id: i64,
    /// The revision.
    pub revision: i64,
}

/// The daily verifications.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct VerifiedDaysView {
    /// The newest first. A day that is not listed was not verified.
    pub items: Vec<VerifiedDayView>,
}

/// What the verification of a day (UTC) has found.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct VerifiedDayView {
    /// The day.
    pub day: NaiveDate,
    /// Due times compared.
    pub due: i64,
    /// Decisions compared.
    pub decided: i64,
    /// Times on which schedule, decision and runs disagree; `GET /verify` with the span of the day names them.
    pub differences: i64,
    /// Workflows that could not be verified: above 0 the day is not proven.
    pub unproven: i64,
    /// When it began.
    pub started_on: DateTime<Utc>,
    /// When it ended; null: parts of the day are not compared yet.
    pub finished_on: Option<DateTime<Utc>>,
}

/// How the ledger differs from the schedule, or a decision from its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
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
