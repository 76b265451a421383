//! The heat map of due times: a row for each hour, a column for each minute.

use chrono::{DateTime, DurationRound as _, TimeDelta, Timelike as _, Utc};

use crate::times;

/// The due times of one part of the span.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its begin.
    pub from: DateTime<Utc>,
    /// How many times are due in it.
    pub due: i64,
}

/// One rectangle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Left edge.
    pub x: i64,
    /// Upper edge.
    pub y: i64,
    /// Width: that of its minutes, up to the end of the hour.
    pub width: i64,
    /// The class, `heat1` to `heat5`.
    pub class: &'static str,
    /// A sign on the hottest cells, so that they differ not by colour only.
    pub sign: Option<&'static str>,
    /// What it says.
    pub title: String,
}

/// The label of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Upper edge.
    pub y: i64,
    /// The hour, and on its first row the day.
    pub label: String,
}

/// A class with the counts that have it, for the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// `heat1` to `heat5`.
    pub class: &'static str,
    /// The least count.
    pub least: i64,
    /// The largest count.
    pub most: i64,
}

/// The width of the labels of rows.
pub const LEFT: i64 = 92;
/// The height of the labels of columns.
pub const TOP: i64 = 18;
/// The width of a minute.
pub const MINUTE: i64 = 13;
/// The height of a row.
pub const ROW: i64 = 15;
/// The width of the picture.
pub const WIDTH: i64 = LEFT + 60 * MINUTE;

const CLASSES: [&str; 5] = ["heat1", "heat2", "heat3", "heat4", "heat5"];
/// A picture of few times is not hot: the hottest class begins above four fifths of at least so many.
const LEAST_TOP: i64 = 10;

/// The five classes of counts up to `most`.
#[must_use]
pub fn levels(most: i64) -> [Level; 5] {
    let top = most.max(LEAST_TOP);
    let mut nth = 0;
    CLASSES.map(|class| {
        nth += 1;
        Level { class, least: top * (nth - 1) / 5 + 1, most: top * nth / 5 }
    })
}

/// The rectangles of parts that are `bucket` long, in a span that begins at `from`.
#[must_use]
pub fn cells(parts: &[Part], from: DateTime<Utc>, bucket: TimeDelta) -> Vec<Cell> {
    let levels = levels(parts.iter().map(|part| part.due).max().unwrap_or(0));
    let first = hour_of(from);
    let of_part = |part: &Part| {
        let minute = i64::from(part.from.minute());
        let level = levels.iter().find(|level| part.due <= level.most).unwrap_or(&levels[4]);
        Cell {
            x: LEFT + minute * MINUTE,
            y: TOP + (part.from - first).num_hours() * ROW,
            width: bucket.num_minutes().clamp(1, 60 - minute) * MINUTE - 1,
            class: level.class,
            sign: (level.class == CLASSES[4]).then_some("!"),
            title: format!("{}: {} due", times::in_utc(&part.from), part.due),
        }
    };
    parts.iter().filter(|part| part.due > 0).map(of_part).collect()
}

/// The labels of the hours of a span.
#[must_use]
pub fn rows(from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut hour = hour_of(from);
    while hour < to {
        let is_named = rows.is_empty() || hour.hour() == 0;
        let label = if is_named { hour.format("%a %d, %H:00") } else { hour.format("%H:00") };
        let y = i64::try_from(rows.len()).unwrap_or(0) * ROW + TOP;
        rows.push(Row { y, label: label.to_string() });
        hour += TimeDelta::hours(1);
    }
    rows
}

/// The height of a picture with so many rows.
#[must_use]
pub fn height(rows: &[Row]) -> i64 {
    TOP + i64::try_from(rows.len()).unwrap_or(0) * ROW
}

fn hour_of(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::hours(1)).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn cells_lie_in_the_row_of_their_hour() {
        let from = at("2026-03-28T22:58:00Z");
        let parts = [
            Part { from, due: 1 },
            Part { from: at("2026-03-28T22:59:00Z"), due: 3 },
            Part { from: at("2026-03-29T00:00:00Z"), due: 100 },
        ];
        let drawn = cells(&parts, from, TimeDelta::minutes(2));
        let found: Vec<_> = drawn.iter().map(|cell| (cell.x, cell.y, cell.width, cell.class)).collect();
        let (minute, row) = (|nth| LEFT + nth * MINUTE, |nth| TOP + nth * ROW);
        // The second one ends with its hour.
        assert_eq!(
            found,
            [
                (minute(58), row(0), 2 * MINUTE - 1, "heat1"),
                (minute(59), row(0), MINUTE - 1, "heat1"),
                (minute(0), row(2), 2 * MINUTE - 1, "heat5"),
            ]
        );
        let labels: Vec<_> = rows(from, at("2026-03-29T00:30:00Z")).into_iter().map(|row| row.label).collect();
        assert_eq!(labels, ["Sat 28, 22:00", "23:00", "Sun 29, 00:00"]);
    }

    #[test]
    fn levels_follow_each_other() {
        let bounds = |most| levels(most).map(|level| (level.least, level.most));
        assert_eq!(bounds(3), [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)]);
        assert_eq!(bounds(104), [(1, 20), (21, 41), (42, 62), (63, 83), (84, 104)]);
    }
}
