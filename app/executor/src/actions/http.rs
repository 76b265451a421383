//! Step 7 of 7: the `http` action sends one request and evaluates its answer.

use std::error::Error as _;
use std::time::Duration;

use egress::allowed::NotPublic;
use egress::{CONNECT_TIMEOUT, Departing};
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use workflows::definition::action::Http;

use super::{Again, Call, Outcome, Sender, signature};

/// How many bytes of an answer are stored: enough to diagnose a failure.
const ANSWER_LIMIT: usize = 64 * 1024;

/// Sends the request once.
pub(super) async fn send_request(action: &Http, call: &Call, sender: &Sender<'_>) -> Outcome {
    if let Err(refused) = sender.client.allowed().check_literal(&action.url) {
        return Outcome::Failed { error: refused.to_string(), result: None, again: Again::Never };
    }
    let request = match request(action, call, sender) {
        Ok(request) => request,
        Err(error) => return Outcome::Failed { error: error.to_string(), result: None, again: Again::Never },
    };
    if has_no_body(action) {
        // A request without a body reads no first byte, so decide the departure here.
        sender.departure.leave_or_wait().await;
    }
    match request.send().await {
        Ok(response) => evaluate_response(response).await,
        // The run was handed over; the executor cancels this attempt now.
        Err(_) if sender.departure.is_prevented() => std::future::pending().await,
        Err(error) => Outcome::Failed { error: reason(&error), result: None, again: whether_again(&error) },
    }
}

/// Builds the body and signs these bytes, so that the signature always matches what is sent.
fn request(action: &Http, call: &Call, sender: &Sender<'_>) -> Result<reqwest::RequestBuilder, signature::BadSecret> {
    let (content_type, body) = match &action.body {
        // A text is sent as written. The content type of the workflow replaces this one below.
        Some(Value::String(text)) => ("text/plain; charset=utf-8", text.clone()),
        Some(body) => ("application/json", body.to_string()),
        None => ("application/json", json!(call).to_string()),
    };
    let signature = signature::sign_request(sender.secret, call.run_id, sender.now, body.as_bytes())?;
    let request = sender.client.request(action.method.clone(), action.url.clone());
    let request = context_headers(call, request).header(CONTENT_TYPE, content_type);
    Ok(request
        .headers(action.headers.clone())
        .headers(signature)
        .body(reqwest::Body::wrap(Departing::new(body, sender.departure))))
}

fn has_no_body(action: &Http) -> bool {
    action.body.as_ref().is_some_and(|body| body.as_str() == Some(""))
}

/// Sends the context in headers too, so that a receiver can route a request without parsing its body.
fn context_headers(call: &Call, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    let request = request
        .header("x-cronbox-run-id", call.run_id.to_string())
        .header("x-cronbox-workflow-id", call.workflow_id.to_string())
        .header("x-cronbox-trigger", &call.trigger)
        .header("x-cronbox-attempt", call.attempt)
        .header("x-cronbox-context", json!(call.context).to_string());
    match call.scheduled_time {
        Some(time) => {
            let time = time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            // Every run of this time has the same value: a retry, a backfill, or a run after a restore.
            let occurrence = format!("{}/{time}", call.workflow_id);
            request.header("x-cronbox-scheduled-time", time).header("x-cronbox-occurrence", occurrence)
        }
        None => request,
    }
}

async fn evaluate_response(mut response: Response) -> Outcome {
    let status = response.status();
    let again = worth_another(status, response.headers());
    let body = match beginning(&mut response).await {
        Ok(body) => body,
        Err(error) => {
            let result = Some(json!({ "status": status.as_u16() }));
            let again = if status.is_success() { Again::Later(None) } else { again };
            return Outcome::Failed { error: reason(&error), result, again };
        }
    };
    let result = json!({ "status": status.as_u16(), "body": body });
    if status.is_success() {
        Outcome::Succeeded(result)
    } else {
        Outcome::Failed { error: format!("the receiver answered {status}"), result: Some(result), again }
    }
}

/// A receiver that is busy or fails may succeed later; one that refuses the request will refuse it again.
fn worth_another(status: StatusCode, headers: &HeaderMap) -> Again {
    let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    if !is_busy && !status.is_server_error() {
        return Again::Never;
    }
    let requested = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Again::Later(requested.map(Duration::from_secs))
}

/// A receiver that cannot be reached may be reachable later, but an address that is not public stays so.
fn whether_again(error: &reqwest::Error) -> Again {
    let mut cause = error.source();
    while let Some(deeper) = cause {
        if deeper.is::<NotPublic>() {
            return Again::Never;
        }
        cause = deeper.source();
    }
    if error.is_builder() { Again::Never } else { Again::Later(None) }
}

/// Returns the first bytes of an answer as text that Postgres can store. A byte that is no text becomes three bytes.
async fn beginning(response: &mut Response) -> reqwest::Result<String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= ANSWER_LIMIT {
            bytes.truncate(ANSWER_LIMIT);
            break;
        }
    }
    let mut text = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
    text.truncate(text.floor_char_boundary(ANSWER_LIMIT));
    Ok(text)
}

/// Returns the innermost cause, without the URL, because a URL may contain a token.
fn reason(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    if error.is_timeout() {
        format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())
    } else if error.is_connect() {
        format!("cannot connect{cause}")
    } else {
        format!("the request failed{cause}")
    }
}
