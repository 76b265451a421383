//! Step 1 of 7: what views, the audit log and logs show of an action and of inputs, and what a new origin requires.
//!
//! Three kinds of values are secrets. The values of headers are write-only. A value that is marked, as
//! `{"secret": "value"}` in a body or in inputs, is write-only, too. A URL may have a token in its path or its query, so a
//! viewer sees only its origin.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::definition::field::FieldError;

/// The member of an object that marks its value as a secret.
pub(super) const MARK: &str = "secret";
/// The member beside it that [`secret_inputs`](super::secret_inputs) adds; clients must not send it.
pub(super) const ORIGIN: &str = "secret_origin";

/// The reader of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// May only read: sees the origin of a URL.
    Viewer,
    /// May write: sees the complete URL.
    Editor,
}

/// Returns the origin of an action's URL, for example `https://a.example:8443`; `None` without a valid URL.
#[must_use]
pub fn origin_of_action(action: &Value) -> Option<String> {
    origin_of_url(action.get("url")?.as_str()?)
}

/// Returns the origin of a URL: scheme, host and port; `None` if it is not valid.
#[must_use]
pub fn origin_of_url(url: &str) -> Option<String> {
    Url::parse(url).ok().map(|url| url.origin().ascii_serialization())
}

/// Returns the action as the API shows it: header values and marked values are null.
#[must_use]
pub fn show_action(action: &Value, audience: Audience) -> Value {
    let mut shown = action.clone();
    hide_headers(&mut shown);
    if let Some(body) = shown.get_mut("body") {
        redact_marked(body);
    }
    if audience == Audience::Viewer
        && let Some(url) = shown.get_mut("url")
    {
        *url = json!(origin_of_action(action));
    }
    shown
}

/// Returns the action as the audit log keeps it: of the URL its origin, of the body a digest.
#[must_use]
pub fn audit_action(action: &Value) -> Value {
    let mut kept = show_action(action, Audience::Viewer);
    // After the marked values were removed, because a short secret could be found by its digest.
    if let Some(body) = kept.get_mut("body").filter(|body| !body.is_null()) {
        *body = digest_value(body);
    }
    kept
}

/// Returns the digest and the length of a value's JSON.
pub(crate) fn digest_value(value: &Value) -> Value {
    let json = value.to_string();
    json!({ "sha256": const_hex::encode(Sha256::digest(&json)), "bytes": json.len() })
}

/// Replaces each marked value by null.
pub fn redact_marked(document: &mut Value) {
    match document {
        Value::Array(items) => items.iter_mut().for_each(redact_marked),
        Value::Object(members) => redact_members(members),
        _ => {}
    }
}

/// As [`redact_marked`], of inputs.
pub fn redact_members(members: &mut Map<String, Value>) {
    match marked_value(members) {
        Some(_) => {
            members.remove(ORIGIN);
            members.insert(MARK.to_owned(), Value::Null);
        }
        None => members.values_mut().for_each(redact_marked),
    }
}

/// Returns JSON text with each marked value replaced by null; other text is returned unchanged and unparsed. `None`: the text
/// cannot be read, so it is not known what is marked.
#[must_use]
pub fn redact_text(json: String) -> Option<String> {
    if !json.contains("\"secret\"") {
        return Some(json);
    }
    let mut document: Value = serde_json::from_str(&json).ok()?;
    redact_marked(&mut document);
    Some(document.to_string())
}

/// Refuses marked values that are null, as views show them: a client that sends a view back must not empty its secrets.
///
/// # Errors
/// Returns the path of the first one.
pub fn refuse_redacted(field: &str, document: &Value) -> Result<(), FieldError> {
    match document {
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(i, item)| refuse_redacted(&format!("{field}.{i}"), item))
        }
        Value::Object(members) => refuse_redacted_members(field, members),
        _ => Ok(()),
    }
}

/// As [`refuse_redacted`], of inputs.
///
/// # Errors
/// Returns the path of the first one.
pub fn refuse_redacted_members(field: &str, members: &Map<String, Value>) -> Result<(), FieldError> {
    match marked_value(members) {
        Some(Value::Null) => Err(FieldError::invalid(field, "secret values are write-only: send the value again")),
        Some(_) if members.contains_key(ORIGIN) => {
            Err(FieldError::invalid(field, "cronbox adds `secret_origin`: leave it out"))
        }
        Some(_) => Ok(()),
        None => members.iter().try_for_each(|(name, value)| refuse_redacted(&format!("{field}.{name}"), value)),
    }
}

/// Refuses a change of the URL's origin that keeps a secret: an editor could send a value to a server of their own that
/// they may write but not read. `sent` is the patch, `after` the document that it makes.
///
/// # Errors
/// Returns the path of the first secret that the patch does not have.
pub fn require_secrets_again(before: &Value, after: &Value, sent: &Value) -> Result<(), FieldError> {
    let (old, new) = (&before["action"], &after["action"]);
    if origin_of_action(new).is_none() || origin_of_action(old) == origin_of_action(new) {
        return Ok(());
    }
    let kept = kept_header(&new["headers"], &sent["action"]["headers"]).map(|name| format!("action.headers.{name}"));
    if let Some(field) = kept {
        return Err(FieldError::invalid(field, "the URL has another origin: send the header values again"));
    }
    let marked = |path: &str, after: &Value, sent: &Value| match kept_mark(path, after, sent) {
        Some(field) => Err(FieldError::invalid(field, "the URL has another origin: send the secret values again")),
        None => Ok(()),
    };
    marked("action.body", &new["body"], &sent["action"]["body"])?;
    marked("starting_inputs", &after["starting_inputs"], &sent["starting_inputs"])
}

/// Returns the first header that the patch does not have.
fn kept_header<'a>(after: &'a Value, sent: &Value) -> Option<&'a String> {
    after.as_object()?.keys().find(|name| sent.get(name.as_str()).is_none_or(Value::is_null))
}

/// Returns the path of the first marked value that the patch does not have.
fn kept_mark(path: &str, after: &Value, sent: &Value) -> Option<String> {
    match after {
        Value::Array(items) => items.iter().enumerate().find_map(|(i, item)| {
            let sent = sent.get(i).unwrap_or(&Value::Null);
            kept_mark(&format!("{path}.{i}"), item, sent)
        }),
        Value::Object(members) => match marked_value(members) {
            Some(_) => sent.get(MARK).is_none_or(Value::is_null).then(|| path.to_owned()),
            None => members.iter().find_map(|(name, value)| {
                let sent = sent.get(name).unwrap_or(&Value::Null);
                kept_mark(&format!("{path}.{name}"), value, sent)
            }),
        },
        _ => None,
    }
}

/// Returns the value of an object that marks it as a secret: it has no other member, except the origin of the value.
pub(super) fn marked_value(members: &Map<String, Value>) -> Option<&Value> {
    members.get(MARK).filter(|_| members.keys().all(|name| name == MARK || name == ORIGIN))
}

/// Replaces the values of all headers by null.
pub(super) fn hide_headers(action: &mut Value) {
    if let Some(headers) = action.get_mut("headers").and_then(Value::as_object_mut) {
        headers.values_mut().for_each(|value| *value = Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action() -> Value {
        json!({"type": "http", "method": "POST", "url": "https://a.example/hook/path-token?key=query-token",
               "headers": {"authorization": "header-token"}, "body": {"to": "b", "pass": {"secret": "marked-token"}}})
    }

    #[test]
    fn viewers_see_only_the_origin() {
        let shown = show_action(&action(), Audience::Viewer);
        assert_eq!(shown["url"], "https://a.example");
        assert_eq!(shown["headers"], json!({"authorization": null}));
        assert_eq!(shown["body"], json!({"to": "b", "pass": {"secret": null}}));
        assert_eq!(show_action(&action(), Audience::Editor)["url"], action()["url"]);
    }

    #[test]
    fn the_audit_log_keeps_digests_of_bodies() {
        let kept = audit_action(&action());
        assert!(!kept.to_string().contains("token"), "{kept}");
        assert_eq!(kept["url"], "https://a.example");
        let mut other = action();
        other["url"] = json!("https://a.example/hook/other");
        assert_eq!(audit_action(&other), kept, "a token of a few digits could be found by a digest of the URL");
        other["body"]["to"] = json!("c");
        assert_ne!(audit_action(&other)["body"], kept["body"], "a changed body is seen");
    }

    #[test]
    fn a_mark_is_the_only_member() {
        let mut document = json!([{"secret": "a", "b": 1}, {"c": {"secret": {"d": "e"}}}]);
        assert!(refuse_redacted("inputs", &document).is_ok());
        redact_marked(&mut document);
        assert_eq!(document, json!([{"secret": "a", "b": 1}, {"c": {"secret": null}}]));
        assert_eq!(refuse_redacted("inputs", &document).unwrap_err().field, "inputs.1.c");
        assert_eq!(redact_text(r#"{"secret": "a"}"#.to_owned()).as_deref(), Some(r#"{"secret":null}"#));
        // Postgres stores numbers that this program cannot read.
        assert_eq!(redact_text(r#"{"secret": "a", "b": 1e400}"#.to_owned()), None);
    }

    #[test]
    fn a_new_origin_requires_each_secret() {
        let before = json!({"action": action(), "starting_inputs": {"pin": {"secret": 1}}});
        let refused = |url: &str, sent: Value| {
            let mut after = before.clone();
            after["action"]["url"] = json!(url);
            require_secrets_again(&before, &after, &sent).err().map(|error| error.field)
        };
        let all = json!({"action": {"headers": {"authorization": "x"}, "body": {"pass": {"secret": "y"}}},
                         "starting_inputs": {"pin": {"secret": 2}}});
        assert_eq!(refused("https://b.example", all.clone()), None);
        assert_eq!(refused("https://a.example/other", json!({})), None, "the origin is the same");
        for (url, left_out, field) in [
            ("https://b.example", "/action/headers/authorization", "action.headers.authorization"),
            ("https://a.example:8443", "/action/body/pass/secret", "action.body.pass"),
            ("http://a.example", "/starting_inputs/pin", "starting_inputs.pin"),
        ] {
            let mut sent = all.clone();
            *sent.pointer_mut(left_out).unwrap() = Value::Null;
            assert_eq!(refused(url, sent).as_deref(), Some(field));
        }
    }
}
