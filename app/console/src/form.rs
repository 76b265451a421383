//! Forms of acts: their fields, read as the bodies of the API need them.

use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};

use crate::api::Console;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::{ActFailure, Failure};

/// The fields of a form; a field may be repeated, as checkboxes are.
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Console> for Sent<T> {
    type Rejection = ActFailure;

    async fn from_request(request: Request, console: &Console) -> Result<Self, ActFailure> {
        let unreadable = || ActFailure(Failure::of_request("the form cannot be read: load the page again"));
        // An empty form may come without its media type.
        let bytes = Bytes::from_request(request, console).await.map_err(|_| unreadable())?;
        serde_html_form::from_bytes(&bytes).map(Self).map_err(|_| unreadable())
    }
}

/// The text of a field without spaces around it; `None`: the field is empty.
pub(crate) fn filled(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// The lines of a field that are not empty.
pub(crate) fn lines(text: &str) -> Vec<&str> {
    text.lines().filter_map(filled).collect()
}

/// The whole number of a field; `None`: the field is empty.
///
/// # Errors
/// Fails if the text is no whole number.
pub(crate) fn whole_number<T: FromStr>(field: &str, text: &str) -> Result<Option<T>, Failure> {
    let parse = |text: &str| text.parse().map_err(|_| Failure::of_field(field, "this must be a whole number"));
    filled(text).map(parse).transpose()
}

/// The time of a field: `datetime-local`, whose label says that it is in UTC, or RFC 3339; `None`: the field is empty.
///
/// # Errors
/// Fails if the text is no time.
pub(crate) fn parse_time(field: &str, text: &str) -> Result<Option<DateTime<Utc>>, Failure> {
    let Some(text) = filled(text) else { return Ok(None) };
    if let Ok(time) = text.parse::<DateTime<Utc>>() {
        return Ok(Some(time));
    }
    let local = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%.f"]
        .into_iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let refused = || Failure::of_field(field, "this must be a time in UTC, for example 2026-11-27T09:00");
    local.map(|time| Some(time.and_utc())).ok_or_else(refused)
}

/// A JSON object of the members that have a value.
pub(crate) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let set = members.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(set.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_of_forms_are_in_utc() {
        let read = |text| parse_time("from", text).unwrap().map(|time| time.to_rfc3339());
        assert_eq!(read("2026-03-29T02:30").as_deref(), Some("2026-03-29T02:30:00+00:00"));
        assert_eq!(read("2026-03-29T02:30:15").as_deref(), Some("2026-03-29T02:30:15+00:00"));
        assert_eq!(read("2026-03-29T04:30:00+02:00").as_deref(), Some("2026-03-29T02:30:00+00:00"));
        assert_eq!(read("  "), None);
        assert!(parse_time("from", "tomorrow").is_err());
    }

    #[test]
    fn empty_fields_are_left_out() {
        assert_eq!(object([("a", json!(1)), ("b", Value::Null)]), json!({ "a": 1 }));
        assert_eq!(lines(" a \n\n b\r\n"), ["a", "b"]);
        assert_eq!(whole_number::<i64>("a", " 12 ").unwrap(), Some(12));
        assert_eq!(whole_number::<i64>("a", "").unwrap(), None);
        assert!(whole_number::<i64>("a", "1.5").is_err());
    }
}
