//! Step 1 of 7: applies a PATCH to a document, in one of two formats.

use serde_json::{Map, Value};

use crate::definition::redaction;

/// The format of a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json`: a top-level null counts as absent, any other value replaces the existing one completely.
    Replace,
    /// `application/merge-patch+json`: RFC 7396, except that a secret is replaced completely.
    Merge,
}

/// Returns a document after a patch.
pub(super) fn apply_patch(mut document: Value, patch: Map<String, Value>, kind: PatchKind) -> Value {
    match kind {
        PatchKind::Merge => merge(&mut document, Value::Object(patch), Place::Document),
        PatchKind::Replace => {
            if let Value::Object(members) = &mut document {
                members.extend(patch.into_iter().filter(|(_, value)| !value.is_null()));
            }
        }
    }
    document
}

/// Where a value of a document is.
#[derive(Clone, Copy)]
enum Place {
    Document,
    Action,
    Headers,
    HeaderValue,
    /// In a body or in inputs, where values are marked as secrets.
    Markable,
    Other,
}

impl Place {
    fn of_member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Document, "action") => Self::Action,
            (Self::Document, "starting_inputs") | (Self::Action, "body") | (Self::Markable, _) => Self::Markable,
            (Self::Action, "headers") => Self::Headers,
            (Self::Headers, _) => Self::HeaderValue,
            _ => Self::Other,
        }
    }

    /// Whether a patch replaces this object: a patch of a part of a secret would remove its mark, or keep the stored value
    /// as if the client had sent it.
    fn is_replaced(self, members: &Map<String, Value>) -> bool {
        match self {
            Self::HeaderValue => true,
            Self::Markable => redaction::marked_value(members).is_some(),
            _ => false,
        }
    }
}

/// RFC 7396, section 2, except that a secret is replaced completely.
fn merge(target: &mut Value, patch: Value, place: Place) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if target.as_object().is_none_or(|members| place.is_replaced(members)) {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(members) = target {
        for (key, value) in patch {
            if value.is_null() {
                members.remove(&key);
            } else {
                let place = place.of_member(&key);
                merge(members.entry(key).or_insert(Value::Null), value, place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(document: Value, patch: Value) -> Value {
        let Value::Object(patch) = patch else { panic!("a patch is an object") };
        apply_patch(document, patch, PatchKind::Merge)
    }

    #[test]
    fn a_secret_is_replaced_completely() {
        let secret = json!({"secret": {"user": "u", "password": "p"}});
        for (sent, after) in [
            (json!({"x": 1}), json!({"x": 1})),
            (json!({}), json!({})),
            (json!({"secret": {}}), json!({"secret": {}})),
            (json!({"secret": {"user": "v"}}), json!({"secret": {"user": "v"}})),
            (json!({"secret": {"user": null}}), json!({"secret": {}})),
            (json!({"secret": null, "x": 1}), json!({"x": 1})),
            (json!([1]), json!([1])),
        ] {
            for path in ["/starting_inputs", "/starting_inputs/a", "/action/body", "/action/body/a/b"] {
                let nest = |value: &Value| {
                    path.rsplit('/')
                        .filter(|name| !name.is_empty())
                        .fold(value.clone(), |inner, name| json!({name: inner}))
                };
                assert_eq!(merged(nest(&secret), nest(&sent)), nest(&after), "{sent} at {path}");
            }
        }
    }

    #[test]
    fn an_encrypted_header_is_replaced_completely() {
        let before = json!({"action": {"headers": {"a": {"sealed": "1:x"}, "b": "2"}}});
        let after = merged(before, json!({"action": {"headers": {"a": {}}}}));
        assert_eq!(after, json!({"action": {"headers": {"a": {}, "b": "2"}}}));
    }

    /// Names of headers, and members of other objects, mark nothing.
    #[test]
    fn unmarked_objects_are_merged() {
        for (before, sent, after) in [
            (
                json!({"action": {"headers": {"secret": "1"}}}),
                json!({"action": {"headers": {"b": "2"}}}),
                json!({"action": {"headers": {"secret": "1", "b": "2"}}}),
            ),
            (
                json!({"action": {"headers": {"sealed": {"sealed": "1:x"}}}}),
                json!({"action": {"headers": {"b": "2"}}}),
                json!({"action": {"headers": {"sealed": {"sealed": "1:x"}, "b": "2"}}}),
            ),
            (
                json!({"action": {"body": {"a": {"sealed": "1"}, "c": {"secret": 1, "d": 2}}}}),
                json!({"action": {"body": {"a": {"b": 2}, "c": {"d": 3}}}}),
                json!({"action": {"body": {"a": {"sealed": "1", "b": 2}, "c": {"secret": 1, "d": 3}}}}),
            ),
            (
                json!({"starting_inputs": {"a": {"b": 1}, "pin": {"secret": 1}}}),
                json!({"starting_inputs": {"a": {"c": null, "d": [{"secret": 2}]}}}),
                json!({"starting_inputs": {"a": {"b": 1, "d": [{"secret": 2}]}, "pin": {"secret": 1}}}),
            ),
        ] {
            assert_eq!(merged(before, sent), after);
        }
    }
}
