//! Step 1 of 7: the schedule of a workflow, which a client may write separately.
//!
//! A schedule has no row of its own: it is the timing of a workflow with a cron. So a write of a schedule is an edit of
//! the workflow by [`crate::save`], with the workflow's version and ETag.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::definition::body::WorkflowBody;
use crate::definition::field::{self, FieldError};
use crate::definition::patch::{self, PatchKind};
use crate::definition::policies::{CatchUp, Overlap};
use crate::definition::spec::{self, Bounds, Spec};

/// A schedule in a request; in a PUT an absent field takes its default.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleBody {
    /// Cron, for example `0 9 * * MON-FRI`.
    #[schema(example = "0 9 * * MON-FRI")]
    pub cron_schedule: String,
    /// IANA timezone of the cron; absent = UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Paris")]
    pub timezone: Option<String>,
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
    /// After how many failed runs in a row the workflow is paused, 1 to 1000; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<i32>,
}

impl ScheduleBody {
    /// Returns the workflow with this schedule and otherwise unchanged.
    ///
    /// # Errors
    /// Returns the first field that is not valid.
    pub fn onto(self, existing: &Spec, bounds: &Bounds) -> Result<Spec, FieldError> {
        let body = WorkflowBody {
            cron_schedule: Some(self.cron_schedule),
            timezone: self.timezone,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            overlap_policy: self.overlap_policy,
            max_concurrent: self.max_concurrent,
            catch_up_policy: self.catch_up_policy,
            catch_up_window_secs: self.catch_up_window_secs,
            spread_secs: self.spread_secs,
            pause_after_failures: self.pause_after_failures,
            ..existing.to_body()
        };
        Spec::new(body, Some(existing), bounds)
    }

    /// Returns the body that would write a workflow's schedule again; `None` without a cron.
    #[must_use]
    pub fn of(spec: &Spec) -> Option<Self> {
        let policies = &spec.policies;
        Some(Self {
            cron_schedule: spec.timing.cron.clone()?,
            timezone: spec.timing.timezone.clone(),
            starts_at: spec.timing.starts_at,
            ends_at: spec.timing.ends_at,
            overlap_policy: Some(policies.overlap),
            max_concurrent: Some(policies.max_concurrent),
            catch_up_policy: Some(policies.catch_up),
            catch_up_window_secs: Some(policies.catch_up_window_secs),
            spread_secs: Some(policies.spread_secs),
            pause_after_failures: policies.pause_after_failures,
        })
    }

    /// Returns the schedule after a patch.
    ///
    /// # Errors
    /// Returns the field that the patch makes invalid.
    pub fn patched(&self, patch: Map<String, Value>, kind: PatchKind) -> Result<Self, FieldError> {
        let current = serde_json::to_value(self)
            .map_err(|error| FieldError::invalid("", format!("the stored schedule cannot be patched: {error}")))?;
        field::read("", patch::apply(current, patch, kind))
    }
}

/// Returns the workflow without a schedule; its policies do not change.
#[must_use]
pub fn cleared(current: &Spec) -> Spec {
    let timing = spec::Timing { cron: None, ..current.timing.clone() };
    Spec { timing, ..current.clone() }
}
