//! Step 5 of 7: the dead-letter queues as SQS shows them, so that an operator's commands can be rehearsed here.
//!
//! Of AWS's JSON protocol for SQS: `ReceiveMessage`, `DeleteMessage`, `ChangeMessageVisibility` (also as a batch), `GetQueueAttributes`,
//! `GetQueueUrl` and `ListQueues`. A queue's URL is `http://HOST/<account>/<name>`. Messages come in their order; a received one is hidden for a while.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::dead_letters::{DeadLetters, KeptLetter};
use crate::stand_in::StandIn;

/// The header that names the operation.
const TARGET: &str = "x-amz-target";
/// SQS's own default.
const DEFAULT_VISIBILITY_SECS: u64 = 30;
/// SQS's limit.
const MOST_MESSAGES: u64 = 10;

/// An error of SQS.
struct Refusal {
    code: &'static str,
    message: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"__type": format!("com.amazonaws.sqs#{}", self.code), "message": self.message});
        answer(StatusCode::BAD_REQUEST, &body)
    }
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], body.to_string()).into_response()
}

/// Answers an operation of SQS.
pub(crate) async fn answer_queue_operation(
    State(stand_in): State<StandIn>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let operation = headers.get(TARGET).and_then(|target| target.to_str().ok()).unwrap_or_default();
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return Refusal { code: "InvalidParameterValue", message: "the body is no JSON".to_owned() }.into_response();
    };
    match operate(&stand_in.dead_letters, operation, &request, host) {
        Ok(body) => answer(StatusCode::OK, &body),
        Err(refusal) => refusal.into_response(),
    }
}

fn operate(letters: &DeadLetters, operation: &str, request: &Value, host: &str) -> Result<Value, Refusal> {
    let operation = operation.strip_prefix("AmazonSQS.").unwrap_or_default();
    let now = Instant::now();
    match operation {
        "ListQueues" => {
            let urls: Vec<String> = letters.queue_names().iter().map(|queue| url_of(queue, host)).collect();
            Ok(json!({ "QueueUrls": urls }))
        }
        "GetQueueUrl" => {
            let name = request["QueueName"].as_str().unwrap_or_default();
            let queue = letters.queue_names().into_iter().find(|queue| name_of(queue) == name);
            queue.map(|queue| json!({ "QueueUrl": url_of(&queue, host) })).ok_or_else(unknown_queue)
        }
        "GetQueueAttributes" => {
            let queue = queue_of(letters, request);
            let (visible, in_flight) = (letters.count_visible(&queue, now), letters.count_in_flight(&queue, now));
            Ok(json!({"Attributes": {
                "ApproximateNumberOfMessages": visible.to_string(),
                "ApproximateNumberOfMessagesNotVisible": in_flight.to_string(),
            }}))
        }
        "ReceiveMessage" => {
            let most = request["MaxNumberOfMessages"].as_u64().unwrap_or(1).clamp(1, MOST_MESSAGES);
            let hidden = request["VisibilityTimeout"].as_u64().unwrap_or(DEFAULT_VISIBILITY_SECS);
            let queue = queue_of(letters, request);
            let received =
                letters.receive(&queue, usize::try_from(most).unwrap_or(1), now, Duration::from_secs(hidden));
            Ok(json!({ "Messages": received.iter().map(message).collect::<Vec<_>>() }))
        }
        "DeleteMessage" => {
            letters.delete(receipt(request)?);
            Ok(json!({}))
        }
        "ChangeMessageVisibility" => change_visibility(letters, request, now).map(|()| json!({})),
        "ChangeMessageVisibilityBatch" => {
            let entries = request["Entries"].as_array().cloned().unwrap_or_default();
            let mut changed = Vec::new();
            for entry in &entries {
                change_visibility(letters, entry, now)?;
                changed.push(json!({ "Id": entry["Id"] }));
            }
            Ok(json!({"Successful": changed, "Failed": []}))
        }
        _ => Err(Refusal { code: "UnsupportedOperation", message: format!("the stand-in knows no {operation}") }),
    }
}

fn change_visibility(letters: &DeadLetters, entry: &Value, now: Instant) -> Result<(), Refusal> {
    let seconds = entry["VisibilityTimeout"].as_u64().unwrap_or_default();
    letters.hide(receipt(entry)?, now + Duration::from_secs(seconds));
    Ok(())
}

fn receipt(request: &Value) -> Result<u64, Refusal> {
    let handle = request["ReceiptHandle"].as_str().and_then(|handle| handle.parse().ok());
    handle.ok_or_else(|| Refusal { code: "ReceiptHandleIsInvalid", message: "no message has this handle".to_owned() })
}

/// The queue that a URL names; its messages have its ARN. A queue that never had a message is empty, and not missing: the stand-in
/// learns of a queue by its first message.
fn queue_of(letters: &DeadLetters, request: &Value) -> String {
    let url = request["QueueUrl"].as_str().unwrap_or_default();
    let name = url.rsplit('/').next().unwrap_or_default();
    let known = letters.queue_names().into_iter().find(|queue| name_of(queue) == name);
    known.unwrap_or_else(|| name.to_owned())
}

fn unknown_queue() -> Refusal {
    Refusal { code: "QueueDoesNotExist", message: "The specified queue does not exist.".to_owned() }
}

/// The last part of an ARN.
fn name_of(queue: &str) -> &str {
    queue.rsplit(':').next().unwrap_or_default()
}

fn url_of(queue: &str, host: &str) -> String {
    let account = queue.rsplit(':').nth(1).unwrap_or_default();
    format!("http://{host}/{account}/{}", name_of(queue))
}

fn message(kept: &KeptLetter) -> Value {
    let attributes = kept.letter.attributes.iter();
    let attributes =
        attributes.map(|(name, value)| (name.clone(), json!({"DataType": "String", "StringValue": value})));
    json!({
        "MessageId": kept.id,
        "ReceiptHandle": kept.receipt.to_string(),
        "Body": kept.letter.body.to_string(),
        "Attributes": {
            "SentTimestamp": kept.sent_on.timestamp_millis().to_string(),
            "ApproximateReceiveCount": kept.receives.to_string(),
        },
        "MessageAttributes": attributes.collect::<serde_json::Map<String, Value>>(),
    })
}
