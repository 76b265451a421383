//! Step 1 of 7: the timing facet of a workflow, as a client writes it alone.
//!
//! A schedule is no row of its own: it is what a workflow with a cron says about its times. So a
//! write of it is an edit of the workflow, by [`crate::workflows::save`], with its version and its ETag.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::field::{self, FieldError};
use crate::patch::{self, PatchKind};
use crate::policies::{CatchUp, Overlap};
use crate::spec::{self, Bounds, Spec, WorkflowBody};

/// A schedule as a client writes it; in a PUT an absent field takes its default.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleBody {
    /// Cron, e.g. `0 9 * * MON-FRI`.
    #[schema(example = "0 9 * * MON-FRI")]
    pub cron_schedule: String,
    /// IANA timezone in which the cron is read; absent = UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Paris")]
    pub timezone: Option<String>,
    /// Owes nothing before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime<Utc>>,
    /// Owes nothing at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// What a fire does while a run before it has not ended; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<Overlap>,
    /// Runs at once under `concurrent`, 1 to 100; absent = 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// Which missed times run late; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_policy: Option<CatchUp>,
    /// A missed time older than these seconds does not run any more, 60 to 2592000; absent = 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window_secs: Option<i32>,
    /// Execution waits a fixed share of these seconds, 0 to 3600; absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_secs: Option<i32>,
    /// Failed runs in a row that pause the workflow, 1 to 1000; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<i32>,
}

impl ScheduleBody {
    /// The workflow that has this schedule and stays as it is otherwise.
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

    /// The body that would write a workflow's schedule again; none without a cron.
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

    /// The schedule after a patch.
    ///
    /// # Errors
    /// Returns the field that the patch makes invalid.
    pub fn patched(&self, patch: Map<String, Value>, kind: PatchKind) -> Result<Self, FieldError> {
        let standing = serde_json::to_value(self)
            .map_err(|error| FieldError::invalid("", format!("the stored schedule cannot be patched: {error}")))?;
        field::read("", patch::apply(standing, patch, kind))
    }
}

/// The workflow without a schedule; its policies stand until somebody writes others.
#[must_use]
pub fn cleared(standing: &Spec) -> Spec {
    let timing = spec::Timing { cron: None, ..standing.timing.clone() };
    Spec { timing, ..standing.clone() }
}
