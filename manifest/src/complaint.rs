//! What is wrong with a file, and where.

use std::collections::BTreeMap;
use std::fmt;

/// An error, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The line, from 1 on.
    pub line: u64,
    /// What is wrong.
    pub detail: String,
}

/// The line at which a definition begins, and the line of each of its fields.
#[derive(Clone, Debug)]
pub struct Lines {
    first: u64,
    fields: BTreeMap<String, u64>,
}

impl Lines {
    pub(crate) fn new(first: u64, fields: BTreeMap<String, u64>) -> Self {
        Self { first, fields }
    }

    /// The line at which the definition begins.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The line of a field; that of the definition if it does not have the field.
    #[must_use]
    pub fn of(&self, field: &str) -> u64 {
        let outermost = field.split('.').next().unwrap_or_default();
        self.fields.get(outermost).copied().unwrap_or(self.first)
    }

    /// A complaint about a field, or about the whole definition if the field is empty.
    #[must_use]
    pub fn complain(&self, field: &str, detail: &str) -> Complaint {
        let detail = if field.is_empty() { detail.to_owned() } else { format!("{field}: {detail}") };
        Complaint { line: self.of(field), detail }
    }
}

impl Complaint {
    pub(crate) fn of_yaml(error: &serde_saphyr::Error) -> Self {
        let message = error.to_string();
        let detail = message.lines().next().unwrap_or_default();
        let detail = detail.split(" at line ").next().unwrap_or(detail);
        // In YAML an asterisk begins the name of an alias.
        let hint = if detail.contains("alias") || detail.contains("anchor") {
            "; quote a value that begins with *, for example \"*/5 * * * *\""
        } else {
            ""
        };
        Self { line: error.location().map_or(1, |location| location.line()), detail: format!("{detail}{hint}") }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.detail)
    }
}
