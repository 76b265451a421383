//! Columns over time: what fired and what comes, part by part.

use std::ops::Range;

use chrono::{DateTime, Utc};

use crate::times;

/// One part of the time.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its begin.
    pub from: DateTime<Utc>,
    /// What went well, or is due.
    pub good: i64,
    /// What did not run.
    pub bad: i64,
    /// What was skipped.
    pub quiet: i64,
}

/// One rectangle.
#[derive(Clone, Debug)]
pub struct Column {
    /// Left edge.
    pub x: i64,
    /// Upper edge.
    pub y: i64,
    /// Height.
    pub height: i64,
    /// The class, for the colour.
    pub class: &'static str,
    /// What it says.
    pub title: String,
}

/// The height of the picture without its labels.
pub const HEIGHT: i64 = 90;

/// The width of the picture: three for each part of five minutes of a day.
pub const WIDTH: i64 = 864;

/// The rectangles of parts, each at its time of the span: a part in which nothing happened is not among them.
#[must_use]
pub fn columns(parts: &[Part], span: &Range<DateTime<Utc>>, class: &'static str) -> Vec<Column> {
    let seconds = (span.end - span.start).num_seconds().max(1);
    let tallest = parts.iter().map(|part| part.good + part.bad + part.quiet).max().unwrap_or(0).max(1);
    let mut columns = Vec::new();
    for part in parts {
        let x = (part.from - span.start).num_seconds().max(0) * WIDTH / seconds;
        let mut bottom = HEIGHT;
        let stacked =
            [(part.good, class, "on time"), (part.quiet, "warn", "skipped"), (part.bad, "bad", "missed or abandoned")];
        for (count, class, words) in stacked.into_iter().filter(|(count, ..)| *count > 0) {
            let height = (count * HEIGHT / tallest).max(2);
            bottom -= height;
            let title = format!("{}: {count} {words}", times::in_utc(&part.from));
            columns.push(Column { x, y: bottom.max(0), height, class, title });
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn the_tallest_part_fills_the_height_and_each_is_at_its_time() {
        let at = |hours| DateTime::UNIX_EPOCH + TimeDelta::hours(hours);
        let part = |hours, good, bad, quiet| Part { from: at(hours), good, bad, quiet };
        let drawn = columns(&[part(0, 10, 0, 0), part(12, 5, 5, 0), part(18, 0, 0, 0)], &(at(0)..at(24)), "good");
        let found: Vec<_> = drawn.iter().map(|one| (one.x, one.y, one.height, one.class)).collect();
        assert_eq!(found, [(0, 0, 90, "good"), (432, 45, 45, "good"), (432, 0, 45, "bad")]);
    }
}
