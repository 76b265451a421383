//! The ids of a workflow and of its timing.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A workflow's id: the table's BIGINT identity, at least 1.
///
/// ```
/// use schedule::WorkflowId;
/// assert_eq!("12".parse(), Ok(WorkflowId(12)));
/// assert!("012".parse::<WorkflowId>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkflowId(pub i64);

/// Counts the changes of a workflow's timing; 0 if it never had a cron.
///
/// ```
/// use schedule::Revision;
/// assert_eq!("0".parse(), Ok(Revision(0)));
/// assert!(Revision(2) > Revision(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub i64);

/// The text is not an id: ids are decimal numbers without sign or leading zero.
///
/// ```
/// use schedule::{IdError, WorkflowId};
/// assert_eq!("+5".parse::<WorkflowId>(), Err(IdError));
/// assert_eq!(IdError.to_string(), "not an id: expected a plain decimal number");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected a plain decimal number")]
pub struct IdError;

impl fmt::Display for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for WorkflowId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match number(text)? {
            0 => Err(IdError),
            id => Ok(Self(id)),
        }
    }
}

impl FromStr for Revision {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        number(text).map(Self)
    }
}

/// Each number has only one text, so that an id in a name can be parsed back.
fn number(text: &str) -> Result<i64, IdError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if !plain {
        return Err(IdError);
    }
    text.parse().map_err(|_| IdError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_exactly_one_spelling() {
        for wrong in ["", "0", "01", "+1", "-1", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
            assert_eq!(wrong.parse::<WorkflowId>(), Err(IdError), "{wrong:?}");
        }
        assert_eq!("9223372036854775807".parse(), Ok(WorkflowId(i64::MAX)));
        assert_eq!("0".parse(), Ok(Revision(0)));
        assert_eq!("00".parse::<Revision>(), Err(IdError));
    }

    /// Log lines and schedule names use this format.
    #[test]
    fn ids_and_revisions_display_as_numbers() {
        assert_eq!((WorkflowId(12).to_string(), Revision(3).to_string()), ("12".to_owned(), "3".to_owned()));
    }
}
