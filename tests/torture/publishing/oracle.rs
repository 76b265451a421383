//! The oracle: computes the expected schedules only from the committed edits. It shares no code with the product.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

/// The crons of the histories, each with its EventBridge expression.
pub(crate) const CRONS: [(&str, &str); 5] = [
    ("0 9 * * *", "cron(0 9 * * ? *)"),
    ("15 10 * * 1-5", "cron(15 10 ? * MON-FRI *)"),
    ("45 23 1 * *", "cron(45 23 1 * ? *)"),
    ("5 4 * * 0", "cron(5 4 ? * SUN *)"),
    ("30 18 * * *", "cron(30 18 * * ? *)"),
];

/// A cron for windows, with a due time before most ends. It excludes an hour, because otherwise it is published in UTC.
pub(crate) const EVERY_MINUTE: (&str, &str) = ("* 0-22 * * *", "cron(* 0-22 * * ? *)");

/// The description of each schedule, with the identity of the database that published it.
pub(crate) const DESCRIPTION: &str = "cronbox 00000000-0000-4000-8000-000000000001";

pub(crate) const TIMEZONES: [&str; 3] = ["UTC", "Europe/Paris", "America/New_York"];

/// The last committed state of each workflow that ever existed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle(BTreeMap<i64, Committed>);

/// A workflow's last committed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) cron: Option<String>,
    pub(crate) timezone: Option<String>,
    /// `active`, `paused`, `archived` or `deleted`
    pub(crate) state: &'static str,
    pub(crate) starts_at: Option<DateTime<Utc>>,
    pub(crate) ends_at: Option<DateTime<Utc>>,
}

impl Oracle {
    pub(crate) fn commit(&mut self, workflow: i64, committed: Committed) {
        self.0.insert(workflow, committed);
    }

    /// Workflows that were not deleted.
    pub(crate) fn alive(&self) -> Vec<i64> {
        self.0.iter().filter(|(_, committed)| committed.state != "deleted").map(|(id, _)| *id).collect()
    }

    pub(crate) fn ever(&self) -> Vec<i64> {
        self.0.keys().copied().collect()
    }

    /// The differences between `existing`, by name, and the expected schedules at `now`: all fields of all schedules,
    /// and orphans.
    pub(crate) fn differences(&self, existing: &BTreeMap<String, Value>, now: DateTime<Utc>) -> Vec<String> {
        let wanted: BTreeMap<String, Value> = self
            .0
            .iter()
            .filter_map(|(id, committed)| Some((format!("wf-{id}-dev"), committed.schedule(*id, now)?)))
            .collect();
        let names: BTreeSet<&String> = wanted.keys().chain(existing.keys()).collect();
        names
            .into_iter()
            .filter(|name| wanted.get(*name) != existing.get(*name))
            .map(|name| match (wanted.get(name), existing.get(name)) {
                (Some(wanted), None) => format!("{name} is missing: {wanted}"),
                (None, Some(orphan)) => format!("{name} is an orphan: {orphan}"),
                (wanted, existing) => format!("{name} is {existing:?}, not {wanted:?}"),
            })
            .collect()
    }
}

impl Committed {
    fn schedule(&self, id: i64, now: DateTime<Utc>) -> Option<Value> {
        if self.state == "archived" || self.state == "deleted" || self.ends_at.is_some_and(|end| end <= now) {
            return None;
        }
        let cron = self.cron.as_ref()?;
        let (_, expression) = CRONS.iter().chain([&EVERY_MINUTE]).find(|(known, _)| known == cron).unwrap();
        let mut schedule = json!({
            "GroupName": "cronbox-test",
            "Name": format!("wf-{id}-dev"),
            "ScheduleExpression": expression,
            "ScheduleExpressionTimezone": self.timezone.as_deref().unwrap_or("UTC"),
            "State": if self.state == "paused" { "DISABLED" } else { "ENABLED" },
            "Description": DESCRIPTION,
            "FlexibleTimeWindow": { "Mode": "OFF" },
            "ActionAfterCompletion": "NONE",
            "Target": {
                "Arn": "arn:aws:lambda:us-east-1:123456789012:function:runner",
                "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
                "DeadLetterConfig": { "Arn": "arn:aws:sqs:us-east-1:123456789012:schedules-dlq" },
                "RetryPolicy": { "MaximumEventAgeInSeconds": 1800, "MaximumRetryAttempts": 5 },
                "Input": {
                    "workflow_id": id,
                    "scheduled_time": "<aws.scheduler.scheduled-time>",
                    "execution_id": "<aws.scheduler.execution-id>",
                    "attempt": "<aws.scheduler.attempt-number>",
                    "schedule_arn": "<aws.scheduler.schedule-arn>",
                },
            },
        });
        // In whole minutes. The start is one minute early, and is left out after it has passed.
        let start = self.starts_at.map(|at| (at.timestamp() - 60).div_euclid(60) * 60);
        if let Some(start) = start.filter(|start| *start > now.timestamp()) {
            schedule["StartDate"] = json!(start);
        }
        if let Some(end) = self.ends_at {
            schedule["EndDate"] = json!((end.timestamp() + 59).div_euclid(60) * 60);
        }
        Some(schedule)
    }
}

/// A schedule in the stand-in, without the fields that the stand-in adds or that may differ between equal schedules.
pub(crate) fn plain(mut schedule: Value, now: DateTime<Utc>) -> (String, Value) {
    let fields = schedule.as_object_mut().unwrap();
    for date in ["StartDate", "EndDate"] {
        // Whole seconds, so that 1.0 and 1 are equal.
        if let Some(at) = fields.get(date).and_then(Value::as_f64) {
            #[expect(clippy::cast_possible_truncation, reason = "seconds of this century")]
            fields.insert(date.to_owned(), json!(at as i64));
        }
    }
    fields.retain(|field, at| field != "StartDate" || at.as_i64() > Some(now.timestamp()));
    for added in ["Arn", "CreationDate", "LastModificationDate"] {
        fields.remove(added);
    }
    let input = &mut fields["Target"]["Input"];
    let mut read: Value = serde_json::from_str(input.as_str().unwrap_or_default()).unwrap_or_default();
    if let Some(read) = read.as_object_mut() {
        for varying in ["revision", "template", "traceparent"] {
            read.remove(varying);
        }
    }
    *input = read;
    (fields["Name"].as_str().unwrap_or_default().to_owned(), schedule)
}
