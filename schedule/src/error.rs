//! The error of the parser: one opaque type with field, position and reason.

use std::fmt;

use crate::field::Field;

/// Why a text is not a cron. Displays as `minute field: 75 is above 59`.
///
/// ```
/// let error = schedule::Cron::parse("75 * * * *").unwrap_err();
/// assert_eq!(error.to_string(), "minute field: 75 is above 59");
/// assert_eq!((error.code(), error.field(), error.position()), ("invalid_field", Some("minute"), Some(0)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    code: Code,
    field: Option<&'static str>,
    position: Option<usize>,
    reason: String,
    /// What to write instead, for a well-known mistake: it stands for field and reason.
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidField,
    NeverFires,
    SubMinuteUnsupported,
    TooLong,
    UnsupportedExpression,
    UnsupportedMacro,
    WrongFieldCount,
}

impl CronError {
    /// A stable code for programs: `invalid_field`, `never_fires`, `sub_minute_unsupported`,
    /// `too_long`, `unsupported_expression`, `unsupported_macro` or `wrong_field_count`.
    ///
    /// ```
    /// use schedule::Cron;
    /// assert_eq!(Cron::parse("0 0 30 2 *").unwrap_err().code(), "never_fires");
    /// assert_eq!(Cron::parse("*/5 * * * * *").unwrap_err().code(), "sub_minute_unsupported");
    /// ```
    pub fn code(&self) -> &'static str {
        match self.code {
            Code::InvalidField => "invalid_field",
            Code::NeverFires => "never_fires",
            Code::SubMinuteUnsupported => "sub_minute_unsupported",
            Code::TooLong => "too_long",
            Code::UnsupportedExpression => "unsupported_expression",
            Code::UnsupportedMacro => "unsupported_macro",
            Code::WrongFieldCount => "wrong_field_count",
        }
    }

    /// The field with the error, for example `minute` or `day-of-week`.
    ///
    /// ```
    /// let error = schedule::Cron::parse("0 0 * FOO *").unwrap_err();
    /// assert_eq!(error.field(), Some("month"));
    /// ```
    pub fn field(&self) -> Option<&'static str> {
        self.field
    }

    /// The byte of the input at which the error begins.
    ///
    /// ```
    /// let error = schedule::Cron::parse("0 0 1,32 * *").unwrap_err();
    /// assert_eq!(error.position(), Some(6));
    /// ```
    pub fn position(&self) -> Option<usize> {
        self.position
    }

    /// The message, with the character of `text`, the parsed cron, at which the error begins.
    ///
    /// ```
    /// let text = "0 0 1,32 * *";
    /// let error = schedule::Cron::parse(text).unwrap_err();
    /// assert_eq!(error.sentence_about(text), "day-of-month field: 32 is above 31 (character 7)");
    /// ```
    pub fn sentence_about(&self, text: &str) -> String {
        // An advice is about the whole text.
        let position = self.position.filter(|_| self.advice.is_none());
        match position.and_then(|position| text.get(..position)) {
            Some(before) => format!("{self} (character {})", before.chars().count() + 1),
            None => self.to_string(),
        }
    }

    pub(crate) fn of_whole_cron(code: Code, reason: impl Into<String>) -> Self {
        Self { code, field: None, position: None, reason: reason.into(), advice: None }
    }

    pub(crate) fn of_field(field: &Field, position: usize, reason: impl Into<String>) -> Self {
        let (code, reason) = (Code::InvalidField, reason.into());
        Self { code, field: Some(field.name), position: Some(position), reason, advice: None }
    }

    pub(crate) fn with_advice(self, advice: Option<String>) -> Self {
        Self { advice, ..self }
    }

    pub(crate) fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.advice, self.field) {
            (Some(advice), _) => f.write_str(advice),
            (None, Some(field)) => write!(f, "{field} field: {}", self.reason),
            (None, None) => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for CronError {}
