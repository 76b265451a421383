//! Step 7 of 7: where a verification continues: the slice of the span, and the workflow and time within it.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

/// Where a comparison continues, and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When its first page was requested; the bound of the span is computed from it.
    pub requested_on: DateTime<Utc>,
    /// Where it continues.
    pub position: Position,
}

/// A position in the comparison: slice by slice, in a slice workflow by workflow, in a workflow time by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The slice's first instant.
    pub slice: DateTime<Utc>,
    /// Workflows with a lower id are already compared.
    pub workflow: i64,
    /// This workflow is already compared up to and including this time; `None`: not yet.
    pub after: Option<DateTime<Utc>>,
}

impl Position {
    /// The start of a slice.
    #[must_use]
    pub fn slice_start(slice: DateTime<Utc>) -> Self {
        Self { slice, workflow: 0, after: None }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { slice, workflow, after } = self.position;
        let after = after.map(|after| after.timestamp_micros().to_string()).unwrap_or_default();
        write!(f, "{}/{}/{workflow}/{after}", self.requested_on.timestamp_micros(), slice.timestamp_micros())
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let time = |micros: &str| DateTime::from_timestamp_micros(micros.parse().map_err(drop)?).ok_or(());
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(());
        let (requested_on, slice) = (time(next()?)?, time(next()?)?);
        let workflow = next()?.parse().map_err(drop)?;
        let after = match next()? {
            "" => None,
            after => Some(time(after)?),
        };
        match parts.next() {
            None => Ok(Self { requested_on, position: Position { slice, workflow, after } }),
            Some(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_what_it_writes() {
        for text in ["1772442000000001/1772442000000000/7/", "1772442000000001/1772442000000000/7/1772442060000000"] {
            let cursor: Cursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        for text in ["", "1/2/3", "1/2/3/4/5", "1/2/x/", "1/9223372036854775807/3/"] {
            assert_eq!(text.parse::<Cursor>(), Err(()), "{text}");
        }
    }
}
