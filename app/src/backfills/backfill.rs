//! Step 7 of 7: a backfill: which times it selects, and how far it is.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// Which end of the span comes first.
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
    /// The schedule versions of then: a paused span has no due times, nor has one before the schedule.
    #[default]
    Then,
    /// The cron and timezone that the schedule has at the request, whatever was in force in the span.
    Now,
}

/// Which of the times owed are meant.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// Those that were missed; under [`Timing::Now`] also those that a pause skipped.
    #[default]
    Missing,
    /// Those whose last run failed, timed out or was abandoned.
    Failed,
    /// All that were owed, whatever became of them.
    All,
}

/// How far a backfill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BackfillState)]
pub enum State {
    /// It makes runs.
    Running,
    /// It makes none until it is resumed.
    Paused,
    /// Final: somebody gave it up, or its workflow was archived.
    Cancelled,
    /// Final: every run of it has ended.
    Finished,
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The first time that may be meant.
    pub start: DateTime<Utc>,
    /// Every time meant lies before this.
    pub end: DateTime<Utc>,
    /// Which end comes first.
    pub order: Order,
    /// Which times are meant.
    pub only: Only,
    /// Whose due times are selected from.
    pub timing: Timing,
    /// Runs at once.
    pub max_concurrent: i32,
}

/// A backfill.
#[derive(Clone, Debug)]
pub struct Backfill {
    /// Identity.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// What was asked for.
    pub wish: Wish,
    /// The schedule version that selects, under [`Timing::Now`].
    pub timing_revision: Option<i64>,
    /// How far it is.
    pub state: State,
    /// The last time that was looked at.
    pub cursor: Option<DateTime<Utc>>,
    /// Times meant, counted when it was asked for.
    pub total: i64,
    /// Runs made so far.
    pub started: i64,
    /// Of these, those that have not ended.
    pub live: i64,
    /// Those that succeeded.
    pub succeeded: i64,
    /// Who asked.
    pub requested_by: String,
    /// When.
    pub created_on: DateTime<Utc>,
    /// When it last went on.
    pub updated_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
}
