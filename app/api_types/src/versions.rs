//! The versions of a schedule.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::workflows::State;

/// A version of a schedule.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct VersionView {
    /// Raised by each change of timing or state; `revision` of an occurrence names it.
    pub revision: i64,
    /// From when it is in force.
    pub valid_from: DateTime<Utc>,
    /// Null while it is in force.
    pub valid_until: Option<DateTime<Utc>>,
    /// Null without a schedule.
    pub cron_schedule: Option<String>,
    /// An IANA name; null = UTC.
    pub timezone: Option<String>,
    /// No time before this is due.
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this is due.
    pub ends_at: Option<DateTime<Utc>>,
    /// Its state.
    pub state: State,
    /// Who made it; null if the audit log does not reach back to it.
    pub actor: Option<String>,
    /// The name of the key.
    pub actor_name: Option<String>,
    /// What was done: `create`, `update`, `schedule`, `pause`, ..
    pub verb: Option<String>,
}
