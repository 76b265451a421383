//! Steps 1 and 7 of 7: what a workflow does with times that were missed, runs that overlap, and runs
//! that fail or are lost. Written with the workflow, judged by the ledger.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::field::FieldError;
use crate::spec::WorkflowBody;

/// What a fire does while a run before it has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is not run; the ledger says so.
    #[default]
    Skip,
    /// It waits, behind at most 99 others.
    Queue,
    /// It waits, if nobody waits yet.
    QueueOne,
    /// It cancels the run before it, and runs once that has ended.
    Replace,
    /// It runs beside it, up to `max_concurrent`.
    Concurrent,
}

/// Which missed times run late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// None.
    None,
    /// The newest alone.
    #[default]
    Skip,
    /// All, the oldest first.
    RunAll,
}

/// What becomes of a run whose instance died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// The same run goes on, under the same id.
    #[default]
    Retry,
    /// It is given up.
    Abandon,
}

/// A workflow's policies, each within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// What a fire does while a run before it has not ended.
    pub overlap: Overlap,
    /// Runs at once under `concurrent`.
    pub max_concurrent: i32,
    /// Which missed times run late.
    pub catch_up: CatchUp,
    /// A missed time older than these seconds does not run any more.
    pub catch_up_window_secs: i32,
    /// Execution waits a fixed share of these seconds, by the workflow's id.
    pub spread_secs: i32,
    /// How many seconds one attempt of a run may take.
    pub timeout_secs: i32,
    /// Answers that may fail before a run has failed.
    pub max_attempts: i32,
    /// What becomes of a run whose instance died.
    pub on_lost: OnLost,
    /// Failed runs in a row that pause the workflow, none = never.
    pub pause_after_failures: Option<i32>,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            overlap: Overlap::default(),
            max_concurrent: 10,
            catch_up: CatchUp::default(),
            catch_up_window_secs: 24 * 60 * 60,
            spread_secs: 0,
            timeout_secs: 300,
            max_attempts: 1,
            on_lost: OnLost::default(),
            pause_after_failures: None,
        }
    }
}

impl Policies {
    /// Reads what a client wrote.
    ///
    /// # Errors
    /// Returns the first field that is out of its bounds.
    pub fn new(body: &WorkflowBody) -> Result<Self, FieldError> {
        let usual = Self::default();
        Ok(Self {
            overlap: body.overlap_policy.unwrap_or(usual.overlap),
            max_concurrent: within("max_concurrent", body.max_concurrent, usual.max_concurrent, 1, 100)?,
            catch_up: body.catch_up_policy.unwrap_or(usual.catch_up),
            catch_up_window_secs: within(
                "catch_up_window_secs",
                body.catch_up_window_secs,
                usual.catch_up_window_secs,
                60,
                30 * 24 * 60 * 60,
            )?,
            spread_secs: within("spread_secs", body.spread_secs, usual.spread_secs, 0, 3_600)?,
            timeout_secs: within("timeout_secs", body.timeout_secs, usual.timeout_secs, 1, 24 * 60 * 60)?,
            max_attempts: within("max_attempts", body.max_attempts, usual.max_attempts, 1, 20)?,
            on_lost: body.on_lost.unwrap_or(usual.on_lost),
            pause_after_failures: match body.pause_after_failures {
                None => None,
                written => Some(within("pause_after_failures", written, 1, 1, 1_000)?),
            },
        })
    }

    /// Refuses a catch-up window that reaches behind what the ledger keeps: a pruned time could run again.
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

fn within(field: &str, written: Option<i32>, usual: i32, least: i32, most: i32) -> Result<i32, FieldError> {
    match written.unwrap_or(usual) {
        value if (least..=most).contains(&value) => Ok(value),
        _ => Err(FieldError::invalid(field, format!("{field} must be from {least} to {most}"))),
    }
}
