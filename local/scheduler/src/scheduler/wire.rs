//! The JSON of the requests to the Scheduler API, as the AWS SDKs, the AWS CLI, boto3 and Terraform write it.
//!
//! Every field of a request is optional here, so that `validate` can name missing fields as AWS does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The body of `CreateSchedule` and `UpdateSchedule`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PutSchedule {
    /// The schedule group; absent: `default`
    pub group_name: Option<String>,
    /// `cron(...)`, `at(...)` or `rate(...)`
    pub schedule_expression: Option<String>,
    /// IANA name; absent: UTC
    pub schedule_expression_timezone: Option<String>,
    /// Epoch seconds
    pub start_date: Option<f64>,
    /// Epoch seconds
    pub end_date: Option<f64>,
    /// Free text
    pub description: Option<String>,
    /// ENABLED or DISABLED; absent: ENABLED
    pub state: Option<String>,
    /// The customer's key, stored but not used
    pub kms_key_arn: Option<String>,
    /// What it invokes
    pub target: Option<TargetBody>,
    /// OFF, or how late a fire may be
    pub flexible_time_window: Option<WindowBody>,
    /// Makes a repeated create idempotent
    pub client_token: Option<String>,
    /// NONE or DELETE; absent: NONE
    pub action_after_completion: Option<String>,
}

/// `FlexibleTimeWindow`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct WindowBody {
    /// OFF or FLEXIBLE
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// 1 to 1440 minutes, with FLEXIBLE
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_window_in_minutes: Option<i64>,
}

/// `Target`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TargetBody {
    /// The function
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arn: Option<String>,
    /// The role that may invoke the target
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
    /// The payload, with context attributes
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// How long and how often the invoke is tried
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    /// The queue for an invoke that failed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_config: Option<DeadLetterConfig>,
    /// The parameters of targets that are not functions: stored and returned, never used
    #[serde(flatten)]
    pub parameters: BTreeMap<String, Value>,
}

/// `Target.RetryPolicy`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RetryPolicy {
    /// 60 to 86400 s
    pub maximum_event_age_in_seconds: Option<i64>,
    /// 0 to 185
    pub maximum_retry_attempts: Option<i64>,
}

/// `Target.DeadLetterConfig`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeadLetterConfig {
    /// A standard SQS queue
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arn: Option<String>,
}

/// The body of `CreateScheduleGroup`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PutGroup {
    /// The tags
    #[serde(default)]
    pub tags: Vec<Tag>,
    /// Makes a repeated create idempotent
    pub client_token: Option<String>,
}

/// One tag of a schedule group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tag {
    /// 1 to 128 characters
    pub key: String,
    /// 1 to 256 characters
    pub value: String,
}

/// The body of `TagResource` and of `ListTagsForResource`'s answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tags {
    /// The tags
    pub tags: Vec<Tag>,
}
