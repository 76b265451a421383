//! Step 7 of 7: marked values among the inputs of one run, which may go only to the origin that they were sent for.
//!
//! A run is accepted with its inputs, and sends them later: after it has waited, at a further attempt, or when it is repeated.
//! Meanwhile an editor, who must not read the values, may change the URL. An edit cannot require them again, as
//! [`require_secrets_again`](super::redaction::require_secrets_again) does for what the workflow itself has, because they
//! belong to the run. So each marked value keeps the origin that the action had when a caller sent it.

use serde_json::{Map, Value, json};

use super::redaction::{ORIGIN, marked_value, origin_of_action};

/// A marked value was sent for another origin than the action has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherOrigin;

/// Adds the origin of the action to each marked value.
pub fn bind_to_origin(inputs: &mut Map<String, Value>, action: &Value) {
    if marked_value(inputs).is_some() {
        inputs.insert(ORIGIN.to_owned(), json!(origin_of_action(action)));
    } else {
        inputs.values_mut().for_each(|value| bind_value(value, action));
    }
}

fn bind_value(value: &mut Value, action: &Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| bind_value(item, action)),
        Value::Object(members) => bind_to_origin(members, action),
        _ => {}
    }
}

/// Returns the inputs as a caller sent them, if the action still has the origin of each marked value.
///
/// # Errors
/// Refuses a marked value of another origin.
pub fn release_for_action(inputs: &Value, action: &Value) -> Result<Value, OtherOrigin> {
    match inputs {
        Value::Array(items) => {
            items.iter().map(|item| release_for_action(item, action)).collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(members) => release_members(members, action).map(Value::Object),
        other => Ok(other.clone()),
    }
}

fn release_members(members: &Map<String, Value>, action: &Value) -> Result<Map<String, Value>, OtherOrigin> {
    if marked_value(members).is_none() {
        let release = |(name, value): (&String, &Value)| Ok((name.clone(), release_for_action(value, action)?));
        return members.iter().map(release).collect();
    }
    // The workflow's own starting inputs have no origin: an edit of the URL requires them again.
    if members.get(ORIGIN).is_some_and(|origin| *origin != json!(origin_of_action(action))) {
        return Err(OtherOrigin);
    }
    let mut released = members.clone();
    released.remove(ORIGIN);
    Ok(released)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(url: &str) -> Value {
        json!({"type": "http", "url": url})
    }

    #[test]
    fn marked_inputs_go_only_to_their_origin() {
        let sent = json!({"a": [1, {"pin": {"secret": {"b": 2}}}], "c": {"secret": "d", "e": 3}});
        let mut inputs = sent.as_object().unwrap().clone();
        bind_to_origin(&mut inputs, &action("https://a.example/x"));
        let inputs = Value::Object(inputs);
        assert_eq!(inputs["c"], sent["c"], "an object with further members is not marked");
        assert_eq!(release_for_action(&inputs, &action("https://a.example/other?y")), Ok(sent.clone()));
        for url in ["https://a.example:8443/x", "http://a.example/x", "https://b.example/x"] {
            assert_eq!(release_for_action(&inputs, &action(url)), Err(OtherOrigin), "{url}");
        }
        assert_eq!(release_for_action(&inputs, &json!({"type": "log"})), Err(OtherOrigin));
        assert_eq!(release_for_action(&sent, &action("https://b.example")), Ok(sent), "starting inputs have no origin");
    }

    #[test]
    fn inputs_that_are_one_secret_are_bound() {
        let mut inputs = json!({"secret": 1}).as_object().unwrap().clone();
        bind_to_origin(&mut inputs, &json!({"type": "log"}));
        assert_eq!(release_for_action(&json!(inputs), &json!({"type": "log"})), Ok(json!({"secret": 1})));
        assert_eq!(release_for_action(&json!(inputs), &action("https://a.example")), Err(OtherOrigin));
    }
}
