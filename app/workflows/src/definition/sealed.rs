//! Step 1 of 7: header values that are encrypted at rest, as the stored action has them: `{"sealed": "1:.."}`.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::definition::field::FieldError;

/// Returns the ciphertext of a header value that is encrypted.
#[must_use]
pub fn sealed_text(value: &Value) -> Option<&str> {
    value.as_object().filter(|members| members.len() == 1)?.get("sealed")?.as_str()
}

/// Returns a header value that is encrypted.
#[must_use]
pub fn sealed_value(ciphertext: &str) -> Value {
    json!({ "sealed": ciphertext })
}

/// Returns the action for its validation: an encrypted header value that the existing action has, too, becomes an empty
/// text. A client knows no ciphertext, so any other one is refused.
///
/// # Errors
/// Returns the header whose value is not that of the existing action.
pub(crate) fn without_existing_seals<'a>(
    action: &'a Value,
    existing: Option<&Value>,
) -> Result<Cow<'a, Value>, FieldError> {
    let Some(headers) = action.get("headers").and_then(Value::as_object) else { return Ok(Cow::Borrowed(action)) };
    if !headers.values().any(Value::is_object) {
        return Ok(Cow::Borrowed(action));
    }
    let mut written = action.clone();
    for (name, value) in headers.iter().filter(|(_, value)| value.is_object()) {
        if existing.and_then(|existing| existing.get("headers")?.get(name)) != Some(value) {
            let field = format!("action.headers.{name}");
            return Err(FieldError::invalid(field, "header values are write-only: send the value again"));
        }
        written["headers"][name] = json!("");
    }
    Ok(Cow::Owned(written))
}
