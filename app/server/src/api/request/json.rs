//! Step 1 of 7: parses JSON. In the body of a client each name is sent once, so that it cannot mean one of two values.

use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::fmt;
use workflows::definition::field::{self, FieldError};

use super::error::Error;

/// Parses the body of a client.
///
/// # Errors
/// Returns 400 with the field. A name that an object has twice is one, at any depth, and so is an object with
/// [`field::RAW_NAME`], which the second reader would replace by another document.
pub(super) fn parse_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let DistinctValue(body) = parse_json(bytes)?;
    match body {
        // An optional body may be null: what has no default refuses it.
        Value::Object(_) | Value::Null => Ok(field::parse_document("", body)?),
        // A derived reader would take the items of an array as fields, by their positions.
        _ => Err(FieldError::invalid("", "the body must be a JSON object").into()),
    }
}

/// Parses a JSON document; of a name that an object has twice, the last value counts.
///
/// # Errors
/// Returns 400 with the field.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            field::from_serde("", &path, &inner.to_string())
        } else {
            FieldError::new("invalid_json", "", format!("the body is not JSON: {inner}"))
        }
    })?;
    deserializer
        .end()
        .map_err(|error| FieldError::new("invalid_json", "", format!("the body is not JSON: {error}")))?;
    Ok(parsed)
}

/// A value in which no object has a name twice.
struct DistinctValue(Value);

impl<'de> Deserialize<'de> for DistinctValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctNames).map(Self)
    }
}

struct DistinctNames;

impl<'de> Visitor<'de> for DistinctNames {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(DistinctValue(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut distinct = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == field::RAW_NAME {
                return Err(A::Error::custom(format!("the name {name} is reserved")));
            }
            if distinct.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            let DistinctValue(value) = members.next_value()?;
            distinct.insert(name, value);
        }
        Ok(Value::Object(distinct))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second reader takes the document of the first, so it must not change it.
    #[test]
    fn bodies_are_read_as_they_are_written() {
        let body = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, 1e300, "x\u0000é"], "b": {"a": {}, "c": []}}"#;
        let expected: Value = serde_json::from_str(body).unwrap();
        assert_eq!(parse_body::<Value>(body.as_bytes()).unwrap(), expected);
    }

    /// Wherever it is in an object, and however it is written.
    #[test]
    fn bodies_hide_no_other_document() {
        for object in [
            r#"{"$serde_json::private::RawValue": "{}"}"#,
            r#"{"a": [{"!": 1, "$serde_json::private::RawValue": "{}"}]}"#,
            r#"{"a": {"\u0024serde_json::private::RawValue": "{}"}}"#,
        ] {
            assert!(parse_body::<Value>(object.as_bytes()).is_err(), "{object}");
        }
    }
}
