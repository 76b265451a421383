//! Step 7 of 7: the `http` action sends one request and evaluates its answer.

use std::time::Duration;

use egress::{Answer, Departing, Outgoing, SendError};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, RETRY_AFTER};
use serde_json::{Value, json};
use traces::{Kind, Parent, Span};
use workflows::definition::action::Http;

use super::{Again, Call, Outcome, Sender, signature};

/// How many bytes of an answer are stored: enough to diagnose a failure.
const ANSWER_LIMIT: usize = 64 * 1024;

/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Why a request cannot be built.
#[derive(Debug, thiserror::Error)]
enum Unsendable {
    #[error(transparent)]
    Secret(#[from] signature::BadSecret),
    #[error(transparent)]
    Header(#[from] InvalidHeaderValue),
}

/// Sends the request once.
pub(super) async fn send_request(action: &Http, call: &Call, sender: &Sender<'_>) -> Outcome {
    if let Err(refused) = sender.client.allowed().check_url(&action.url, sender.tenant) {
        return Outcome::Failed { error: refused.to_string(), result: None, again: Again::Never };
    }
    let span = begin_span(action, call, sender.span);
    let request = match request(action, call, sender, &span) {
        Ok(request) => request,
        Err(error) => return Outcome::Failed { error: error.to_string(), result: None, again: Again::Never },
    };
    if has_no_body(action) {
        // A request without a body reads no first byte, so decide the departure here.
        sender.departure.leave_or_wait().await;
    }
    match sender.client.send(request).await {
        Ok(answer) => {
            note_status(&span, answer.status());
            evaluate_answer(answer).await
        }
        // The run was handed over; the executor cancels this attempt now.
        Err(_) if sender.departure.is_prevented() => std::future::pending().await,
        Err(error) => {
            span.fail(error.code());
            Outcome::Failed { error: error.to_string(), result: None, again: whether_again(&error) }
        }
    }
}

/// Begins the span of the request. It has no URL: path and query may contain a token.
fn begin_span(action: &Http, call: &Call, attempt: &Span) -> Span {
    let span = Span::begin(Kind::Client, Parent::Span(attempt), || action.method.as_str().to_owned().into());
    span.set_text("http.request.method", &action.method);
    span.set_text("url.scheme", action.url.scheme());
    span.set_text("server.address", action.url.host_str().unwrap_or_default());
    span.set("server.port", action.url.port_or_known_default().map_or(0, i64::from));
    span.set("http.request.resend_count", i64::from(call.attempt - 1));
    span
}

fn note_status(span: &Span, status: StatusCode) {
    span.set("http.response.status_code", i64::from(status.as_u16()));
    if status.is_client_error() || status.is_server_error() {
        span.fail_with_status(status.as_u16());
    }
}

/// Builds the body and signs these bytes, so that the signature always matches what is sent.
fn request<'a>(action: &'a Http, call: &Call, sender: &Sender<'a>, span: &Span) -> Result<Outgoing<'a>, Unsendable> {
    let (content_type, body) = match &action.body {
        // A text is sent as written. The content type of the workflow replaces this one below.
        Some(Value::String(text)) => ("text/plain; charset=utf-8", text.clone()),
        Some(body) => ("application/json", body.to_string()),
        None => ("application/json", json!(call).to_string()),
    };
    let signature = signature::sign_request(sender.secrets, call, sender.now, body.as_bytes())?;
    let mut headers = context_headers(call)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(traceparent) = span.traceparent() {
        // A header of this name in the workflow replaces it below.
        headers.insert(TRACEPARENT, HeaderValue::try_from(traceparent)?);
    }
    headers.extend(action.headers.clone());
    headers.extend(signature);
    Ok(Outgoing {
        tenant: sender.tenant,
        method: action.method.clone(),
        url: &action.url,
        may_use_http: sender.may_use_http,
        headers,
        body: Departing::new(body, sender.departure),
    })
}

fn has_no_body(action: &Http) -> bool {
    action.body.as_ref().is_some_and(|body| body.as_str() == Some(""))
}

/// Sends the context in headers too, so that a receiver can route a request without parsing its body.
fn context_headers(call: &Call) -> Result<HeaderMap, InvalidHeaderValue> {
    let mut named = vec![
        ("x-cronbox-run-id", call.run_id.to_string()),
        ("x-cronbox-workflow-id", call.workflow_id.to_string()),
        ("x-cronbox-trigger", call.trigger.clone()),
        ("x-cronbox-attempt", call.attempt.to_string()),
        ("x-cronbox-context", json!(call.context).to_string()),
    ];
    if let Some(time) = call.scheduled_time {
        let time = signature::time_text(time);
        // Every run of this time has the same value: a retry, a backfill, or a run after a restore.
        let occurrence = format!("{}/{time}", call.workflow_id);
        named.extend([("x-cronbox-scheduled-time", time), ("x-cronbox-occurrence", occurrence)]);
    }
    named.into_iter().map(|(name, value)| Ok((HeaderName::from_static(name), HeaderValue::try_from(value)?))).collect()
}

async fn evaluate_answer(answer: Answer) -> Outcome {
    let status = answer.status();
    let again = worth_another(status, answer.headers());
    let body = match answer.read_beginning(ANSWER_LIMIT).await {
        Ok(bytes) => storable_text(&bytes),
        Err(error) => {
            let result = Some(json!({ "status": status.as_u16() }));
            let again = if status.is_success() { Again::Later(None) } else { again };
            return Outcome::Failed { error: error.to_string(), result, again };
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
fn whether_again(error: &SendError) -> Again {
    if error.is_final() { Again::Never } else { Again::Later(None) }
}

/// Returns bytes as text that Postgres can store. A byte that is no text becomes three bytes.
fn storable_text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    text.truncate(text.floor_char_boundary(ANSWER_LIMIT));
    text
}
