//! Step 5 of 7: one delivery by EventBridge Scheduler, as the runner receives it.

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use crate::{Revision, TimeError, WorkflowId, nominal_time};

/// One delivery by EventBridge. Serialises to the body of `:invoke`.
///
/// ```
/// use schedule::Fire;
/// let event = serde_json::json!({"workflow_id": 12, "scheduled_time": "2026-03-29T07:00:10Z", "attempt": "1"});
/// let fire = Fire::from_event(&event)?;
/// assert_eq!(fire.scheduled_time.to_string(), "2026-03-29 07:00:00 UTC");
/// assert_eq!(serde_json::to_string(&fire).unwrap(), r#"{"scheduled_time":"2026-03-29T07:00:10Z","attempt":1}"#);
/// # Ok::<(), schedule::FireError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    /// The workflow to run.
    pub workflow_id: WorkflowId,
    /// The scheduled time: UTC, rounded down to the minute.
    pub scheduled_time: DateTime<Utc>,
    /// The scheduled time as received.
    pub raw_time: String,
    /// The workflow's revision when the schedule was published.
    pub revision: Option<Revision>,
    /// EventBridge's id of this attempt; another one at each retry.
    pub execution_id: Option<String>,
    /// Which attempt this is, from 1.
    pub attempt: Option<i32>,
    /// The schedule that fired.
    pub schedule_arn: Option<String>,
    /// The version of the publisher's Input template.
    pub template: Option<i32>,
    /// W3C trace context of the edit that published the schedule.
    pub traceparent: Option<String>,
}

/// Why an event is not a fire; the message names the field.
///
/// ```
/// use schedule::Fire;
/// let error = Fire::from_event(&serde_json::json!({"workflow_id": 12})).unwrap_err();
/// assert_eq!(error.to_string(), "scheduled_time: missing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FireError {
    /// The event is not a JSON object.
    #[error("the event is not a JSON object")]
    NotAnObject,
    /// A required field is missing.
    #[error("{field}: missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field has the wrong type or range.
    #[error("{field}: expected {expected}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// The time cannot be parsed.
    #[error("{field}: {reason}")]
    Time {
        /// `scheduled_time` or `time`.
        field: &'static str,
        /// Why it cannot be parsed.
        reason: TimeError,
    },
}

impl Fire {
    /// Parses the event that EventBridge sent to the runner; unknown fields are ignored.
    ///
    /// The time comes from `scheduled_time`, else from `time`.
    ///
    /// ```
    /// use schedule::{Fire, WorkflowId};
    /// let fire = Fire::from_event(&serde_json::json!({"workflow_id": 3, "time": "2026-03-29T07:00:00Z"}))?;
    /// assert_eq!(fire.workflow_id, WorkflowId(3));
    /// # Ok::<(), schedule::FireError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the workflow or the time is missing or not valid, or if a field has the wrong type; "now" is never
    /// assumed.
    pub fn from_event(event: &Value) -> Result<Self, FireError> {
        if !event.is_object() {
            return Err(FireError::NotAnObject);
        }
        let workflow_id = integer(event, "workflow_id")?.ok_or(FireError::Missing { field: "workflow_id" })?;
        if workflow_id < 1 {
            return Err(FireError::Invalid { field: "workflow_id", expected: "a number from 1" });
        }
        let (field, raw_time) = time(event)?;
        let scheduled_time = nominal_time(&raw_time).map_err(|reason| FireError::Time { field, reason })?;
        Ok(Self {
            workflow_id: WorkflowId(workflow_id),
            scheduled_time,
            raw_time,
            revision: integer(event, "revision")?.map(Revision),
            execution_id: string(event, "execution_id")?,
            attempt: small(event, "attempt")?,
            schedule_arn: string(event, "schedule_arn")?,
            template: small(event, "template")?,
            traceparent: string(event, "traceparent")?,
        })
    }
}

impl Serialize for Fire {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("scheduled_time", &self.raw_time)?;
        if let Some(revision) = self.revision {
            body.serialize_entry("revision", &revision)?;
        }
        if let Some(execution_id) = &self.execution_id {
            body.serialize_entry("execution_id", execution_id)?;
        }
        if let Some(attempt) = self.attempt {
            body.serialize_entry("attempt", &attempt)?;
        }
        if let Some(schedule_arn) = &self.schedule_arn {
            body.serialize_entry("schedule_arn", schedule_arn)?;
        }
        if let Some(traceparent) = &self.traceparent {
            body.serialize_entry("traceparent", traceparent)?;
        }
        body.end()
    }
}

fn time(event: &Value) -> Result<(&'static str, String), FireError> {
    for field in ["scheduled_time", "time"] {
        if let Some(raw) = string(event, field)? {
            return Ok((field, raw));
        }
    }
    Err(FireError::Missing { field: "scheduled_time" })
}

fn string(event: &Value, field: &'static str) -> Result<Option<String>, FireError> {
    match &event[field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(FireError::Invalid { field, expected: "a string" }),
    }
}

/// A number, or a numeric string, because EventBridge's placeholders are inside JSON quotes.
fn integer(event: &Value, field: &'static str) -> Result<Option<i64>, FireError> {
    let number = match &event[field] {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.map(Some).ok_or(FireError::Invalid { field, expected: "a whole number" })
}

fn small(event: &Value, field: &'static str) -> Result<Option<i32>, FireError> {
    match integer(event, field)?.map(i32::try_from) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(FireError::Invalid { field, expected: "a whole number" }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The runner reads what the publisher writes, and sends the app the fields that the app knows.
    #[test]
    fn fires_of_the_publisher_s_template_are_forwarded() {
        let event = json!({
            "workflow_id": 12, "scheduled_time": "2026-03-29T07:00:41Z", "execution_id": "e-1", "attempt": "2",
            "schedule_arn": "arn:aws:scheduler:eu-west-1:1:schedule/g/wf-12-dev", "revision": 3, "template": 1,
            "traceparent": "00-x-y-01", "unknown": {"ignored": true},
        });
        let fire = Fire::from_event(&event).expect("a fire");
        assert_eq!((fire.workflow_id, fire.revision, fire.attempt), (WorkflowId(12), Some(Revision(3)), Some(2)));
        assert_eq!(
            serde_json::to_value(&fire).expect("a body"),
            json!({
                "scheduled_time": "2026-03-29T07:00:41Z", "revision": 3, "execution_id": "e-1", "attempt": 2,
                "schedule_arn": "arn:aws:scheduler:eu-west-1:1:schedule/g/wf-12-dev", "traceparent": "00-x-y-01",
            })
        );
    }

    #[test]
    fn scheduled_time_wins_over_time() {
        let event = json!({"workflow_id": 1, "scheduled_time": "2026-03-29T07:00:00Z", "time": "2026-03-29T08:00:00Z"});
        assert_eq!(Fire::from_event(&event).expect("a fire").raw_time, "2026-03-29T07:00:00Z");
    }

    #[test]
    fn an_error_names_the_field() {
        let time = "2026-03-29T07:00:00Z";
        for (event, message) in [
            (json!([]), "the event is not a JSON object"),
            (json!({"scheduled_time": time}), "workflow_id: missing"),
            (json!({"workflow_id": 0, "scheduled_time": time}), "workflow_id: expected a number from 1"),
            (json!({"workflow_id": 1.5, "scheduled_time": time}), "workflow_id: expected a whole number"),
            (json!({"workflow_id": 1}), "scheduled_time: missing"),
            (json!({"workflow_id": 1, "scheduled_time": 7}), "scheduled_time: expected a string"),
            (
                json!({"workflow_id": 1, "scheduled_time": "<aws.scheduler.scheduled-time>"}),
                "scheduled_time: a placeholder that EventBridge did not replace, not a time",
            ),
            (json!({"workflow_id": 1, "time": "noon"}), "time: not an RFC 3339 time: write it as 2026-03-29T07:00:00Z"),
            (json!({"workflow_id": 1, "time": time, "attempt": "one"}), "attempt: expected a whole number"),
            (json!({"workflow_id": 1, "time": time, "attempt": 3_000_000_000_i64}), "attempt: expected a whole number"),
        ] {
            assert_eq!(Fire::from_event(&event).map_err(|error| error.to_string()), Err(message.to_owned()), "{event}");
        }
    }
}
