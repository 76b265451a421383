//! Steps 1 and 7 of 7: how a workflow handles missed times, overlapping runs, and runs that fail or are lost. An edit
//! sets the policies, and the ledger applies them.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::definition::field::FieldError;

/// What happens to a fire while a previous run has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is not run, and the ledger records it as skipped.
    Skip,
    /// It waits, behind at most 99 other runs.
    Queue,
    /// It waits, if no run waits yet.
    QueueOne,
    /// It cancels the previous run, and runs after that has ended.
    Replace,
    /// It runs concurrently, up to `max_concurrent`.
    Concurrent,
}

/// Which missed times run late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// None.
    None,
    /// Only the newest.
    Skip,
    /// All, the oldest first.
    RunAll,
}

/// What happens to a run whose instance was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// The same run continues, under the same id.
    Retry,
    /// It is abandoned.
    Abandon,
}

/// A workflow's policies, each within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// What happens to a fire while a previous run has not ended.
    pub overlap: Overlap,
    /// How many runs may be active at once under `concurrent`.
    pub max_concurrent: i32,
    /// Which missed times run late.
    pub catch_up: CatchUp,
    /// Seconds. A missed time that is older does not run any more.
    pub catch_up_window_secs: i32,
    /// Seconds. Each run starts later by a fixed part of this span, which the workflow's id determines.
    pub spread_secs: i32,
    /// How many seconds one attempt of a run may take.
    pub timeout_secs: i32,
    /// How many attempts may fail before the run fails.
    pub max_attempts: i32,
    /// What happens to a run whose instance was lost.
    pub on_lost: OnLost,
    /// After how many failed runs in a row the workflow is paused; `None` = never.
    pub pause_after_failures: Option<i32>,
}

impl Policies {
    /// The policies of a workflow whose client wrote none.
    pub const DEFAULT: Self = Self {
        overlap: Overlap::Skip,
        max_concurrent: 10,
        catch_up: CatchUp::Skip,
        catch_up_window_secs: 24 * 60 * 60,
        spread_secs: 0,
        timeout_secs: 300,
        max_attempts: 1,
        on_lost: OnLost::Retry,
        pause_after_failures: None,
    };

    /// Refuses a catch-up window longer than the ledger keeps its rows, because a pruned time could run again.
    ///
    /// # Errors
    /// Returns `invalid_field` with the longest window that is allowed.
    pub fn check_window(&self, retention: TimeDelta) -> Result<(), FieldError> {
        if i64::from(self.catch_up_window_secs) <= retention.num_seconds() {
            return Ok(());
        }
        let detail = format!(
            "catch_up_window_secs must be at most {}: occurrences are kept for {} days",
            retention.num_seconds(),
            retention.num_days()
        );
        Err(FieldError::invalid("catch_up_window_secs", detail))
    }
}
