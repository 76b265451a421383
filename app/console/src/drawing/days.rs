//! The calendar of days: a row for each week, a column for each day of the week.

use chrono::{Datelike as _, NaiveDate};

/// What is known of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No difference was found, and nothing was left out.
    Proven,
    /// So many differences were found.
    Differs(i64),
    /// It is not known whether the day is correct.
    Unknown,
}

/// One day.
#[derive(Clone, Debug)]
pub struct Day {
    /// The day.
    pub day: NaiveDate,
    /// What is known of it.
    pub finding: Finding,
    /// The same in a sentence.
    pub words: String,
    /// Where more of it is shown.
    pub href: Option<String>,
}

/// One square.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Left edge.
    pub x: i64,
    /// Upper edge.
    pub y: i64,
    /// The class, for the colour; none for a hatched day.
    pub class: Option<&'static str>,
    /// The day of the month.
    pub label: String,
    /// Its sign: a day is read without colours.
    pub sign: String,
    /// What it says on focus.
    pub title: String,
    /// Where more of it is shown.
    pub href: Option<String>,
}

/// The distance between two days.
pub const STEP: i64 = 47;
/// The edge of a square.
pub const EDGE: i64 = 44;
/// The height of the names of the days.
pub const TOP: i64 = 18;
/// The width of the picture.
pub const WIDTH: i64 = 7 * STEP;
/// The names of the columns.
pub const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The squares of days, the oldest first.
#[must_use]
pub fn cells(days: &[Day]) -> Vec<Cell> {
    let Some(first) = days.first().map(|day| day.day) else { return Vec::new() };
    let before = i64::from(first.weekday().num_days_from_monday());
    let of_day = |day: &Day| {
        let nth = (day.day - first).num_days() + before;
        let is_named = day.day == first || day.day.day() == 1;
        let (class, sign) = match day.finding {
            Finding::Proven => (Some("good"), "✓".to_owned()),
            Finding::Differs(count) => (Some("bad"), format!("✕ {count}")),
            Finding::Unknown => (None, "?".to_owned()),
        };
        Cell {
            x: nth % 7 * STEP,
            y: TOP + nth / 7 * STEP,
            class,
            label: day.day.format(if is_named { "%-d %b" } else { "%-d" }).to_string(),
            sign,
            title: format!("{}: {}", day.day.format("%a %Y-%m-%d"), day.words),
            href: day.href.clone(),
        }
    };
    days.iter().map(of_day).collect()
}

/// The height of a picture of these squares.
#[must_use]
pub fn height(cells: &[Cell]) -> i64 {
    cells.last().map_or(TOP, |last| last.y + STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str, finding: Finding) -> Day {
        Day { day: text.parse().unwrap(), finding, words: "said".to_owned(), href: None }
    }

    #[test]
    fn weeks_begin_on_mondays_and_only_proof_is_green() {
        // A Saturday, a Sunday and a Monday.
        let days = [
            day("2026-02-28", Finding::Proven),
            day("2026-03-01", Finding::Unknown),
            day("2026-03-02", Finding::Differs(3)),
        ];
        let drawn = cells(&days);
        let found: Vec<_> =
            drawn.iter().map(|cell| (cell.x, cell.y, cell.class, cell.label.as_str(), cell.sign.as_str())).collect();
        assert_eq!(
            found,
            [
                (5 * STEP, TOP, Some("good"), "28 Feb", "✓"),
                (6 * STEP, TOP, None, "1 Mar", "?"),
                (0, TOP + STEP, Some("bad"), "2", "✕ 3"),
            ]
        );
        assert_eq!(height(&drawn), TOP + 2 * STEP);
    }
}
