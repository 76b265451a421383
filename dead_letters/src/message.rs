//! Step 5 of 7: parses a dead-letter message: its fire, the service that gave up, and the error.
//!
//! There are three formats. EventBridge Scheduler stores the request that Lambda refused, with the error in attributes.
//! Lambda stores an envelope around the event for which its function failed, for the runner and the publisher alike.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schedule::{Environment, Fire, ScheduleName, WorkflowId};
use serde_json::{Value, json};

/// One message of a dead-letter queue.
pub struct DeadMessage {
    /// SQS's message id.
    pub id: String,
    /// The receipt with which the message can be deleted, while it is not visible to other consumers.
    pub receipt: String,
    /// When it was sent to the queue.
    pub sent_on: Option<DateTime<Utc>>,
    /// The body as it is in the queue.
    pub body: String,
    /// The attributes as they are in the queue.
    pub attributes: BTreeMap<String, String>,
    /// What was not delivered.
    pub content: Content,
    /// Which service gave up.
    pub from: Origin,
    /// The error message of that service.
    pub error: String,
    /// How often it was tried.
    pub tries: Option<u64>,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A fire for which the app has not answered.
    Fire(Fire),
    /// A tick of the publisher; each later tick publishes the same rows.
    Tick,
    /// Something else, and why it is not a fire.
    Unreadable(String),
}

/// Which service gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// EventBridge Scheduler: it could not invoke Lambda with the fire.
    Schedule,
    /// Lambda: the runner failed.
    Runner,
    /// Lambda: the publisher failed.
    Publisher,
    /// The message does not say.
    Unknown,
}

impl Origin {
    /// The word of a table and of JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Schedule => "schedule",
            Origin::Runner => "runner",
            Origin::Publisher => "publisher",
            Origin::Unknown => "unknown",
        }
    }
}

impl DeadMessage {
    /// Parses a message; an unreadable one is returned too.
    #[must_use]
    pub fn parse_message(
        id: String,
        receipt: String,
        sent_on: Option<DateTime<Utc>>,
        body: String,
        attributes: BTreeMap<String, String>,
    ) -> Self {
        let json: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let (content, from, error, tries) = match json["requestContext"].is_object() {
            true => of_function(&json),
            false => of_schedule(&json, &attributes),
        };
        DeadMessage { id, receipt, sent_on, body, attributes, content, from, error, tries }
    }

    /// The fire, if there is one to deliver again.
    #[must_use]
    pub fn fire(&self) -> Option<&Fire> {
        match &self.content {
            Content::Fire(fire) => Some(fire),
            Content::Tick | Content::Unreadable(_) => None,
        }
    }

    /// Why a redrive does not post it; `None` = it has a fire.
    #[must_use]
    pub fn why_it_stays(&self) -> Option<String> {
        match &self.content {
            Content::Fire(_) => None,
            Content::Tick => Some("nothing to post: a later tick of the publisher did its work; discard it".to_owned()),
            Content::Unreadable(why) => Some(format!("contains no readable fire: {why}")),
        }
    }
}

type Read = (Content, Origin, String, Option<u64>);

/// Lambda's envelope: the event of the function, and its error.
fn of_function(envelope: &Value) -> Read {
    let payload = &envelope["requestPayload"];
    let (content, from) = match Fire::from_event(payload) {
        Ok(fire) => (Content::Fire(fire), Origin::Runner),
        Err(_) if is_tick(payload) => (Content::Tick, Origin::Publisher),
        Err(error) => (Content::Unreadable(error.to_string()), Origin::Unknown),
    };
    let context = &envelope["requestContext"];
    let (kind, said) = (&envelope["responsePayload"]["errorType"], &envelope["responsePayload"]["errorMessage"]);
    let error = in_words(said.as_str(), kind.as_str(), context["condition"].as_str());
    (content, from, error, context["approximateInvokeCount"].as_u64())
}

/// The error message comes first, because a table shows only its beginning. The names of Rust types, which older
/// functions wrote, are left out.
fn in_words(sentence: Option<&str>, kind: Option<&str>, condition: Option<&str>) -> String {
    let kind = kind.filter(|kind| !kind.contains("::"));
    let beside: Vec<&str> = [kind, condition].into_iter().flatten().collect();
    match (sentence, beside.is_empty()) {
        (Some(sentence), true) => sentence.to_owned(),
        (Some(sentence), false) => format!("{sentence} ({})", beside.join(", ")),
        (None, _) => beside.join(": "),
    }
}

/// Whether only the publisher receives such an event: its rule's tick, or a manual invocation.
///
/// Strict, because a lost tick does no harm: a broken fire must not be treated as one.
fn is_tick(payload: &Value) -> bool {
    let is_rule_s = payload["source"] == "aws.events" && payload["detail-type"] == "Scheduled Event";
    (is_rule_s && payload.get("workflow_id").is_none()) || *payload == json!({}) || *payload == json!({"sweep": true})
}

/// Scheduler's request to Lambda. Scheduler truncates it if it is too long, but never the attributes.
fn of_schedule(body: &Value, attributes: &BTreeMap<String, String>) -> Read {
    let attribute = |name: &str| attributes.get(name).map(String::as_str);
    let is_truncated = attribute("IS_PAYLOAD_TRUNCATED").is_some_and(|reply| reply.eq_ignore_ascii_case("true"));
    let content = match Fire::from_event(&payload(body)) {
        Ok(fire) => Content::Fire(fire),
        Err(error) => match is_truncated.then(|| of_attributes(attributes)).flatten() {
            Some(fire) => Content::Fire(fire),
            None => Content::Unreadable(error.to_string()),
        },
    };
    let is_scheduler_s = attributes.contains_key("SCHEDULE_ARN") || matches!(content, Content::Fire(_));
    let exhausted = attribute("EXHAUSTED_RETRY_CONDITION");
    let words = [attribute("ERROR_CODE"), attribute("ERROR_MESSAGE"), exhausted];
    let tries = attribute("RETRY_ATTEMPTS").and_then(|retries| retries.parse::<u64>().ok()).map(|retries| retries + 1);
    let from = if is_scheduler_s { Origin::Schedule } else { Origin::Unknown };
    (content, from, words.into_iter().flatten().collect::<Vec<_>>().join(": "), tries)
}

/// The payload for the runner: a string in the request, or the complete body.
fn payload(body: &Value) -> Value {
    match &body["Payload"] {
        Value::Null => body.clone(),
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    }
}

/// The fire in the attributes; the name of the schedule contains the workflow's id.
fn of_attributes(attributes: &BTreeMap<String, String>) -> Option<Fire> {
    let schedule_arn = attributes.get("SCHEDULE_ARN")?;
    let event = json!({
        "workflow_id": workflow(schedule_arn)?,
        "scheduled_time": attributes.get("SCHEDULED_TIME")?,
        "execution_id": attributes.get("EXECUTION_ID"),
        "schedule_arn": schedule_arn,
    });
    Fire::from_event(&event).ok()
}

/// `arn:aws:scheduler:<region>:<account>:schedule/<group>/wf-<id>-<env>`, whatever the environment.
fn workflow(schedule_arn: &str) -> Option<WorkflowId> {
    let name = schedule_arn.rsplit('/').next()?;
    let env: Environment = name.strip_prefix("wf-")?.split_once('-')?.1.parse().ok()?;
    ScheduleName::parse(name, &env).map(|name| name.workflow_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, attributes: &[(&str, &str)]) -> DeadMessage {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        DeadMessage::parse_message("m".to_owned(), "r".to_owned(), None, body.to_owned(), attributes)
    }

    const TRUNCATED: [(&str, &str); 3] = [
        ("IS_PAYLOAD_TRUNCATED", "true"),
        ("SCHEDULED_TIME", "2026-03-29T07:00:10Z"),
        ("SCHEDULE_ARN", "arn:aws:scheduler:eu-west-1:123456789012:schedule/cronbox-prod-eu/wf-12-prod-eu"),
    ];

    #[test]
    fn attributes_complete_a_truncated_message() {
        let message = read(r#"{"FunctionName":"arn","Payload":"{\"workflow_id\":1"#, &TRUNCATED);
        let fire = message.fire().expect("a fire");
        assert_eq!((fire.workflow_id, fire.raw_time.as_str()), (WorkflowId(12), "2026-03-29T07:00:10Z"));
    }

    #[test]
    fn attributes_change_no_complete_body() {
        let whole = [("IS_PAYLOAD_TRUNCATED", "false"), TRUNCATED[1], TRUNCATED[2]];
        let message = read(r#"{"Payload":"{\"workflow_id\":12}"}"#, &whole);
        assert_eq!(
            (message.content, message.from),
            (Content::Unreadable("scheduled_time: missing".to_owned()), Origin::Schedule)
        );
    }

    #[test]
    fn schedules_of_others_name_no_workflow() {
        for arn in ["", "arn:aws:scheduler:r:a:schedule/g/nightly", "arn:../wf-012-dev", "arn:../wf-12", "wf-x-dev"] {
            assert_eq!(workflow(arn), None, "{arn:?}");
        }
    }

    #[test]
    fn broken_fires_are_not_ticks() {
        let envelope = |payload: Value| json!({"requestContext": {}, "requestPayload": payload}).to_string();
        let minute = json!({"source": "aws.events", "detail-type": "Scheduled Event", "time": "2026-03-29T07:00:00Z"});
        for tick in [minute.clone(), json!({}), json!({"sweep": true})] {
            assert_eq!(read(&envelope(tick.clone()), &[]).content, Content::Tick, "{tick}");
        }
        let mut broken = minute;
        broken["workflow_id"] = json!("12x");
        for broken in [broken, json!(null), json!([]), json!({"source": "aws.scheduler"}), json!({"workflow_id": 12})] {
            assert!(matches!(read(&envelope(broken.clone()), &[]).content, Content::Unreadable(_)), "{broken}");
        }
    }
}
