//! JSON that the service passes on as the database has it, without parsing it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Any JSON: as text for who writes an answer, as a value for who reads it.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum RawJson {
    /// Text of the database.
    Text(Box<RawValue>),
    /// A value.
    Value(Value),
}

impl RawJson {
    /// The JSON of a text; `None`: it is not valid.
    #[must_use]
    pub fn of_text(text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(Self::Text)
    }

    /// Its value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => serde_json::from_str(text.get()).unwrap_or(Value::Null),
            Self::Value(value) => value.clone(),
        }
    }
}

// A derived reader would try the text first, which works only at the top of a document.
impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::Value)
    }
}
