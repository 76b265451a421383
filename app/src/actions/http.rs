//! Step 7 of 7: the `http` action sends one request and judges its answer.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, redirect};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Host, Url};

use super::address::{Allowed, NotPublic};
use super::{Call, Outcome};
use crate::config::ACTION_TIMEOUT;
use crate::field::{self, FieldError};

/// What is kept of an answer: enough to see what went wrong.
const ANSWER_LIMIT: usize = 64 * 1024;
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
    /// The TLS stack cannot be set up.
    pub fn new(allowed: Allowed) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .dns_resolver(std::sync::Arc::new(allowed.clone()))
            .connect_timeout(Duration::from_secs(10))
            .timeout(ACTION_TIMEOUT)
            .user_agent(concat!("cronbox/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot set up the http client")?;
        Ok(Self { client, allowed })
    }

    /// A literal address never meets the resolver, so it is judged here.
    fn check_literal(&self, url: &Url) -> Result<(), NotPublic> {
        let literal: IpAddr = match url.host() {
            Some(Host::Ipv4(v4)) => v4.into(),
            Some(Host::Ipv6(v6)) => v6.into(),
            _ => return Ok(()),
        };
        if self.allowed.permits(literal) { Ok(()) } else { Err(NotPublic { host: literal.to_string() }) }
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

    pub(super) async fn perform(&self, call: &Call, client: &Client) -> Outcome {
        if let Err(refused) = client.check_literal(&self.url) {
            return Outcome::Failed { error: refused.to_string(), result: None };
        }
        match self.request(call, client).send().await {
            Ok(response) => judge(response).await,
            Err(error) => Outcome::Failed { error: reason(&error), result: None },
        }
    }

    fn request(&self, call: &Call, client: &Client) -> reqwest::RequestBuilder {
        let request = client.client.request(self.method.clone(), self.url.clone());
        let request = match &self.body {
            // A text is sent as written; the workflow's own content-type wins below.
            Some(Value::String(text)) => {
                context_headers(call, request).header(CONTENT_TYPE, "text/plain; charset=utf-8").body(text.clone())
            }
            Some(body) => context_headers(call, request).json(body),
            None => request.json(&super::document(call)),
        };
        request.headers(self.headers.clone())
    }
}

fn context_headers(call: &Call, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    let request = request
        .header("x-cronbox-run-id", call.run_id.to_string())
        .header("x-cronbox-workflow-id", call.workflow_id.to_string())
        .header("x-cronbox-trigger", &call.trigger)
        .header("x-cronbox-attempt", call.attempt)
        .header("x-cronbox-context", json!(call.context).to_string());
    match call.scheduled_time {
        Some(time) => {
            request.header("x-cronbox-scheduled-time", time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
        }
        None => request,
    }
}

async fn judge(mut response: Response) -> Outcome {
    let status = response.status();
    let body = match beginning(&mut response).await {
        Ok(body) => body,
        Err(error) => {
            return Outcome::Failed { error: reason(&error), result: Some(json!({ "status": status.as_u16() })) };
        }
    };
    let result = json!({ "status": status.as_u16(), "body": body });
    if status.is_success() {
        Outcome::Succeeded(result)
    } else {
        Outcome::Failed { error: format!("the receiver answered {status}"), result: Some(result) }
    }
}

/// The first bytes of an answer as text that Postgres can store.
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

/// The innermost cause, without the URL: it may hold a token.
fn reason(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    if error.is_timeout() {
        format!("no answer within {} s", ACTION_TIMEOUT.as_secs())
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
