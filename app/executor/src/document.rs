//! Step 7 of 7: the JSON documents of a run, as Postgres sent them.

use serde_json::Value;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::types::Json;
use sqlx::{Decode, Postgres, Type};

/// A JSON document of a row. Postgres stores numbers that this program cannot read, so that a document may be unreadable:
/// it fails the attempt of its own run, and not the statement that read the runs of all teams.
#[derive(Clone, Debug)]
pub struct Document(Result<Value, String>);

impl Document {
    /// The document.
    ///
    /// # Errors
    /// Says why it cannot be read.
    pub fn read(&self) -> Result<&Value, &str> {
        self.0.as_ref().map_err(String::as_str)
    }
}

impl Type<Postgres> for Document {
    fn type_info() -> PgTypeInfo {
        <Json<Value> as Type<Postgres>>::type_info()
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        <Json<Value> as Type<Postgres>>::compatible(ty)
    }
}

impl<'r> Decode<'r, Postgres> for Document {
    fn decode(value: PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
        let read = <Json<Value> as Decode<'r, Postgres>>::decode(value);
        Ok(Self(read.map(|Json(value)| value).map_err(|error| error.to_string())))
    }
}
