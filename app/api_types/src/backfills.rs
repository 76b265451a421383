//! Backfills.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A backfill.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct BackfillView {
    /// Its id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The first time that may be selected.
    pub start: DateTime<Utc>,
    /// Every selected time lies before this.
    pub end: DateTime<Utc>,
    /// Which end of the span runs first.
    pub order: Order,
    /// Which of the due times are selected.
    pub only: Only,
    /// Whose due times it selects from.
    pub timing: BackfillTiming,
    /// How many of its runs may be active at once.
    pub max_concurrent: i32,
    /// Its state.
    pub state: BackfillState,
    /// How many times were selected when the backfill was requested; at most 10,000.
    pub total: i64,
    /// How many runs were created so far; fewer than `total` in the end if other runs were created for some of the
    /// times.
    pub started: i64,
    /// How many of these runs have not ended.
    pub live: i64,
    /// How many of these runs succeeded.
    pub succeeded: i64,
    /// How many ended otherwise: failed, timed out, cancelled or abandoned.
    pub failed: i64,
    /// Prefix of the key that requested the backfill.
    pub requested_by: String,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
    /// When it ended; null: it has not.
    pub finished_on: Option<DateTime<Utc>>,
}

/// What a backfill would do.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DryRunView {
    /// How many times it would run.
    pub total: usize,
    /// The first of these times in its order, at most 100.
    pub times: Vec<DateTime<Utc>>,
}

/// Which end of the span runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The oldest time first.
    OldestFirst,
    /// The newest time first.
    NewestFirst,
}

/// Whose due times a backfill selects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackfillTiming {
    /// The schedule versions of the span itself: a paused span has no due times, nor has one before the schedule.
    Then,
    /// The cron and timezone that the schedule has at the request, whatever was in force in the span.
    Now,
}

/// Which of the due times are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// Times that were missed; under `now` also those that a pause skipped.
    Missing,
    /// Times whose last run failed, timed out or was abandoned.
    Failed,
    /// All due times, whatever was decided about them.
    All,
}

/// The state of a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackfillState {
    /// The backfill creates runs.
    Running,
    /// The backfill creates no runs until it is resumed.
    Paused,
    /// Final: an operator cancelled it, or its workflow was archived.
    Cancelled,
    /// Final: every run of it has ended.
    Finished,
}
