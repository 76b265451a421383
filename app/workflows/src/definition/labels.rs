//! Step 1 of 7: the labels of a workflow, by which callers group and select workflows.

use std::collections::BTreeMap;

use crate::definition::field::{self, FieldError};

/// The labels of a workflow.
pub type Labels = BTreeMap<String, String>;

/// How many labels a workflow has at most.
const MOST: usize = 20;
/// Characters of a key at most, with a prefix as `example.com/`.
const LONGEST_KEY: usize = 63;
/// Characters of a value at most.
const LONGEST_VALUE: usize = 200;

/// A label that a workflow must have: with this value, or with any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The key.
    pub key: String,
    /// The value; `None`: any.
    pub value: Option<String>,
}

impl Selector {
    /// Reads `key:value`, or `key` for any value.
    ///
    /// # Errors
    /// Returns what is wrong with the key.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let (key, value) = match text.split_once(':') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        check_key("label", key)?;
        Ok(Self { key: key.to_owned(), value })
    }
}

/// Validates the labels of a workflow.
///
/// # Errors
/// Returns the first label that is not valid.
pub fn check_labels(labels: &Labels) -> Result<(), FieldError> {
    if labels.len() > MOST {
        return Err(FieldError::invalid("labels", format!("labels must be at most {MOST}")));
    }
    for (key, value) in labels {
        check_key("labels", key)?;
        field::check_text(&format!("labels.{key}"), value, 0, LONGEST_VALUE)?;
        if value.chars().any(char::is_control) {
            let detail = format!("labels.{key} must be one line");
            return Err(FieldError::invalid(format!("labels.{key}"), detail));
        }
    }
    Ok(())
}

fn check_key(field: &str, key: &str) -> Result<(), FieldError> {
    let is_first = |character: char| character.is_ascii_alphanumeric();
    let is_next = |character: char| is_first(character) || "-_./".contains(character);
    let mut characters = key.chars();
    let is_key = characters.next().is_some_and(is_first) && characters.all(is_next) && key.len() <= LONGEST_KEY;
    if is_key {
        return Ok(());
    }
    let detail = format!(
        "a key of {field} must begin with a letter or a digit, have only letters, digits, -, _, . and /, and at most \
         {LONGEST_KEY} of them"
    );
    Err(FieldError::invalid(field, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_a_key_and_perhaps_a_value() {
        let parsed = |text| Selector::parse(text).map(|selector| (selector.key, selector.value));
        assert_eq!(parsed("owner:payroll").unwrap(), ("owner".into(), Some("payroll".into())));
        assert_eq!(parsed("url:https://x").unwrap(), ("url".into(), Some("https://x".into())));
        assert_eq!(parsed("app.example/owner").unwrap(), ("app.example/owner".into(), None));
        for text in ["", ":x", "-a:x", "a b:x", "ä:x", &"k".repeat(64)] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn labels_are_few_and_short() {
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Labels>()
        };
        assert!(check_labels(&of(&[("owner", "payroll"), ("env", "")])).is_ok());
        assert!(check_labels(&of(&[("owner", "a\nb")])).is_err());
        assert!(check_labels(&of(&[("owner", &"v".repeat(201))])).is_err());
        let many: Labels = (0..21).map(|nth| (format!("k{nth}"), String::new())).collect();
        assert!(check_labels(&many).is_err());
    }
}
