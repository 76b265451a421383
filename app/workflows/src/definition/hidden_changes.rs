//! Step 1 of 7: which values of a workflow changed that the audit log does not show, by their paths.
//!
//! Only the paths: a digest of a short secret, or of a URL with a token, would permit a reader to guess it.

use serde_json::{Map, Value};

use super::redaction::marked_value;

/// Lists the values that both documents have and that differ: the URL, header values and marked values.
///
/// A header value that was sent again unchanged keeps its ciphertext, and is not in the list.
#[must_use]
pub fn list_hidden_changes(before: &Value, after: &Value) -> Vec<String> {
    let (old, new) = (&before["action"], &after["action"]);
    let mut changes = Vec::new();
    if old["url"].is_string() && new["url"].is_string() && old["url"] != new["url"] {
        changes.push("action.url".to_owned());
    }
    if let (Some(old), Some(new)) = (old["headers"].as_object(), new["headers"].as_object()) {
        let is_changed = |(name, value): &(&String, &Value)| old.get(*name).is_some_and(|old| old != *value);
        changes.extend(new.iter().filter(is_changed).map(|(name, _)| format!("action.headers.{name}")));
    }
    add_marked("action.body", &old["body"], &new["body"], &mut changes);
    add_marked("starting_inputs", &before["starting_inputs"], &after["starting_inputs"], &mut changes);
    changes
}

fn add_marked(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Array(old), Value::Array(new)) => {
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                add_marked(&format!("{path}.{i}"), old, new, changes);
            }
        }
        (Value::Object(old), Value::Object(new)) => match (marked_value(old), marked_value(new)) {
            (Some(old), Some(new)) if old != new => changes.push(path.to_owned()),
            (Some(_), _) | (_, Some(_)) => {}
            (None, None) => add_marked_members(path, old, new, changes),
        },
        _ => {}
    }
}

fn add_marked_members(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, changes: &mut Vec<String>) {
    for (name, new) in after {
        if let Some(old) = before.get(name) {
            add_marked(&format!("{path}.{name}"), old, new, changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_secrets_are_named() {
        let before = json!({
            "action": {"url": "https://a.example/token", "headers": {"a": "1", "b": "2", "c": "3"},
                       "body": {"pass": {"secret": "p"}, "list": [{"secret": 1}, {"secret": 2}], "to": "x"}},
            "starting_inputs": {"pin": {"secret": "1234"}, "same": {"secret": true}},
        });
        let mut after = before.clone();
        assert_eq!(list_hidden_changes(&before, &after), [""; 0]);
        after["action"]["url"] = json!("https://a.example/other");
        after["action"]["headers"] = json!({"a": "1", "b": "5", "d": "new"});
        after["action"]["body"]["to"] = json!("y");
        after["action"]["body"]["list"][1]["secret"] = json!({"x": 3});
        after["starting_inputs"]["pin"]["secret"] = json!("4321");
        assert_eq!(
            list_hidden_changes(&before, &after),
            ["action.url", "action.headers.b", "action.body.list.1", "starting_inputs.pin"]
        );
    }
}
