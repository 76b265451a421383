//! Step 1 of 7: applies a PATCH to a document, in one of two formats.

use serde_json::{Map, Value};

/// The format of a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json`: a top-level null counts as absent, any other value replaces the existing one completely.
    Replace,
    /// `application/merge-patch+json`: RFC 7396.
    Merge,
}

/// Returns a document after a patch.
pub(super) fn apply_patch(mut document: Value, patch: Map<String, Value>, kind: PatchKind) -> Value {
    match kind {
        PatchKind::Merge => merge(&mut document, Value::Object(patch)),
        PatchKind::Replace => {
            if let Value::Object(members) = &mut document {
                members.extend(patch.into_iter().filter(|(_, value)| !value.is_null()));
            }
        }
    }
    document
}

/// RFC 7396, section 2.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(members) = target {
        for (key, value) in patch {
            if value.is_null() {
                members.remove(&key);
            } else {
                merge(members.entry(key).or_insert(Value::Null), value);
            }
        }
    }
}
