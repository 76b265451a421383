//! Steps 1 and 7 of 7: keyset pages. A cursor is the last key of the previous page, opaque to the client.
//!
//! A page is bounded in items and in bytes. It may have fewer items than its limit, also none, and a cursor.

use std::str::FromStr;

pub use api_types::page::Page;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use workflows::definition::field::FieldError;
use workflows::keyset::KeysetPage;

use super::error::Error;

/// Items on a page if the client names no limit.
const DEFAULT_LIMIT: i64 = 50;
/// Items on a page at most.
const MAX_LIMIT: i64 = 200;
/// Bytes of the items of a page at most, except for the first item.
const MAX_BYTES: usize = 1024 * 1024;

/// A page as JSON.
pub(crate) struct PageAnswer(Vec<u8>);

impl IntoResponse for PageAnswer {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// Writes a page on a thread that may be blocked: a page of crons computes many times.
///
/// # Errors
/// Fails if an item cannot be written, or if its view panics.
pub(crate) async fn answer_page<T, K, V>(
    page: KeysetPage<T, K>,
    key: impl Fn(&T) -> K + Send + 'static,
    view: impl Fn(T) -> V + Send + 'static,
) -> Result<PageAnswer, Error>
where
    T: Send + 'static,
    K: ToString + Send + 'static,
    V: Serialize,
{
    answer_counted_page(page, None, key, view).await
}

/// As [`answer_page`], with how many items all pages have, if the request asked for it.
///
/// # Errors
/// Fails if an item cannot be written, or if its view panics.
pub(crate) async fn answer_counted_page<T, K, V>(
    page: KeysetPage<T, K>,
    total: Option<usize>,
    key: impl Fn(&T) -> K + Send + 'static,
    view: impl Fn(T) -> V + Send + 'static,
) -> Result<PageAnswer, Error>
where
    T: Send + 'static,
    K: ToString + Send + 'static,
    V: Serialize,
{
    let written = tokio::task::spawn_blocking(move || write_page(page, total, key, view)).await;
    let written = written.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)?;
    Ok(PageAnswer(written))
}

/// Writes items one by one until the page is full of bytes, so that no more than one item is in memory twice.
fn write_page<T, K: ToString, V: Serialize>(
    page: KeysetPage<T, K>,
    total: Option<usize>,
    key: impl Fn(&T) -> K,
    view: impl Fn(T) -> V,
) -> serde_json::Result<Vec<u8>> {
    let (mut text, mut last) = (b"{\"items\":[".to_vec(), None);
    let mut next = page.next.map(encode_cursor);
    for row in page.rows {
        let row_key = encode_cursor(key(&row));
        let item = serde_json::to_vec(&view(row))?;
        if last.is_some() && text.len() + item.len() > MAX_BYTES {
            next = last;
            break;
        }
        if last.replace(row_key).is_some() {
            text.push(b',');
        }
        text.extend(item);
    }
    text.extend(b"],\"next_cursor\":");
    serde_json::to_writer(&mut text, &next)?;
    if let Some(total) = total {
        text.extend(format!(",\"total\":{total}").into_bytes());
    }
    text.push(b'}');
    Ok(text)
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
    key.and_then(|key| key.parse().ok()).map(Some).ok_or_else(foreign_cursor)
}

/// Decodes the `cursor` of a list whose keys are in `[low, high)`: a page returns no other.
///
/// # Errors
/// Fails if the cursor is not one that a page of this list returned.
pub fn parse_cursor_within<K>(cursor: Option<&str>, low: Option<K>, high: Option<K>) -> Result<Option<K>, FieldError>
where
    K: FromStr + PartialOrd,
{
    let key = parse_cursor(cursor)?;
    let is_within = |key: &K| low.as_ref().is_none_or(|low| key >= low) && high.as_ref().is_none_or(|high| key < high);
    if key.as_ref().is_none_or(is_within) { Ok(key) } else { Err(foreign_cursor()) }
}

/// The refusal of a cursor that no page of the list returned.
pub(crate) fn foreign_cursor() -> FieldError {
    FieldError::new(
        "invalid_cursor",
        "cursor",
        "cursor must be next_cursor of the previous page, with the same from and to",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rows: Vec<(i64, usize)>) -> (usize, Option<i64>) {
        let page = KeysetPage { rows, next: None };
        let text = write_page(page, None, |(id, _)| *id, |(_, bytes)| "x".repeat(bytes)).unwrap();
        let page: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let cursor = page["next_cursor"].as_str();
        (page["items"].as_array().unwrap().len(), parse_cursor(cursor).unwrap())
    }

    /// The first item is written in any case, or a client could never pass it.
    #[test]
    fn pages_end_when_they_are_full_of_bytes() {
        assert_eq!(written(vec![]), (0, None));
        assert_eq!(written(vec![(1, 10), (2, 10)]), (2, None));
        assert_eq!(written(vec![(1, 600_000), (2, 600_000), (3, 10)]), (1, Some(1)));
        assert_eq!(written(vec![(1, 2_000_000), (2, 10)]), (1, Some(1)));
    }

    #[test]
    fn a_cursor_lies_within_its_list() {
        let parsed =
            |key: i64| parse_cursor_within(Some(&encode_cursor(key)), Some(3), Some(5)).map_err(|error| error.code);
        assert_eq!((parsed(3), parsed(4)), (Ok(Some(3)), Ok(Some(4))));
        assert_eq!((parsed(2), parsed(5)), (Err("invalid_cursor"), Err("invalid_cursor")));
        assert_eq!(parse_cursor_within(Some(&encode_cursor(i64::MIN)), None, None), Ok(Some(i64::MIN)));
        assert_eq!(parse_cursor_within(None, Some(3), Some(5)), Ok(None));
    }
}
