//! Step 1 of 7: references to the secrets of a team, `${secret:name}`, in the header values and the body of an action.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// What a reference begins with; it ends with `}`.
pub const BEGIN: &str = "${secret:";

/// Returns the names that an action refers to, each with the first field that does. Encrypted header values are not read.
#[must_use]
pub fn referenced_names(action: &Value) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    if let Some(headers) = action.get("headers").and_then(Value::as_object) {
        for (header, value) in headers {
            collect_names(&format!("action.headers.{header}"), value, &mut names);
        }
    }
    if let Some(body) = action.get("body") {
        collect_names("action.body", body, &mut names);
    }
    names
}

fn collect_names(field: &str, value: &Value, names: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            let found = text.split(BEGIN).skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
            for name in found {
                names.entry(name.to_owned()).or_insert_with(|| field.to_owned());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(field, item, names)),
        Value::Object(members) => members.values().for_each(|member| collect_names(field, member, names)),
        _ => {}
    }
}

/// Replaces the references of an action by these values. Other text does not change, nor do values that are inserted.
pub fn replace_references(action: &mut Value, values: &HashMap<String, String>) {
    for field in ["headers", "body"] {
        if let Some(value) = action.get_mut(field) {
            replace_in_value(value, values);
        }
    }
}

fn replace_in_value(value: &mut Value, values: &HashMap<String, String>) {
    match value {
        Value::String(text) if text.contains(BEGIN) => *text = replace_in_text(text, values),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in_value(item, values)),
        Value::Object(members) => members.values_mut().for_each(|member| replace_in_value(member, values)),
        _ => {}
    }
}

fn replace_in_text(text: &str, values: &HashMap<String, String>) -> String {
    let mut parts = text.split(BEGIN);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}').and_then(|(name, rest)| Some((values.get(name)?, rest))) {
            Some((value, rest)) => replaced.extend([value, rest]),
            None => replaced.extend([BEGIN, part]),
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_and_replaced() {
        let mut action = json!({"url": "https://a.example", "headers": {"authorization": "Bearer ${secret:a}", "x": "${secret:open"},
                                "body": [{"b": "${secret:b}-${secret:a}"}, 1, "$ {secret:c}"]});
        let names = referenced_names(&action);
        let expected = [("a", "action.headers.authorization"), ("b", "action.body")];
        assert_eq!(names, expected.map(|(name, field)| (name.to_owned(), field.to_owned())).into());
        // A value that looks like a reference is not replaced again.
        let values = [("a", "${secret:b}"), ("b", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        replace_references(&mut action, &values.into());
        assert_eq!(action["headers"], json!({"authorization": "Bearer ${secret:b}", "x": "${secret:open"}));
        assert_eq!(action["body"], json!([{"b": "2-${secret:b}"}, 1, "$ {secret:c}"]));
    }
}
