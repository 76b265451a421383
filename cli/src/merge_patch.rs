//! The merge patch (RFC 7396) that makes a workflow as a user wants it: the only form in which this program changes one.
//!
//! It keeps what it does not name, also header values and marked secrets, which only the app knows. Null removes a member: so it
//! restores a default, but it cannot write a null into inputs or a body. Such a null is refused here, because the app would
//! drop the member without a word.

use anyhow::bail;
use api_types::workflows::WorkflowView;
use serde_json::{Map, Value};

/// The fields that null restores to their defaults.
pub(crate) const OPTIONAL: [&str; 17] = [
    "description",
    "labels",
    "cron_schedule",
    "timezone",
    "is_api",
    "starting_inputs",
    "starts_at",
    "ends_at",
    "overlap_policy",
    "max_concurrent",
    "catch_up_policy",
    "catch_up_window_secs",
    "spread_secs",
    "timeout_secs",
    "max_attempts",
    "on_lost",
    "pause_after_failures",
];

/// Returns the patch that gives a workflow these fields, each completely; null restores a default.
///
/// `existing` is the complete workflow as the app shows it, not the item of a list. A null below a header, and in a marked
/// secret, keeps the stored value if there is one.
///
/// # Errors
/// Fails if the app would drop a null: one that keeps no stored value, or that names no field with a default.
pub(crate) fn make_merge_patch(existing: &WorkflowView, wanted: &Map<String, Value>) -> anyhow::Result<Value> {
    make_patch(&serde_json::to_value(existing)?, wanted)
}

fn make_patch(existing: &Value, wanted: &Map<String, Value>) -> anyhow::Result<Value> {
    let mut patch = Map::new();
    for (field, after) in wanted {
        if after.is_null() && !OPTIONAL.contains(&field.as_str()) {
            bail!("{field} is no field that can be removed");
        }
        let before = &existing[field];
        refuse_lost_nulls(field, before, after)?;
        patch.extend(find_difference(field, before, after).map(|difference| (field.clone(), difference)));
    }
    Ok(Value::Object(patch))
}

/// The merge patch that makes `after` of `before`; `None` if they are equal.
fn find_difference(path: &str, before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return Some(after.clone()) };
    // The app replaces a marked secret completely.
    if is_mark(path, before) {
        return Some(after.clone());
    }
    let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let written = new.iter().filter_map(|(name, value)| {
        let difference = match old.get(name) {
            Some(old) => find_difference(&format!("{path}.{name}"), old, value)?,
            None => value.clone(),
        };
        Some((name.clone(), difference))
    });
    Some(Value::Object(removed.chain(written).collect()))
}

/// Refuses a null that is not what the app shows there already: it would remove the member, or keep a value that does not exist.
fn refuse_lost_nulls(path: &str, before: &Value, after: &Value) -> anyhow::Result<()> {
    // A patch replaces an array completely, with its nulls.
    let Value::Object(members) = after else { return Ok(()) };
    if before == after {
        return Ok(());
    }
    let is_replaced = is_mark(path, before);
    for (name, value) in members {
        let path = format!("{path}.{name}");
        let before = before.get(name).filter(|_| !is_replaced);
        // These mean the same as no member.
        let is_absence = ["action.headers", "action.body"].contains(&path.as_str());
        if value.is_null() && before != Some(value) && !is_absence {
            bail!(
                "{path} cannot become null: in the change of a workflow that exists, null removes a member, or keeps the stored \
                 value of a header or of a marked secret. Leave it out, or write it by the API as application/json"
            );
        }
        refuse_lost_nulls(&path, before.unwrap_or(&Value::Null), value)?;
    }
    Ok(())
}

/// Whether the app reads this object of inputs or of a body as a marked secret.
fn is_mark(path: &str, value: &Value) -> bool {
    let is_markable = ["starting_inputs", "action.body"].into_iter().any(|root| {
        let below = path.strip_prefix(root);
        below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
    });
    is_markable && value.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("secret"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the app makes of a document by a merge patch; `is_markable`: in inputs or in a body.
    fn merge(target: &mut Value, patch: &Value, is_markable: bool) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        let is_marked = |members: &Map<String, Value>| is_markable && members.keys().eq(["secret"]);
        if target.as_object().is_none_or(is_marked) {
            *target = json!({});
        }
        for (name, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(name);
            } else {
                merge(&mut target[name], value, is_markable);
            }
        }
    }

    /// What the app shows of a document: marked secrets read as null.
    fn shown(document: &Value) -> Value {
        match document {
            Value::Array(items) => items.iter().map(shown).collect(),
            Value::Object(members) if members.keys().eq(["secret"]) => json!({"secret": null}),
            Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), shown(value))).collect(),
            other => other.clone(),
        }
    }

    fn has_null(document: &Value) -> bool {
        match document {
            Value::Object(members) => members.values().any(|value| value.is_null() || has_null(value)),
            _ => false,
        }
    }

    fn documents() -> Vec<Value> {
        let leaves = [
            json!(null),
            json!(1),
            json!([null, {"x": null}]),
            json!([{"secret": "stored"}]),
            json!({}),
            json!({"x": null}),
            json!({"x": 2}),
            json!({"secret": "stored"}),
            json!({"secret": {"x": null}}),
            json!({"secret": "stored", "x": 1}),
            json!({"secret": null, "x": 1}),
        ];
        let mut documents: Vec<Value> = leaves.iter().filter(|leaf| leaf.is_object()).cloned().collect();
        documents.extend(leaves.iter().map(|leaf| json!({ "a": leaf })));
        documents.extend(leaves.iter().map(|leaf| json!({"a": {"b": leaf, "c": 1}})));
        documents
    }

    /// From every document to every other one: the app stores what was wanted, and keeps each secret that reads as null; or the
    /// patch is refused.
    #[test]
    fn a_patch_makes_what_was_wanted_or_is_refused() {
        let mut refused = 0;
        for before in documents() {
            for wanted in documents().iter().flat_map(|wanted| [wanted.clone(), shown(wanted)]) {
                let existing = json!({"starting_inputs": shown(&before)});
                let fields = json!({ "starting_inputs": wanted });
                let Ok(patch) = make_patch(&existing, fields.as_object().unwrap()) else {
                    assert!(has_null(&wanted), "{before} to {wanted}");
                    refused += 1;
                    continue;
                };
                let mut after = json!({ "starting_inputs": before });
                merge(&mut after, &patch, true);
                assert_eq!(shown(&after["starting_inputs"]), shown(&wanted), "{before} to {wanted} by {patch}");
                if shown(&before) == wanted {
                    assert_eq!(after["starting_inputs"], before, "it is kept: {patch}");
                }
            }
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn names_of_headers_and_labels_mark_nothing() {
        let existing = json!({"labels": {"secret": "x"}, "action": {"headers": {"secret": null}}});
        let wanted = json!({"labels": {"owner": "a"}, "action": {"headers": {"secret": null, "b": "1"}}});
        let patch = make_patch(&existing, wanted.as_object().unwrap()).unwrap();
        let expected = json!({"labels": {"owner": "a", "secret": null}, "action": {"headers": {"b": "1"}}});
        assert_eq!(patch, expected);
    }

    #[test]
    fn null_restores_only_what_has_a_default() {
        let existing = json!({"ends_at": "2030-01-01T00:00:00Z", "timezone": null, "state": "paused", "name": "a"});
        let patch = |wanted: Value| make_patch(&existing, wanted.as_object().unwrap());
        assert_eq!(patch(json!({"ends_at": null, "timezone": null})).unwrap(), json!({"ends_at": null}));
        for field in ["end_at", "state", "name", "managed_by"] {
            let error = patch(json!({ field: null })).unwrap_err();
            assert_eq!(error.to_string(), format!("{field} is no field that can be removed"));
        }
    }

    #[test]
    fn a_lost_null_is_named() {
        let existing = json!({"action": {"headers": {"a": null}}, "starting_inputs": {"limit": 5}});
        for (wanted, path) in [
            (json!({"starting_inputs": {"limit": null}}), "starting_inputs.limit"),
            (json!({"starting_inputs": {"new": {"b": null}}}), "starting_inputs.new.b"),
            (json!({"action": {"headers": {"a": null, "b": null}}}), "action.headers.b"),
            (json!({"action": {"body": {"b": null}}}), "action.body.b"),
            (json!({"labels": {"b": null}}), "labels.b"),
        ] {
            let error = make_patch(&existing, wanted.as_object().unwrap()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path} cannot become null: ")), "{error}");
        }
        let absent = json!({"action": {"body": null, "headers": null}});
        assert_eq!(make_patch(&existing, absent.as_object().unwrap()).unwrap(), absent);
    }
}
