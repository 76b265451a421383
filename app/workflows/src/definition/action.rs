//! Step 1 of 7: the action of a workflow, parsed from its document. `actions/` performs it.

use std::collections::BTreeMap;
use std::str::FromStr;

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::definition::field::{self, FieldError};

/// Headers that we set, or that would change how the request is framed or routed.
const RESERVED_HEADERS: [&str; 8] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"];

/// A workflow's action, validated.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes a line to the app's log.
    Log(Log),
    /// Sends a request.
    Http(Box<Http>),
}

/// `{"type": "log", "message": ".."}`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The text to log.
    pub message: String,
}

/// `{"type": "http", "method", "url", "headers"?, "body"?}`
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// The HTTP method of the request.
    pub method: Method,
    /// The URL of the request.
    pub url: Url,
    /// The headers of the workflow, in addition to our own; secrets, so never shown.
    pub headers: HeaderMap,
    /// The body of the request; `None` = the call.
    pub body: Option<Value>,
}

impl Action {
    /// Reads `{"type": "log" | "http", ..}`.
    ///
    /// # Errors
    /// Returns the field of the action that is not valid.
    pub fn parse(document: &Value) -> Result<Self, FieldError> {
        field::no_nul("action", document)?;
        let Value::Object(members) = document else {
            return Err(FieldError::invalid("action", "action must be an object with a type"));
        };
        let mut members = members.clone();
        match members.remove("type") {
            Some(Value::String(kind)) if kind == "log" => Log::parse(members.into()).map(Self::Log),
            Some(Value::String(kind)) if kind == "http" => Http::parse(members.into()).map(Box::new).map(Self::Http),
            None | Some(Value::Null) => Err(FieldError::new("missing_field", "action.type", "missing field `type`")),
            Some(_) => Err(FieldError::invalid("action.type", "action.type must be \"log\" or \"http\"")),
        }
    }
}

impl Log {
    fn parse(document: Value) -> Result<Self, FieldError> {
        let log: Self = parse_fields(document)?;
        field::check_text("action.message", &log.message, 1, 10_000)?;
        Ok(log)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    method: String,
    url: String,
    headers: Option<BTreeMap<String, Value>>,
    body: Option<Value>,
}

impl Http {
    fn parse(document: Value) -> Result<Self, FieldError> {
        let written: Written = parse_fields(document)?;
        Ok(Self {
            method: method(&written.method)?,
            url: url(&written.url)?,
            headers: headers(written.headers.unwrap_or_default())?,
            body: written.body,
        })
    }
}

fn parse_fields<T: serde::de::DeserializeOwned>(document: Value) -> Result<T, FieldError> {
    field::parse_document("action", document)
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
        return Err(refuse("action.url must have at most 2048 bytes"));
    }
    let url = Url::parse(written).map_err(|error| refuse(&format!("action.url is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("action.url must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("action.url must not contain a user or a password: send a header instead"));
    }
    Ok(url)
}

fn headers(written: BTreeMap<String, Value>) -> Result<HeaderMap, FieldError> {
    if written.len() > 50 {
        return Err(FieldError::invalid("action.headers", "action.headers must have at most 50 headers"));
    }
    written.into_iter().map(|(name, value)| header(&name, &value)).collect()
}

fn header(name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), FieldError> {
    let field = format!("action.headers.{name}");
    let parsed = HeaderName::from_str(name).map_err(|_| {
        FieldError::invalid(&field, "the name of the header is not valid: use letters, digits and hyphens")
    })?;
    if RESERVED_HEADERS.contains(&parsed.as_str())
        || parsed.as_str().starts_with("x-cronbox-")
        || parsed.as_str().starts_with("webhook-")
    {
        return Err(FieldError::invalid(&field, format!("the header {parsed} is reserved: remove it")));
    }
    let Value::String(text) = value else {
        return Err(FieldError::invalid(&field, "header values are write-only: send the value again"));
    };
    field::check_text(&field, text, 0, 4_096)?;
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| FieldError::invalid(&field, "the value of the header is not valid: use printable ASCII"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    /// The API shows header values as null. A client that sends such an action back must not empty its headers.
    #[test]
    fn null_headers_are_refused() {
        let (_, detail) = refused(json!({"method": "GET", "url": "https://a.example", "headers": {"a": null}}));
        assert_eq!(detail, "header values are write-only: send the value again");
    }
}
