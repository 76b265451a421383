//! The JSON of the Scheduler API's answers, as the AWS SDKs, the AWS CLI, boto3 and Terraform use it.

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use super::groups::Group;
use super::stored_schedule::Schedule;
use super::wire::{TargetBody, WindowBody};

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
    pub fn in_region(group: &Group, region: Option<&str>) -> Self {
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
