//! Step 4 of 7: a schedule as EventBridge has it.

use chrono::{DateTime, Utc};

/// The start and end that are sent to EventBridge, in full minutes, because it ignores the seconds of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dates {
    pub(crate) start: Option<DateTime<Utc>>,
    pub(crate) end: Option<DateTime<Utc>>,
}

/// A schedule in EventBridge; `None` = EventBridge has no value in this field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) expression: Option<String>,
    pub(crate) timezone: Option<String>,
    pub(crate) is_enabled: bool,
    pub(crate) is_punctual: bool,
    /// It is kept after it has ended; otherwise the workflow's next edit would not find it.
    pub(crate) is_kept: bool,
    /// A key with which EventBridge encrypts it: if the key is disabled, the schedule does not fire. The publisher sets
    /// none.
    pub(crate) kms_key_arn: Option<String>,
    pub(crate) dates: Dates,
    pub(crate) description: Option<String>,
    pub(crate) target_arn: Option<String>,
    pub(crate) role_arn: Option<String>,
    pub(crate) dlq_arn: Option<String>,
    pub(crate) retries: Option<(i32, i32)>,
    pub(crate) input: Option<String>,
    pub(crate) modified_on: Option<DateTime<Utc>>,
}
