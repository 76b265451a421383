//! The calendar of the ledger: a cell for each day, in columns of weeks, with the worst decision of the day.

use std::collections::BTreeMap;

use api_types::occurrences::{Decision, OccurrenceView};
use chrono::{DateTime, Datelike as _, Days, NaiveDate, NaiveTime, Utc};

use crate::words;

/// The days of a calendar.
pub const DAYS: u64 = 90;
/// The side of a cell with its gap: large enough for a finger.
pub const STEP: u32 = 26;
/// The side of a cell.
pub const CELL: u32 = 23;
/// The place of the names of weekdays.
const LEFT: u32 = 34;
/// The place of the names of months.
const TOP: u32 = 18;

/// From when on the decisions are known. A schedule may have more of them than a page reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// All decisions.
    pub all_since: DateTime<Utc>,
    /// Those of times that were missed or abandoned.
    pub lost_since: DateTime<Utc>,
}

/// A day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The day: `2026-11-27`.
    pub day: String,
    /// Left edge.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
    /// The class, for the colour.
    pub class: &'static str,
    /// The mark, for the shape.
    pub mark: &'static str,
    /// What it says.
    pub title: String,
}

/// A text beside the cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Left edge.
    pub x: u32,
    /// Base line.
    pub y: u32,
    /// The text.
    pub text: String,
}

/// The picture.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// The days, the oldest first.
    pub cells: Vec<Cell>,
    /// Months and weekdays.
    pub labels: Vec<Label>,
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
}

/// The first day of a calendar that ends today.
#[must_use]
pub fn first_day(today: NaiveDate) -> NaiveDate {
    today.checked_sub_days(Days::new(DAYS - 1)).unwrap_or(today)
}

/// The begin of a day in UTC.
#[must_use]
pub fn begin_of(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

/// Draws the days up to today, each a day of UTC.
#[must_use]
pub fn draw(occurrences: &[OccurrenceView], known: Known, today: NaiveDate) -> Calendar {
    let mut decided: BTreeMap<NaiveDate, Vec<Decision>> = BTreeMap::new();
    for occurrence in occurrences {
        decided.entry(occurrence.scheduled_time.date_naive()).or_default().push(occurrence.decision);
    }
    let first = first_day(today);
    let before_first = first.weekday().num_days_from_monday();
    let mut labels = weekday_labels();
    let mut cells = Vec::new();
    for (nth, day) in (0..).zip(first.iter_days().take_while(|day| *day <= today)) {
        let place: u32 = before_first + nth;
        let (x, y) = (LEFT + place / 7 * STEP, TOP + place % 7 * STEP);
        if day.day() == 1 || nth == 0 && day.day() <= 20 {
            labels.push(Label { x, y: TOP - 6, text: day.format("%b").to_string() });
        }
        let (class, mark, words) = summary(decided.get(&day).map(Vec::as_slice).unwrap_or_default(), known, day);
        cells.push(Cell {
            day: day.to_string(),
            x,
            y,
            class,
            mark,
            title: format!("{}: {words}", day.format("%a %Y-%m-%d UTC")),
        });
    }
    let width = cells.last().map_or(LEFT, |last| last.x + STEP);
    Calendar { cells, labels, width, height: TOP + 7 * STEP }
}

fn weekday_labels() -> Vec<Label> {
    let shown = [(0, "Mon"), (2, "Wed"), (4, "Fri"), (6, "Sun")];
    shown.into_iter().map(|(nth, text)| Label { x: 0, y: TOP + nth * STEP + 15, text: text.to_owned() }).collect()
}

/// Class, mark and words of a day.
fn summary(decided: &[Decision], known: Known, day: NaiveDate) -> (&'static str, &'static str, String) {
    let worst = decided.iter().max_by_key(|decision| rank(**decision)).map(words::decision);
    let begin = begin_of(day);
    if begin >= known.all_since {
        return match worst {
            Some(worst) => (worst.class, worst.mark, counts(decided)),
            None => ("none", "", "no time was due".to_owned()),
        };
    }
    let rest = "the other due times of this day are not counted here";
    match worst.filter(|worst| worst.class == "bad") {
        Some(worst) => (worst.class, worst.mark, format!("{}; {rest}", counts(decided))),
        None if begin >= known.lost_since => {
            ("none", "·", "no time was missed or abandoned; the rest is not counted here".to_owned())
        }
        None => ("none", "?", "not read here".to_owned()),
    }
}

/// How many times have which decision, the worst first: `24 due times: 1 missed, 23 fired`.
fn counts(decided: &[Decision]) -> String {
    let mut by_rank: BTreeMap<u8, (Decision, usize)> = BTreeMap::new();
    for decision in decided {
        by_rank.entry(rank(*decision)).or_insert((*decision, 0)).1 += 1;
    }
    let parts: Vec<_> = by_rank
        .values()
        .rev()
        .map(|(decision, count)| format!("{count} {}", words::decision(decision).words))
        .collect();
    let noun = if decided.len() == 1 { "due time" } else { "due times" };
    format!("{} {noun}: {}", decided.len(), parts.join(", "))
}

/// How bad a decision is.
fn rank(decision: Decision) -> u8 {
    match decision {
        Decision::Fired => 0,
        Decision::Backfilled => 1,
        Decision::CaughtUp => 2,
        Decision::SkippedPaused => 3,
        Decision::SkippedOverlap => 4,
        Decision::Missed => 5,
        Decision::Abandoned => 6,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn occurrence(time: &str, decision: Decision) -> OccurrenceView {
        let time: DateTime<Utc> = time.parse().unwrap();
        OccurrenceView {
            id: Uuid::nil(),
            workflow_id: 1,
            scheduled_time: time,
            decision,
            reason: None,
            reason_code: None,
            revision: None,
            run_id: None,
            lateness_s: 0,
            decided_on: time,
        }
    }

    fn drawn(occurrences: &[OccurrenceView], all_since: &str, lost_since: &str) -> Calendar {
        let known = Known { all_since: all_since.parse().unwrap(), lost_since: lost_since.parse().unwrap() };
        draw(occurrences, known, "2026-11-27".parse().unwrap())
    }

    fn day<'a>(calendar: &'a Calendar, day: &str) -> &'a Cell {
        calendar.cells.iter().find(|cell| cell.day == day).unwrap()
    }

    #[test]
    fn the_worst_decision_colours_the_day() {
        let decided = [
            occurrence("2026-11-26T09:00:00Z", Decision::Fired),
            occurrence("2026-11-26T10:00:00Z", Decision::Missed),
            occurrence("2026-11-26T11:00:00Z", Decision::Fired),
            occurrence("2026-11-27T00:00:00Z", Decision::Fired),
        ];
        let calendar = drawn(&decided, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let bad = day(&calendar, "2026-11-26");
        assert_eq!((bad.class, bad.mark), ("bad", "✕"));
        assert_eq!(bad.title, "Thu 2026-11-26 UTC: 3 due times: 1 missed, 2 fired");
        assert_eq!(day(&calendar, "2026-11-27").title, "Fri 2026-11-27 UTC: 1 due time: 1 fired");
        assert_eq!(day(&calendar, "2026-11-25").class, "none");
    }

    /// What is not read must not look as if nothing was due.
    #[test]
    fn days_that_are_not_read_say_so() {
        let decided = [occurrence("2026-11-20T09:00:00Z", Decision::Abandoned)];
        let calendar = drawn(&decided, "2026-11-26T12:00:00Z", "2026-11-01T00:00:00Z");
        assert_eq!(day(&calendar, "2026-11-20").class, "bad");
        assert_eq!(day(&calendar, "2026-11-26").mark, "·");
        assert_eq!(day(&calendar, "2026-10-31").mark, "?");
        assert_eq!(day(&calendar, "2026-11-27").mark, "");
    }

    #[test]
    fn weeks_are_columns_that_begin_on_monday() {
        let calendar = drawn(&[], "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        assert_eq!(calendar.cells.len(), 90);
        let (sunday, monday) = (day(&calendar, "2026-11-22"), day(&calendar, "2026-11-23"));
        assert_eq!((sunday.x + STEP, monday.y), (monday.x, TOP));
        assert_eq!(sunday.y, TOP + 6 * STEP);
    }
}
