//! Step 1 of 7: what an audit entry keeps of two states of an object: what differs, and of large values a digest.

use serde_json::{Map, Value};

use crate::definition::redaction::digest_value;

/// A member of an object whose JSON is longer is replaced by its digest.
const LONGEST: usize = 1_024;

/// Removes what both states have, and replaces large values by their digests.
pub(super) fn reduce_states(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let (before, after) = match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let (before, after) = differing_members(before, after);
            (Some(Value::Object(before)), Some(Value::Object(after)))
        }
        states => states,
    };
    (before.map(digest_large_members), after.map(digest_large_members))
}

/// Returns the members that differ, and of members that are objects in both again only what differs.
fn differing_members(
    mut before: Map<String, Value>,
    after: Map<String, Value>,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut old, mut new) = (Map::new(), Map::new());
    for (name, value) in after {
        match (before.remove(&name), value) {
            (Some(same), value) if same == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                let (before, after) = differing_members(before, after);
                old.insert(name.clone(), Value::Object(before));
                new.insert(name, Value::Object(after));
            }
            (before, value) => {
                if let Some(before) = before {
                    old.insert(name.clone(), before);
                }
                new.insert(name, value);
            }
        }
    }
    old.extend(before);
    (old, new)
}

fn digest_large_members(state: Value) -> Value {
    match state {
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, digest_large_value(value))).collect(),
        other => other,
    }
}

/// Returns a small value itself, or the digest and the length of the JSON of a large one.
fn digest_large_value(value: Value) -> Value {
    if value.to_string().len() <= LONGEST { value } else { digest_value(&value) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reduced(before: Value, after: Value) -> (Value, Value) {
        let (before, after) = reduce_states(Some(before), Some(after));
        (before.unwrap(), after.unwrap())
    }

    #[test]
    fn only_differences_are_kept() {
        let before = json!({"name": "a", "version": 1, "inputs": {"a": 1, "b": {"c": 2, "d": 3}}, "cron": "0 9 * * *"});
        let after = json!({"name": "a", "version": 2, "inputs": {"a": 1, "b": {"c": 4, "d": 3}}, "until": null});
        let expected = (
            json!({"version": 1, "inputs": {"b": {"c": 2}}, "cron": "0 9 * * *"}),
            json!({"version": 2, "inputs": {"b": {"c": 4}}, "until": null}),
        );
        assert_eq!(reduced(before, after), expected);
    }

    #[test]
    fn large_values_become_digests() {
        let (before, after) = reduced(json!({"inputs": {"a": "x".repeat(9_000)}}), json!({"inputs": {"a": "y"}}));
        assert_eq!(before["inputs"]["bytes"], 9_008);
        assert_eq!(before["inputs"]["sha256"].as_str().map(str::len), Some(64));
        assert_eq!(after, json!({"inputs": {"a": "y"}}));
        let (_, created) = reduce_states(None, Some(json!({"inputs": {"a": "x".repeat(9_000)}})));
        assert_eq!(created.unwrap()["inputs"], before["inputs"], "the same value has the same digest");
    }
}
