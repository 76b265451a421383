//! The JSON of the Scheduler API, as the AWS SDKs, the AWS CLI, boto3 and Terraform use it.
//!
//! Every field of a request is optional here, so that `validate` can name missing fields as AWS does.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::groups::Group;
use super::store::Schedule;

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

/// The answer of `GetSchedule`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ScheduleView<'a> {
    arn: &'a str,
    group_name: &'a str,
    name: &'a str,
    schedule_expression: &'a str,
    schedule_expression_timezone: &'a str,
    state: &'static str,
    target: &'a TargetBody,
    flexible_time_window: &'a WindowBody,
    action_after_completion: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kms_key_arn: Option<&'a str>,
    #[serde(serialize_with = "epoch_option", skip_serializing_if = "Option::is_none")]
    start_date: Option<DateTime<Utc>>,
    #[serde(serialize_with = "epoch_option", skip_serializing_if = "Option::is_none")]
    end_date: Option<DateTime<Utc>>,
    #[serde(serialize_with = "epoch")]
    creation_date: DateTime<Utc>,
    #[serde(serialize_with = "epoch")]
    last_modification_date: DateTime<Utc>,
}

impl<'a> From<&'a Schedule> for ScheduleView<'a> {
    fn from(schedule: &'a Schedule) -> Self {
        let spec = &schedule.spec;
        ScheduleView {
            arn: &schedule.arn,
            group_name: &schedule.key.group,
            name: &schedule.key.name,
            schedule_expression: &spec.expression_text,
            schedule_expression_timezone: spec.timezone.name(),
            state: spec.state.as_str(),
            target: &spec.target,
            flexible_time_window: &spec.window,
            action_after_completion: spec.completion.as_str(),
            description: spec.description.as_deref(),
            kms_key_arn: spec.kms_key_arn.as_deref(),
            start_date: spec.start_date,
            end_date: spec.end_date,
            creation_date: schedule.created_on,
            last_modification_date: schedule.modified_on,
        }
    }
}

/// One item of `ListSchedules`: AWS returns no expression, timezone or Input here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ScheduleSummary {
    arn: String,
    group_name: String,
    name: String,
    state: &'static str,
    target: TargetSummary,
    #[serde(serialize_with = "epoch")]
    creation_date: DateTime<Utc>,
    #[serde(serialize_with = "epoch")]
    last_modification_date: DateTime<Utc>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TargetSummary {
    arn: Option<String>,
}

impl From<&Schedule> for ScheduleSummary {
    fn from(schedule: &Schedule) -> Self {
        ScheduleSummary {
            arn: schedule.arn.clone(),
            group_name: schedule.key.group.clone(),
            name: schedule.key.name.clone(),
            state: schedule.spec.state.as_str(),
            target: TargetSummary { arn: schedule.spec.target.arn.clone() },
            creation_date: schedule.created_on,
            last_modification_date: schedule.modified_on,
        }
    }
}

/// The answer of `GetScheduleGroup`, and one item of `ListScheduleGroups`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct GroupView {
    arn: String,
    name: String,
    state: &'static str,
    #[serde(serialize_with = "epoch")]
    creation_date: DateTime<Utc>,
    #[serde(serialize_with = "epoch")]
    last_modification_date: DateTime<Utc>,
}

impl GroupView {
    /// A schedule group for a caller of this region.
    pub fn of(group: &Group, region: Option<&str>) -> Self {
        GroupView {
            arn: group.arn_in(region),
            name: group.name.clone(),
            state: if group.deleted_at.is_some() { "DELETING" } else { "ACTIVE" },
            creation_date: group.created_on,
            last_modification_date: group.modified_on,
        }
    }
}

/// A timestamp in AWS's format: epoch seconds, to the millisecond.
fn epoch<S: Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.timestamp_millis() as f64 / 1000.0)
}

fn epoch_option<S: Serializer>(at: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => epoch(at, serializer),
        None => serializer.serialize_none(),
    }
}
