//! Step 1 of 7: validates fields. An error names the field and says in one sentence what is wrong.

use chrono::{DateTime, Datelike, SubsecRound, Utc};
use schedule::CronError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// One field of a body or a query that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Stable, for programs.
    pub code: &'static str,
    /// The path of the field in the body, for example `action.url`.
    pub field: String,
    /// A sentence, for people.
    pub detail: String,
    /// The field of a cron that is not valid, for example `minute`, if the field is a cron.
    pub cron_field: Option<&'static str>,
    /// The other fields of the same body that are not valid.
    pub others: Vec<FieldError>,
}

/// Collects the fields of a body that are not valid, in the order of their checks, so that a client corrects them at once.
#[derive(Debug, Default)]
pub struct Faults(Vec<FieldError>);

impl Faults {
    /// Returns the value of a valid field, and keeps the error of another one.
    pub fn check<T>(&mut self, checked: Result<T, FieldError>) -> Option<T> {
        checked.map_err(|error| self.0.push(error)).ok()
    }

    /// Returns what was made of valid fields.
    ///
    /// # Errors
    /// Returns the first error, which has the others.
    pub fn finish<T>(self, made: Option<T>) -> Result<T, FieldError> {
        let mut errors = self.0.into_iter();
        match (errors.next(), made) {
            (None, Some(made)) => Ok(made),
            (Some(first), _) => Err(FieldError { others: errors.collect(), ..first }),
            (None, None) => Err(FieldError::invalid("", "the body is not valid")),
        }
    }
}

impl FieldError {
    /// A field with a value that is not valid.
    #[must_use]
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new("invalid_field", field, detail)
    }

    /// A field with a code of its own.
    #[must_use]
    pub fn new(code: &'static str, field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { code, field: field.into(), detail: detail.into(), cron_field: None, others: Vec::new() }
    }

    /// A field whose `text` is not a cron, or is a cron that never fires.
    #[must_use]
    pub fn of_cron(field: &str, text: &str, error: &CronError) -> Self {
        Self { cron_field: error.field(), ..Self::new(error.code(), field, error.sentence_about(text)) }
    }
}

/// Checks a text of `min` to `max` characters: Postgres can store it, and people can read it.
///
/// # Errors
/// Fails if the text is too short, too long, blank where it must not be, or has control characters.
pub fn check_text(field: &str, value: &str, min: usize, max: usize) -> Result<(), FieldError> {
    let length = value.chars().count();
    if length > max {
        return Err(FieldError::invalid(field, format!("{field} has {length} characters: at most {max} are allowed")));
    }
    if value.trim().chars().count() < min {
        return Err(FieldError::invalid(field, format!("{field} must not be blank")));
    }
    if value.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(FieldError::invalid(field, format!("{field} must not have a control character")));
    }
    Ok(())
}

/// Checks a name: a text of one line, in which every character is visible.
///
/// # Errors
/// Fails like [`check_text`], or if the name contains a line break, a tab, or a character of Unicode's category Cf: with
/// marks of direction or characters of no width two names look alike.
pub fn check_name(field: &str, value: &str) -> Result<(), FieldError> {
    check_text(field, value, 1, 200)?;
    if value.chars().any(char::is_control) {
        return Err(FieldError::invalid(field, format!("{field} must be one line")));
    }
    if let Some(hidden) = value.chars().find(|one| one.general_category() == GeneralCategory::Format) {
        let detail = format!("{field} must not have the invisible character U+{:04X}", u32::from(hidden));
        return Err(FieldError::invalid(field, detail));
    }
    if value.trim() != value {
        return Err(FieldError::invalid(field, format!("{field} must not begin or end with a blank")));
    }
    Ok(())
}

/// Checks a time from 1970 to 9999, and truncates it to the microseconds that Postgres stores.
///
/// # Errors
/// Fails if the year is outside of this span.
pub fn check_instant(field: &str, value: DateTime<Utc>) -> Result<DateTime<Utc>, FieldError> {
    if (1970..=9999).contains(&value.year()) {
        Ok(value.trunc_subsecs(6))
    } else {
        Err(FieldError::invalid(field, format!("the year of {field} must be from 1970 to 9999")))
    }
}

/// How many values inputs have at most: a value of two bytes takes 32 in memory.
const MOST_VALUES: usize = 10_000;
/// How many digits the numbers of a document have at most beyond the first 20 of each, written without an exponent, as Postgres
/// returns them.
const MOST_DIGITS: u32 = 100_000;
/// How deep a document may be nested. Lists and the audit log nest it deeper, and parsers of clients read 127.
const DEEPEST_DOCUMENT: usize = 32;
/// `serde_json` reads an object that begins with this name as the text of another document. Which name an object begins with
/// differs between the body of a request, a value in memory and Postgres, so each of them would be another document.
pub const RAW_NAME: &str = "$serde_json::private::RawValue";
/// An ordinary number has no more digits than its text.
const ORDINARY_DIGITS: u32 = 20;

/// Checks the inputs of runs: not too deep, not too many values or digits, and no NUL.
///
/// # Errors
/// Fails as [`check_extent`], or returns the path of the string with a NUL.
pub fn check_inputs(field: &str, inputs: &Map<String, Value>) -> Result<(), FieldError> {
    let inputs = Value::Object(inputs.clone());
    check_extent(field, &inputs)?;
    no_nul(field, &inputs)
}

/// Refuses a document that would be much larger in memory, or as Postgres returns it, than as it was sent, and one that the
/// parser of a client, or of this program, would refuse inside of an answer.
///
/// # Errors
/// Fails for a document that is nested too deep, for too many values or digits, and for [`RAW_NAME`].
pub fn check_extent(field: &str, document: &Value) -> Result<(), FieldError> {
    if count_depth(document) > DEEPEST_DOCUMENT {
        let detail = format!("{field} must have at most {DEEPEST_DOCUMENT} arrays and objects inside of each other");
        return Err(FieldError::invalid(field, detail));
    }
    if has_raw_name(document) {
        return Err(FieldError::invalid(field, format!("{field} must not have the name {RAW_NAME}")));
    }
    if count_values(std::iter::once(document)) > MOST_VALUES + 1 {
        return Err(FieldError::invalid(field, format!("{field} must have at most {MOST_VALUES} values")));
    }
    if count_digits(document) > MOST_DIGITS {
        let detail = format!(
            "the numbers of {field} must have at most {MOST_DIGITS} digits beyond the first {ORDINARY_DIGITS} of each, \
             written without exponents: send texts instead"
        );
        return Err(FieldError::invalid(field, detail));
    }
    Ok(())
}

/// How many arrays and objects are inside of each other, with the outermost one.
fn count_depth(document: &Value) -> usize {
    match document {
        Value::Array(items) => 1 + items.iter().map(count_depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(count_depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn has_raw_name(document: &Value) -> bool {
    match document {
        Value::Array(items) => items.iter().any(has_raw_name),
        Value::Object(members) => members.iter().any(|(name, member)| name == RAW_NAME || has_raw_name(member)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The digits of all numbers beyond the ordinary ones, approximately: a short text such as `1e308` has 309.
fn count_digits(document: &Value) -> u32 {
    match document {
        Value::Number(number) => {
            let exponent = number.as_f64().filter(|value| *value != 0.0).map_or(0.0, |value| value.abs().log10().abs());
            (exponent as u32).saturating_sub(ORDINARY_DIGITS)
        }
        Value::Array(items) => items.iter().map(count_digits).fold(0, u32::saturating_add),
        Value::Object(members) => members.values().map(count_digits).fold(0, u32::saturating_add),
        Value::Null | Value::Bool(_) | Value::String(_) => 0,
    }
}

fn count_values<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    let count = |value: &Value| match value {
        Value::Array(items) => 1 + count_values(items.iter()),
        Value::Object(members) => 1 + count_values(members.values()),
        _ => 1,
    };
    values.map(count).sum()
}

/// Refuses NUL anywhere in a document: Postgres can store it neither in text nor in JSON.
///
/// # Errors
/// Returns the path of the string that contains it.
pub fn no_nul(field: &str, value: &Value) -> Result<(), FieldError> {
    let nul = |at: &str| FieldError::invalid(at, format!("{at} must not have a NUL character"));
    match value {
        Value::String(text) if text.contains('\0') => Err(nul(field)),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(i, item)| no_nul(&join(field, &i.to_string()), item))
        }
        Value::Object(members) => members.iter().try_for_each(|(key, member)| {
            if key.contains('\0') { Err(nul(field)) } else { no_nul(&join(field, key), member) }
        }),
        _ => Ok(()),
    }
}

/// Parses a document into its type; an error names the field, after `prefix`.
///
/// # Errors
/// Returns the field and what serde reports about it.
pub fn parse_document<T: DeserializeOwned>(prefix: &str, value: Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        from_serde(prefix, &path, &error.into_inner().to_string())
    })
}

/// Converts serde's message to an error with a code and the field.
#[must_use]
pub fn from_serde(prefix: &str, path: &str, message: &str) -> FieldError {
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|lead| Some((*lead, message.strip_prefix(lead)?.split('`').next()?)));
    let path = if path == "." { "" } else { path };
    let message = message.split(" at line ").next().unwrap_or(message);
    match named {
        // The path of an unknown field already ends with the field, that of a missing one does not.
        Some((lead, field)) => {
            let code = if lead.starts_with("missing") {
                "missing_field"
            } else if lead.starts_with("unknown") {
                "unknown_field"
            } else {
                "duplicate_field"
            };
            let at =
                if path == field || path.ends_with(&format!(".{field}")) { path.to_owned() } else { join(path, field) };
            FieldError::new(code, join(prefix, &at), message)
        }
        None => FieldError::new("invalid_field", join(prefix, path), plain_message(message)),
    }
}

/// Says which number a query accepts; the standard library says only what is wrong.
fn plain_message(message: &str) -> &str {
    let is_number = ["invalid digit found in string", "cannot parse integer from empty string"].contains(&message);
    if is_number { "it must be an integer" } else { message }
}

fn join(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        ("", only) | (only, "") => only.to_owned(),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_messages_name_the_whole_path() {
        let error = from_serde("action", ".", "missing field `url`");
        assert_eq!((error.code, error.field.as_str()), ("missing_field", "action.url"));
        let error = from_serde("", "limit", "invalid digit found in string");
        assert_eq!((error.field.as_str(), error.detail.as_str()), ("limit", "it must be an integer"));
        let error = from_serde("", "cron", "unknown field `cron`, expected `name` at line 1 column 8");
        assert_eq!((error.code, error.field.as_str()), ("unknown_field", "cron"));
        assert_eq!(error.detail, "unknown field `cron`, expected `name`");
    }

    /// Marks of direction, characters of no width, and the mark of the byte order.
    #[test]
    fn names_have_no_invisible_characters() {
        for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{200d}', '\u{feff}', '\u{ad}', '\u{e0041}'] {
            let error = check_name("name", &format!("night{hidden}ly")).unwrap_err();
            let detail = format!("name must not have the invisible character U+{:04X}", u32::from(hidden));
            assert_eq!((error.code, error.detail), ("invalid_field", detail));
            assert!(check_text("description", &hidden.to_string(), 0, 9).is_ok());
        }
        assert_eq!(check_name("name", "Übung 夜 🌙 עברית"), Ok(()));
    }

    #[test]
    fn a_nul_is_found_wherever_it_hides() {
        let error = no_nul("starting_inputs", &serde_json::json!({"a": [{"b": "x\0"}]})).unwrap_err();
        assert_eq!(error.field, "starting_inputs.a.0.b");
    }

    #[test]
    fn inputs_of_too_many_values_are_refused() {
        let inputs = |values: usize| Map::from_iter([("a".to_owned(), Value::from(vec![1; values]))]);
        assert!(check_inputs("inputs", &inputs(MOST_VALUES - 1)).is_ok());
        let error = check_inputs("inputs", &inputs(MOST_VALUES)).unwrap_err();
        assert_eq!((error.field.as_str(), error.detail.as_str()), ("inputs", "inputs must have at most 10000 values"));
    }

    /// The limit counts the object of the inputs itself.
    #[test]
    fn deeply_nested_inputs_are_refused() {
        let nested = |depth: usize| (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let inputs = |depth: usize| Map::from_iter([("a".to_owned(), nested(depth))]);
        assert_eq!(check_inputs("inputs", &inputs(DEEPEST_DOCUMENT - 1)), Ok(()));
        let error = check_inputs("inputs", &inputs(DEEPEST_DOCUMENT)).unwrap_err();
        let detail = "inputs must have at most 32 arrays and objects inside of each other";
        assert_eq!((error.code, error.field.as_str(), error.detail.as_str()), ("invalid_field", "inputs", detail));
    }

    /// It fails if another version of `serde_json` has another name.
    #[test]
    fn no_document_has_the_name_of_the_parser() {
        let read = |text: &str| serde_json::from_str::<Value>(text);
        assert_eq!(read(&format!(r#"{{"{RAW_NAME}": "[1]"}}"#)).unwrap(), serde_json::json!([1]));
        let inputs = read(&format!(r#"{{"a": [{{"!": 1, "{RAW_NAME}": "x"}}]}}"#)).unwrap();
        let error = check_inputs("inputs", inputs.as_object().unwrap()).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), ("invalid_field", "inputs"));
    }

    #[test]
    fn numbers_of_too_many_digits_are_refused() {
        let inputs = |number: f64, times: usize| Map::from_iter([("a".to_owned(), Value::from(vec![number; times]))]);
        for (number, most) in [(1e308, 347), (-1e308, 347), (1e-300, 357), (f64::MAX, 347)] {
            assert_eq!(check_inputs("inputs", &inputs(number, most)), Ok(()), "{number}");
            let error = check_inputs("inputs", &inputs(number, most + 1)).unwrap_err();
            assert_eq!((error.code, error.field.as_str()), ("invalid_field", "inputs"), "{number}");
        }
        for ordinary in [0.0, 1.5, 1.7e12, 123_456_789_012_345_680_000.0] {
            assert_eq!(check_inputs("inputs", &inputs(ordinary, MOST_VALUES - 1)), Ok(()), "{ordinary}");
        }
    }
}
