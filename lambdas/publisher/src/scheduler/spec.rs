//! Step 4 of 7: a schedule as it is sent to EventBridge, and whether EventBridge has it.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Revision, ScheduleName, WorkflowId};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::scheduler::existing::{Dates, Existing};
use crate::scheduler::identity::Identity;

/// The version of the shape below. Raise it when the shape changes, so that all schedules are published again.
pub(crate) const TEMPLATE: i32 = 1;
/// After this many seconds EventBridge drops a fire; soon after, the app would refuse it as too old.
pub(crate) const MAX_AGE_SECS: i32 = 1800;
/// How often EventBridge retries the invocation of the runner.
pub(crate) const MAX_RETRIES: i32 = 5;

/// One schedule with all of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: ScheduleName,
    pub(crate) group: String,
    pub(crate) state: State,
    pub(crate) expression: String,
    pub(crate) timezone: String,
    pub(crate) starts_at: Option<DateTime<Utc>>,
    pub(crate) ends_at: Option<DateTime<Utc>>,
    pub(crate) target_arn: String,
    pub(crate) role_arn: String,
    pub(crate) dlq_arn: String,
    pub(crate) input: Input,
    /// Part of the description, which contains no text of a team, because another team may see it in the AWS console.
    pub(crate) identity: Identity,
}

/// Whether EventBridge fires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    Enabled,
    Disabled,
}

/// The payload for the runner; EventBridge replaces the `<aws.scheduler.*>` texts at each fire.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Input {
    workflow_id: WorkflowId,
    scheduled_time: &'static str,
    execution_id: &'static str,
    attempt: &'static str,
    schedule_arn: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    template: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

impl Input {
    pub(crate) fn new(workflow_id: WorkflowId, revision: Revision, traceparent: Option<&str>) -> Self {
        Input {
            workflow_id,
            scheduled_time: "<aws.scheduler.scheduled-time>",
            execution_id: "<aws.scheduler.execution-id>",
            attempt: "<aws.scheduler.attempt-number>",
            schedule_arn: "<aws.scheduler.schedule-arn>",
            revision: Some(revision),
            template: TEMPLATE,
            traceparent: traceparent.map(str::to_owned),
        }
    }

    /// Returns the JSON for EventBridge. `<` and `>` must not be escaped, or EventBridge replaces nothing.
    pub(crate) fn to_json(&self) -> String {
        // Unwrap safety: strings and numbers always serialise.
        serde_json::to_string(self).expect("strings and numbers serialise")
    }

    /// Returns what must be equal: not the revision and the trace, because of which no schedule is published again.
    fn essence(&self) -> Essence {
        let Input { workflow_id, scheduled_time, execution_id, attempt, schedule_arn, template, .. } = *self;
        Essence { attempt, execution_id, schedule_arn, scheduled_time, template, workflow_id }
    }
}

/// The part of the payload by which schedules are compared.
#[derive(Serialize)]
struct Essence {
    attempt: &'static str,
    execution_id: &'static str,
    schedule_arn: &'static str,
    scheduled_time: &'static str,
    template: i32,
    workflow_id: WorkflowId,
}

/// What the hash of a schedule covers. All fields are in alphabetical order, because the hashes that are stored are of
/// JSON in this order: another order would publish each schedule again.
#[derive(Serialize)]
struct Hashed<'a> {
    after_completion: &'static str,
    description: String,
    dlq_arn: &'a str,
    ends_at: Option<DateTime<Utc>>,
    expression: &'a str,
    group: &'a str,
    input: Essence,
    name: String,
    retries: [i32; 2],
    role_arn: &'a str,
    starts_at: Option<DateTime<Utc>>,
    state: State,
    target_arn: &'a str,
    template: i32,
    timezone: &'a str,
    window: &'static str,
}

impl Spec {
    /// Returns the dates to send: EventBridge refuses a start in the past, and without it the meaning is the same.
    pub(crate) fn sent_dates(&self, now: DateTime<Utc>) -> Dates {
        Dates { start: self.start().filter(|start| *start > now), end: self.end() }
    }

    /// Whether what was sent at `then` would be sent differently at `now`, or not at all.
    pub(crate) fn is_outdated(&self, then: DateTime<Utc>, now: DateTime<Utc>) -> bool {
        self.sent_dates(then) != self.sent_dates(now) || self.ends_at.is_some_and(|end| end <= now)
    }

    /// A minute early, because EventBridge may drop the fire of the start's own minute. The app refuses an early fire.
    fn start(&self) -> Option<DateTime<Utc>> {
        self.starts_at.and_then(|at| minute_of(at - TimeDelta::minutes(1)))
    }

    /// Rounded up to the minute, so that the last fire before it is not lost.
    fn end(&self) -> Option<DateTime<Utc>> {
        self.ends_at.and_then(minute_not_before)
    }

    /// Returns a hash of everything that is sent except the revision and the trace. It contains the start as stored: a
    /// start that has passed is not sent any more, but that needs no call.
    pub(crate) fn spec_hash(&self) -> String {
        let Spec {
            name,
            group,
            state,
            expression,
            timezone,
            starts_at,
            ends_at,
            target_arn,
            role_arn,
            dlq_arn,
            input,
            identity,
        } = self;
        let hashed = Hashed {
            after_completion: "NONE",
            description: identity.to_description(),
            dlq_arn,
            ends_at: *ends_at,
            expression,
            group,
            input: input.essence(),
            name: name.to_string(),
            retries: [MAX_AGE_SECS, MAX_RETRIES],
            role_arn,
            starts_at: *starts_at,
            state: *state,
            target_arn,
            template: TEMPLATE,
            timezone,
            window: "OFF",
        };
        // Unwrap safety: strings, numbers and times always serialise.
        let sent = serde_json::to_vec(&hashed).expect("strings, numbers and times serialise");
        const_hex::encode(Sha256::digest(sent))
    }

    /// Whether EventBridge has exactly this schedule.
    pub(crate) fn matches_existing(&self, existing: &Existing, now: DateTime<Utc>) -> bool {
        let Existing {
            expression: _,
            timezone: _,
            dates: _,
            is_enabled,
            is_punctual,
            is_kept,
            kms_key_arn,
            description,
            target_arn,
            role_arn,
            dlq_arn,
            retries,
            input,
            modified_on: _,
        } = existing;
        self.has_times_of(existing, now)
            && *is_enabled == (self.state == State::Enabled)
            && *is_punctual
            && *is_kept
            && kms_key_arn.is_none()
            && description.as_deref() == Some(self.identity.to_description().as_str())
            && target_arn.as_ref() == Some(&self.target_arn)
            && role_arn.as_ref() == Some(&self.role_arn)
            && dlq_arn.as_ref() == Some(&self.dlq_arn)
            && *retries == Some((MAX_AGE_SECS, MAX_RETRIES))
            && input
                .as_deref()
                .and_then(essence_of)
                .is_some_and(|essence| essence == serde_json::json!(self.input.essence()))
    }

    /// Whether EventBridge fires it at the times of this one. Only an edit of the workflow changes these fields.
    pub(crate) fn has_times_of(&self, existing: &Existing, now: DateTime<Utc>) -> bool {
        existing.expression.as_ref() == Some(&self.expression)
            && existing.timezone.as_deref().unwrap_or("UTC") == self.timezone
            && self.starts_like(existing.dates.start, now)
            && existing.dates.end.and_then(minute_not_before) == self.end()
    }

    /// A start that has passed may exist or not; any other start is a difference.
    fn starts_like(&self, existing: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
        let is_past = |start: Option<DateTime<Utc>>| start.is_none_or(|start| start <= now);
        // An older version sent seconds.
        let existing = existing.and_then(minute_of);
        existing == self.start() || (is_past(existing) && is_past(self.start()))
    }
}

fn minute_of(time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time.timestamp().div_euclid(60) * 60, 0)
}

fn minute_not_before(time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let minute = minute_of(time)?;
    Some(if minute == time { minute } else { minute + TimeDelta::minutes(1) })
}

fn essence_of(input: &str) -> Option<Value> {
    let mut input: Value = serde_json::from_str(input).ok()?;
    let fields = input.as_object_mut()?;
    fields.remove("revision");
    fields.remove("traceparent");
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Option<DateTime<Utc>> {
        time.parse().ok()
    }

    fn spec(starts_at: &str, ends_at: &str) -> Spec {
        Spec {
            name: ScheduleName::new(WorkflowId(1), &"dev".parse().unwrap()),
            group: "group".to_owned(),
            state: State::Enabled,
            expression: "cron(0 9 * * ? *)".to_owned(),
            timezone: "UTC".to_owned(),
            starts_at: at(starts_at),
            ends_at: at(ends_at),
            target_arn: "runner".to_owned(),
            role_arn: "role".to_owned(),
            dlq_arn: "queue".to_owned(),
            input: Input::new(WorkflowId(1), Revision(1), None),
            identity: Identity(uuid::Uuid::nil()),
        }
    }

    fn existing(spec: &Spec, start: &str, end: &str) -> Existing {
        Existing {
            expression: Some(spec.expression.clone()),
            timezone: Some(spec.timezone.clone()),
            is_enabled: true,
            is_punctual: true,
            is_kept: true,
            kms_key_arn: None,
            dates: Dates { start: at(start), end: at(end) },
            description: Some(spec.identity.to_description()),
            target_arn: Some(spec.target_arn.clone()),
            role_arn: Some(spec.role_arn.clone()),
            dlq_arn: Some(spec.dlq_arn.clone()),
            retries: Some((MAX_AGE_SECS, MAX_RETRIES)),
            input: Some(spec.input.to_json()),
            modified_on: None,
        }
    }

    #[test]
    fn windows_are_sent_in_whole_minutes() {
        let now = at("2026-03-02T10:00:00Z").unwrap();
        let sent = spec("2026-03-02T12:00:30.5Z", "2026-03-02T13:00:00.5Z").sent_dates(now);
        assert_eq!(sent, Dates { start: at("2026-03-02T11:59:00Z"), end: at("2026-03-02T13:01:00Z") });
        let whole = spec("2026-03-02T12:00:00Z", "2026-03-02T13:00:00Z").sent_dates(now);
        assert_eq!(whole, Dates { start: at("2026-03-02T11:59:00Z"), end: at("2026-03-02T13:00:00Z") });
    }

    /// EventBridge may change the seconds, and an older version sent them.
    #[test]
    fn a_window_s_seconds_make_no_difference() {
        let now = at("2026-03-02T10:00:00Z").unwrap();
        let spec = spec("2026-03-02T12:00:30Z", "2026-03-02T13:00:30Z");
        assert!(spec.matches_existing(&existing(&spec, "2026-03-02T11:59:00Z", "2026-03-02T13:01:00Z"), now));
        assert!(spec.matches_existing(&existing(&spec, "2026-03-02T11:59:30Z", "2026-03-02T13:00:30Z"), now));
        assert!(!spec.matches_existing(&existing(&spec, "2026-03-02T11:58:59Z", "2026-03-02T13:01:00Z"), now));
        assert!(!spec.matches_existing(&existing(&spec, "2026-03-02T11:59:00Z", "2026-03-02T13:01:01Z"), now));
    }

    /// A version that hashed differently would publish each schedule again.
    #[test]
    fn hashes_are_those_of_earlier_versions() {
        let plain = Spec { starts_at: None, ends_at: None, ..spec("", "") };
        let edited =
            Input::new(WorkflowId(1), Revision(7), Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        assert_eq!(plain.spec_hash(), "ebf0b9594d3586849276519d0d69c07de59fc274ff71d27ab5a068eab3e248cf");
        assert_eq!(
            Spec { input: edited, ..plain }.spec_hash(),
            "ebf0b9594d3586849276519d0d69c07de59fc274ff71d27ab5a068eab3e248cf"
        );
        let window = Spec { state: State::Disabled, ..spec("2026-03-02T12:00:30.5Z", "2026-03-02T13:00:00Z") };
        assert_eq!(window.spec_hash(), "1e40396db55556c1c4647724e79f5e57dfb4ecbeaaa3deeabd09a3fc5fe324d6");
    }
}
