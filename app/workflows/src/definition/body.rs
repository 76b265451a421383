//! Step 1 of 7: the fields of a workflow in a request.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::definition::field::FieldError;
use crate::definition::policies::{CatchUp, OnLost, Overlap, Policies};

/// A workflow in a request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowBody {
    /// The owner, at creation only: needed with an admin key, else the key's team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<i64>,
    /// Unique in its team among the workflows that are not archived; one line, at most 200 characters.
    pub name: String,
    /// For people; at most 2,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Cron, for example `0 9 * * MON-FRI`; absent = no schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * MON-FRI")]
    pub cron_schedule: Option<String>,
    /// IANA timezone of the cron; absent = UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Paris")]
    pub timezone: Option<String>,
    /// A label: the workflow is also called by API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_api: Option<bool>,
    /// `{"type":"log","message":".."}` or `{"type":"http","method":"POST","url":"..","headers"?,"body"?}`
    #[schema(value_type = Object, example = json!({"type": "log", "message": "hello"}))]
    pub action: Value,
    /// Inputs passed to each run; an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub starting_inputs: Option<Map<String, Value>>,
    /// No time before this one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// What happens to a fire while a previous run has not ended; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<Overlap>,
    /// How many runs may be active at once under `concurrent`, 1 to 100; absent = 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// Which missed times run late; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_policy: Option<CatchUp>,
    /// Seconds. A missed time that is older does not run any more, 60 to 2592000; absent = 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window_secs: Option<i32>,
    /// Seconds. Each run starts later by a fixed part of this span, which the workflow's id determines, 0 to 3600;
    /// absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_secs: Option<i32>,
    /// How many seconds one attempt of a run may take, 1 to 86400; absent = 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<i32>,
    /// How many attempts may fail before the run fails, 1 to 20; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// What happens to a run whose instance was lost; absent = `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lost: Option<OnLost>,
    /// After how many failed runs in a row the workflow is paused, 1 to 1000; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<i32>,
}

impl WorkflowBody {
    /// Validates the policies; an absent one has its default.
    ///
    /// # Errors
    /// Returns the first field that is out of its bounds.
    pub fn policies(&self) -> Result<Policies, FieldError> {
        let usual = Policies::default();
        Ok(Policies {
            overlap: self.overlap_policy.unwrap_or(usual.overlap),
            max_concurrent: within("max_concurrent", self.max_concurrent, usual.max_concurrent, 1, 100)?,
            catch_up: self.catch_up_policy.unwrap_or(usual.catch_up),
            catch_up_window_secs: within(
                "catch_up_window_secs",
                self.catch_up_window_secs,
                usual.catch_up_window_secs,
                60,
                30 * 24 * 60 * 60,
            )?,
            spread_secs: within("spread_secs", self.spread_secs, usual.spread_secs, 0, 3_600)?,
            timeout_secs: within("timeout_secs", self.timeout_secs, usual.timeout_secs, 1, 24 * 60 * 60)?,
            max_attempts: within("max_attempts", self.max_attempts, usual.max_attempts, 1, 20)?,
            on_lost: self.on_lost.unwrap_or(usual.on_lost),
            pause_after_failures: match self.pause_after_failures {
                None => None,
                written => Some(within("pause_after_failures", written, 1, 1, 1_000)?),
            },
        })
    }
}

fn within(field: &str, written: Option<i32>, usual: i32, least: i32, most: i32) -> Result<i32, FieldError> {
    match written.unwrap_or(usual) {
        value if (least..=most).contains(&value) => Ok(value),
        _ => Err(FieldError::invalid(field, format!("{field} must be from {least} to {most}"))),
    }
}
