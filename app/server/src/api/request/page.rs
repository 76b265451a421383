//! Step 1 of 7: keyset pages. A cursor is the last key of the previous page, opaque to the client.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use std::str::FromStr;
use utoipa::ToSchema;
use workflows::definition::field::FieldError;

/// Items on a page if the client names no limit.
const DEFAULT_LIMIT: i64 = 50;
/// Items on a page at most.
const MAX_LIMIT: i64 = 200;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Send it as `cursor` for the next page; null: this is the last.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Cuts a list that was read with one extra row, which says whether more rows follow.
    pub fn from_rows(mut items: Vec<T>, limit: i64, key: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = if more { items.last().map(|last| encode_cursor(key(last))) } else { None };
        Self { items, next_cursor }
    }
}

/// The `limit` of a query, 1 to 200.
///
/// # Errors
/// Fails if the value is outside of this range.
pub fn parse_limit(limit: Option<i64>) -> Result<i64, FieldError> {
    match limit {
        None => Ok(DEFAULT_LIMIT),
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Some(_) => Err(FieldError::invalid("limit", format!("limit must be from 1 to {MAX_LIMIT}"))),
    }
}

/// Encodes a key as a cursor.
pub fn encode_cursor(key: impl ToString) -> String {
    URL_SAFE_NO_PAD.encode(key.to_string())
}

/// Decodes the `cursor` of a query to its key.
///
/// # Errors
/// Fails if the cursor is not one that a page returned.
pub fn parse_cursor<K: FromStr>(cursor: Option<&str>) -> Result<Option<K>, FieldError> {
    let Some(cursor) = cursor else { return Ok(None) };
    let key = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match key.and_then(|key| key.parse().ok()) {
        Some(key) => Ok(Some(key)),
        None => Err(FieldError::new("invalid_cursor", "cursor", "cursor must be next_cursor of the previous page")),
    }
}
