//! Step 7 of 7: a backfill: which times it selects, and its progress.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// Which end of the span runs first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The oldest time first.
    #[default]
    OldestFirst,
    /// The newest time first.
    NewestFirst,
}

/// Whose due times a backfill selects from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BackfillTiming)]
pub enum Timing {
    /// The schedule versions of the span itself: a paused span has no due times, nor has one before the schedule.
    #[default]
    Then,
    /// The cron and timezone that the schedule has at the request, whatever was in force in the span.
    Now,
}

/// Which of the due times are selected.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// Times that were missed; under [`Timing::Now`] also those that a pause skipped.
    #[default]
    Missing,
    /// Times whose last run failed, timed out or was abandoned.
    Failed,
    /// All due times, whatever was decided about them.
    All,
}

/// The state of a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BackfillState)]
pub enum State {
    /// The backfill creates runs.
    Running,
    /// The backfill creates no runs until it is resumed.
    Paused,
    /// Final: an operator cancelled it, or its workflow was archived.
    Cancelled,
    /// Final: every run of it has ended.
    Finished,
}

/// The request for a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillRequest {
    /// The first time that may be selected.
    pub start: DateTime<Utc>,
    /// Every selected time lies before this.
    pub end: DateTime<Utc>,
    /// Which end of the span runs first.
    pub order: Order,
    /// Which due times are selected.
    pub only: Only,
    /// Where the due times come from.
    pub timing: Timing,
    /// How many of its runs may be active at once.
    pub max_concurrent: i32,
}

/// A backfill.
#[derive(Clone, Debug)]
pub struct Backfill {
    /// The id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The request.
    pub request: BackfillRequest,
    /// The schedule version that selects, under [`Timing::Now`].
    pub timing_revision: Option<i64>,
    /// The state.
    pub state: State,
    /// The last time that was evaluated.
    pub cursor: Option<DateTime<Utc>>,
    /// How many times were selected when it was requested.
    pub total: i64,
    /// Runs created so far.
    pub started: i64,
    /// Created runs that have not ended.
    pub live: i64,
    /// Created runs that succeeded.
    pub succeeded: i64,
    /// The actor that requested it.
    pub requested_by: String,
    /// When it was requested.
    pub created_on: DateTime<Utc>,
    /// When it last advanced.
    pub updated_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
}
