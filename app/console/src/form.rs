//! Forms of acts: their fields, read as the bodies of the API need them.

use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};

use crate::api::Console;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

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

/// Names a form of a page: cronbox does what it asks for once, however often it is sent.
pub(crate) fn new_repeat() -> Uuid {
    Uuid::new_v4()
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
    use std::path::{Path, PathBuf};

    use serde_json::json;

    use super::*;

    /// The texts of all templates, with their paths.
    fn templates(folder: &Path) -> Vec<(String, String)> {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of_path = |path: PathBuf| match path.is_dir() {
            true => templates(&path),
            false => vec![(path.display().to_string(), std::fs::read_to_string(&path).unwrap())],
        };
        paths.flat_map(of_path).collect()
    }

    /// Otherwise a double click would write twice, and so would a visitor who presses again because no answer came.
    #[test]
    fn every_form_that_writes_names_itself() {
        let mut forms = 0;
        for (path, text) in templates(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates")) {
            let others = ["hx-put=", "hx-patch=", "hx-delete="];
            assert!(!others.iter().any(|write| text.contains(write)), "{path}: forms of the console write by hx-post");
            for (at, _) in text.match_indices("hx-post=") {
                let (before, rest) = text.split_at(at);
                // It writes nothing.
                if rest.starts_with("hx-post=\"/cron/explain\"") {
                    continue;
                }
                let tag = before.rsplit('<').next().unwrap_or_default();
                let is_named = tag.starts_with("form ") && tag.contains(r#"{% include "act.html" %}"#);
                assert!(is_named, "{path}: <{tag} needs act.html before hx-post");
                forms += 1;
            }
        }
        assert!(forms > 40, "the forms were not found: {forms}");
    }

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
