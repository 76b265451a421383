//! Step 7 of 7: the `http` action sends one request and evaluates its answer.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, redirect};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::address::{Allowed, NotPublic};
use super::departure::Departing;
use super::{Again, Call, Outcome, Sender, signature};
use crate::field::{self, FieldError};

/// How many bytes of an answer are stored: enough to diagnose a failure.
const ANSWER_LIMIT: usize = 64 * 1024;
/// How long a client may take to connect. The complete request has the workflow's timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers that we set, or that would change how the request is framed or routed.
const RESERVED_HEADERS: [&str; 8] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"];

/// `{"type": "http", "method", "url", "headers"?, "body"?}`
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    method: String,
    url: String,
    headers: Option<BTreeMap<String, Value>>,
    body: Option<Value>,
}

/// One client for all actions: no redirects, no proxies, only permitted addresses.
#[derive(Clone)]
pub struct Client {
    client: reqwest::Client,
    allowed: Allowed,
}

impl Client {
    /// A client that reaches public addresses and the allowed networks.
    ///
    /// # Errors
    /// Fails if the TLS stack cannot be set up.
    pub fn new(allowed: Allowed) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .dns_resolver(std::sync::Arc::new(allowed.clone()))
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("cronbox/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot set up the http client")?;
        Ok(Self { client, allowed })
    }
}

impl Http {
    pub(super) fn parse(document: Value) -> Result<Self, FieldError> {
        let written: Written = super::read(document)?;
        Ok(Self {
            method: method(&written.method)?,
            url: url(&written.url)?,
            headers: headers(written.headers.unwrap_or_default())?,
            body: written.body,
        })
    }

    /// The URL of the request.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub(super) async fn perform(&self, call: &Call, sender: &Sender<'_>) -> Outcome {
        if let Err(refused) = sender.client.allowed.check_literal(&self.url) {
            return Outcome::Failed { error: refused.to_string(), result: None, again: Again::Never };
        }
        let request = match self.request(call, sender) {
            Ok(request) => request,
            Err(error) => return Outcome::Failed { error: error.to_string(), result: None, again: Again::Never },
        };
        if self.has_no_body() {
            // A request without a body reads no first byte, so decide the departure here.
            sender.departure.leave_or_wait().await;
        }
        match request.send().await {
            Ok(response) => judge(response).await,
            // The run was handed over; the executor cancels this attempt now.
            Err(_) if sender.departure.is_prevented() => std::future::pending().await,
            Err(error) => Outcome::Failed { error: reason(&error), result: None, again: whether_again(&error) },
        }
    }

    /// Builds the body and signs these bytes, so that the signature always matches what is sent.
    fn request(&self, call: &Call, sender: &Sender<'_>) -> Result<reqwest::RequestBuilder, signature::BadSecret> {
        let (content_type, body) = match &self.body {
            // A text is sent as written. The content type of the workflow replaces this one below.
            Some(Value::String(text)) => ("text/plain; charset=utf-8", text.clone()),
            Some(body) => ("application/json", body.to_string()),
            None => ("application/json", super::document(call).to_string()),
        };
        let signature = signature::headers(sender.secret, call.run_id, sender.now, body.as_bytes())?;
        let request = sender.client.client.request(self.method.clone(), self.url.clone());
        let request = context_headers(call, request).header(CONTENT_TYPE, content_type);
        Ok(request
            .headers(self.headers.clone())
            .headers(signature)
            .body(reqwest::Body::wrap(Departing::new(body, sender.departure))))
    }

    fn has_no_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.as_str() == Some(""))
    }
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
            // The same for every run of this time: a retry, a backfill, or a run after a restore.
            let occurrence = format!("{}/{time}", call.workflow_id);
            request.header("x-cronbox-scheduled-time", time).header("x-cronbox-occurrence", occurrence)
        }
        None => request,
    }
}

async fn judge(mut response: Response) -> Outcome {
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
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Again::Later(asked.map(Duration::from_secs))
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

/// Returns the first bytes of an answer as text that Postgres can store.
async fn beginning(response: &mut Response) -> reqwest::Result<String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= ANSWER_LIMIT {
            bytes.truncate(ANSWER_LIMIT);
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}"))
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

fn method(written: &str) -> Result<Method, FieldError> {
    match written {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" => Ok(Method::from_str(written).unwrap_or(Method::POST)),
        _ => Err(FieldError::invalid("action.method", "action.method must be GET, HEAD, POST, PUT, PATCH or DELETE")),
    }
}

fn url(written: &str) -> Result<Url, FieldError> {
    let refuse = |detail: &str| FieldError::invalid("action.url", detail);
    if written.len() > 2_048 {
        return Err(refuse("action.url has more than 2048 bytes"));
    }
    let url = Url::parse(written).map_err(|error| refuse(&format!("action.url is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("action.url must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("action.url must not hold a user or a password: send a header instead"));
    }
    Ok(url)
}

fn headers(written: BTreeMap<String, Value>) -> Result<HeaderMap, FieldError> {
    if written.len() > 50 {
        return Err(FieldError::invalid("action.headers", "action.headers has more than 50 headers"));
    }
    written.into_iter().map(|(name, value)| header(&name, &value)).collect()
}

fn header(name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), FieldError> {
    let field = format!("action.headers.{name}");
    let parsed = HeaderName::from_str(name).map_err(|_| FieldError::invalid(&field, "not a header name"))?;
    if RESERVED_HEADERS.contains(&parsed.as_str())
        || parsed.as_str().starts_with("x-cronbox-")
        || parsed.as_str().starts_with("webhook-")
    {
        return Err(FieldError::invalid(&field, format!("{parsed} is set by cronbox")));
    }
    let Value::String(text) = value else {
        return Err(FieldError::invalid(&field, "header values are write-only: send the value again"));
    };
    field::text(&field, text, 0, 4_096)?;
    let mut value = HeaderValue::from_str(text).map_err(|_| FieldError::invalid(&field, "not a header value"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(document: Value) -> (String, String) {
        let error = Http::parse(document).unwrap_err();
        (error.field, error.detail)
    }

    #[test]
    fn bad_actions_name_their_field() {
        let cases = [
            (json!({"method": "TRACE", "url": "https://a.example"}), "action.method"),
            (json!({"method": "GET", "url": "ftp://a.example"}), "action.url"),
            (json!({"method": "GET", "url": "https://user:pass@a.example"}), "action.url"),
            (json!({"method": "GET"}), "action.url"),
            (json!({"method": "GET", "url": "https://a.example", "headers": {"host": "b"}}), "action.headers.host"),
            (json!({"method": "GET", "url": "https://a.example", "headers": {"a": null}}), "action.headers.a"),
            (json!({"method": "GET", "url": "https://a.example", "headers": {"a": "b\r\nc: d"}}), "action.headers.a"),
            (json!({"method": "GET", "url": "https://a.example", "verify": false}), "action.verify"),
        ];
        for (document, field) in cases {
            assert_eq!(refused(document.clone()).0, field, "{document}");
        }
    }

    #[test]
    fn a_header_that_was_read_back_is_not_written_as_empty() {
        let (_, detail) = refused(json!({"method": "GET", "url": "https://a.example", "headers": {"a": null}}));
        assert_eq!(detail, "header values are write-only: send the value again");
    }
}
