//! Step 1 of 7: the action of a workflow, parsed from its document. `actions/` performs it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::definition::field::{self, FieldError};
use crate::definition::reference::BEGIN;

/// Headers that we set, or that would change how the request is framed or routed.
const RESERVED_HEADERS: [&str; 8] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"];

/// Headers about the connection, a proxy or the message itself. Actions of earlier versions may have them, and are sent.
const RESERVED_IN_NEW: [&str; 9] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "http2-settings",
    "date",
    "via",
    "forwarded",
    "early-data",
];

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

/// Checks what only a new or changed action must fulfil.
///
/// # Errors
/// Returns the field of a header that is reserved, or whose name another header has in other case.
pub fn check_new_action(document: &Value) -> Result<(), FieldError> {
    let names = document.get("headers").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    let mut seen = BTreeSet::new();
    for name in names {
        let (field, lowercase) = (format!("action.headers.{name}"), name.to_ascii_lowercase());
        if RESERVED_IN_NEW.contains(&lowercase.as_str()) {
            return Err(FieldError::invalid(&field, format!("the header {lowercase} is reserved: remove it")));
        }
        if !seen.insert(lowercase) {
            return Err(FieldError::invalid(&field, "the header is named twice, in upper and lower case: remove one"));
        }
    }
    Ok(())
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
    if written.contains(BEGIN) {
        return Err(refuse("action.url must not refer to a secret: use a header or the body"));
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

    /// One of two equal names would win, and nothing would say which.
    #[test]
    fn new_actions_have_no_reserved_or_equal_headers() {
        let refused = |headers: Value| {
            let document = json!({"type": "http", "method": "GET", "url": "https://a.example", "headers": headers});
            assert!(Action::parse(&document).is_ok(), "what is stored is still sent");
            check_new_action(&document).map_err(|error| error.field)
        };
        for name in RESERVED_IN_NEW {
            let capital = name.to_ascii_uppercase();
            assert_eq!(refused(json!({ name: "x" })), Err(format!("action.headers.{name}")));
            assert_eq!(refused(json!({ capital.as_str(): "x" })), Err(format!("action.headers.{capital}")));
        }
        assert_eq!(refused(json!({"X-A": "1", "b": "2", "x-a": "3"})), Err("action.headers.x-a".to_owned()));
        assert_eq!(refused(json!({"x-a": "1", "x-b": "2"})), Ok(()));
    }

    /// The API shows header values as null. A client that sends such an action back must not empty its headers.
    #[test]
    fn null_headers_are_refused() {
        let (_, detail) = refused(json!({"method": "GET", "url": "https://a.example", "headers": {"a": null}}));
        assert_eq!(detail, "header values are write-only: send the value again");
    }
}
