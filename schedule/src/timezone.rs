//! Parses timezones: a name of the IANA database, or an error with suggestions.

use std::{fmt, str::FromStr};

use crate::{Timezone, ZoneSet};

/// EventBridge's limit in characters.
const MAX_LENGTH: usize = 50;
const MAX_SUGGESTIONS: usize = 3;

/// The text is not a known timezone; contains similar names.
///
/// ```
/// let error = schedule::parse_timezone("Europe/Pari").unwrap_err();
/// assert_eq!(error.to_string(), "unknown timezone Europe/Pari; did you mean Europe/Paris?");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimezoneError {
    /// `None` if it is too long to be repeated.
    text: Option<String>,
    suggestions: Vec<String>,
}

/// Parses the name of a timezone, for example `Europe/Paris`; at most 50 characters.
///
/// ```
/// assert_eq!(schedule::parse_timezone("Asia/Kolkata")?.name(), "Asia/Kolkata");
/// # Ok::<(), schedule::TimezoneError>(())
/// ```
///
/// # Errors
///
/// Fails if the installed [`ZoneSet`] does not have the name.
pub fn parse_timezone(text: &str) -> Result<Timezone, TimezoneError> {
    if text.chars().count() > MAX_LENGTH {
        return Err(TimezoneError { text: None, suggestions: Vec::new() });
    }
    let zones = ZoneSet::installed();
    let unknown = || TimezoneError { text: Some(text.to_owned()), suggestions: near(text, &zones) };
    zones.find(text).ok_or_else(unknown)
}

impl FromStr for Timezone {
    type Err = TimezoneError;

    fn from_str(name: &str) -> Result<Self, TimezoneError> {
        parse_timezone(name)
    }
}

impl TimezoneError {
    /// A stable code for programs: `invalid_timezone`.
    ///
    /// ```
    /// assert_eq!(schedule::parse_timezone("Mars/Phobos").unwrap_err().code(), "invalid_timezone");
    /// ```
    pub fn code(&self) -> &'static str {
        "invalid_timezone"
    }

    /// Similar names, the most similar first; at most three.
    ///
    /// ```
    /// let error = schedule::parse_timezone("europe/paris").unwrap_err();
    /// assert_eq!(error.similar_names(), ["Europe/Paris"]);
    /// ```
    pub fn similar_names(&self) -> &[String] {
        &self.suggestions
    }
}

impl fmt::Display for TimezoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(text) = &self.text else {
            return write!(f, "a timezone has at most {MAX_LENGTH} characters");
        };
        if text.is_empty() {
            return f.write_str("the timezone is empty; write a name such as Europe/Paris");
        }
        write!(f, "unknown timezone {}", text.escape_debug())?;
        match self.suggestions.as_slice() {
            [] => f.write_str("; write a name of the IANA database, such as Europe/Paris"),
            [one] => write!(f, "; did you mean {one}?"),
            [most @ .., last] => write!(f, "; did you mean {} or {last}?", most.join(", ")),
        }
    }
}

impl std::error::Error for TimezoneError {}

/// Returns names that differ little from `text`: in case or blanks, in the region, or in a few letters.
fn near(text: &str, zones: &ZoneSet) -> Vec<String> {
    let wanted = plain(text.trim());
    let limit = (wanted.len() / 4).clamp(1, 3);
    let mut ranked: Vec<_> = zones
        .names()
        .filter_map(|known| {
            let name = plain(known);
            let city = name.rsplit(|byte| *byte == b'/').next().unwrap_or(&name);
            let whole = distance(&wanted, &name, limit);
            let by_city = distance(&wanted, city, limit - 1).map(|distance| distance + 1);
            Some((whole.into_iter().chain(by_city).min()?, known))
        })
        .collect();
    ranked.sort_unstable();
    if let [(0, same), ..] = ranked.as_slice() {
        return vec![(*same).to_owned()];
    }
    ranked.into_iter().map(|(_, name)| name.to_owned()).take(MAX_SUGGESTIONS).collect()
}

fn plain(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if byte == b' ' { b'_' } else { byte.to_ascii_lowercase() }).collect()
}

/// The number of letters to add, drop, change or swap with a neighbour; `None` above `limit`.
fn distance(left: &[u8], right: &[u8], limit: usize) -> Option<usize> {
    if left.len().abs_diff(right.len()) > limit {
        return None;
    }
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for i in 1..=left.len() {
        let mut row = Vec::with_capacity(right.len() + 1);
        row.push(i);
        for j in 1..=right.len() {
            let changed = above[j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let best = changed.min(above[j] + 1).min(row[j - 1] + 1);
            let is_swap = i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            row.push(if is_swap { best.min(before[j - 2] + 1) } else { best });
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().filter(|distance| *distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse_timezone(text).expect_err("no timezone").to_string()
    }

    #[test]
    fn a_misspelt_name_is_put_right() {
        assert_eq!(message("Europe/Pari"), "unknown timezone Europe/Pari; did you mean Europe/Paris?");
        assert_eq!(message("america/new york"), "unknown timezone america/new york; did you mean America/New_York?");
        assert_eq!(message("Paris"), "unknown timezone Paris; did you mean Europe/Paris?");
        assert_eq!(message("Asia/Kolakta"), "unknown timezone Asia/Kolakta; did you mean Asia/Kolkata?");
        assert_eq!(message("Europe/Par"), "unknown timezone Europe/Par; did you mean Europe/Paris?");
        assert_eq!(message("GTM"), "unknown timezone GTM; did you mean GMT?");
        assert_eq!(message("MGT"), "unknown timezone MGT; did you mean GMT, MET or MST?");
        assert_eq!(
            message("Louisville"),
            "unknown timezone Louisville; did you mean America/Kentucky/Louisville or America/Louisville?"
        );
    }

    #[test]
    fn a_stranger_gets_an_example() {
        assert_eq!(
            message("Mars/Phobos"),
            "unknown timezone Mars/Phobos; write a name of the IANA database, such as Europe/Paris"
        );
        assert_eq!(message(""), "the timezone is empty; write a name such as Europe/Paris");
        assert_eq!(message(&"x".repeat(51)), "a timezone has at most 50 characters");
        assert!(message(&"é".repeat(50)).starts_with("unknown timezone éé"));
        assert_eq!(
            message("a\u{0}b"),
            "unknown timezone a\\0b; write a name of the IANA database, such as Europe/Paris"
        );
    }

    #[test]
    fn every_known_name_reads_as_itself() {
        for name in ZoneSet::bundled().names() {
            assert_eq!(parse_timezone(name).map(Timezone::name), Ok(name));
        }
    }
}
