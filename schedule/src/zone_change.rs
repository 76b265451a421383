//! What a change of the zone data changes: whether a cron's next times are others by the new rules.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{Cron, Timezone};

/// No offset is as large, so a time moves by less.
const REACH: TimeDelta = TimeDelta::hours(26);
/// Times compared at each end of a span with other offsets; a dense cron shows a difference at once.
const COMPARED: usize = 2_000;

impl Cron {
    /// The first time from `from` to `until` that only one of two rules names; none if they name the same.
    ///
    /// ```
    /// use schedule::{Cron, Timezone};
    /// let (from, until) = ("2026-06-01T00:00:00Z".parse().unwrap(), "2027-06-01T00:00:00Z".parse().unwrap());
    /// let paris: Timezone = "Europe/Paris".parse().unwrap();
    /// let cron = Cron::parse("0 9 * * *")?;
    /// assert_eq!(cron.first_difference(paris, paris, from, until), None);
    /// // Lagos stays at +01:00 while Paris has summer time.
    /// let difference = cron.first_difference(paris, "Africa/Lagos".parse().unwrap(), from, until);
    /// assert_eq!(difference, Some("2026-06-01T07:00:00Z".parse().unwrap()));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn first_difference(
        &self,
        before: Timezone,
        after: Timezone,
        from: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let changes = |tz: Timezone| tz.offset_changes_after(from).take_while(|at| *at <= until);
        let mut starts: Vec<_> = changes(before).chain(changes(after)).chain([from]).collect();
        starts.sort_unstable();
        let ends = starts.iter().skip(1).copied().chain([until]);
        let differing = starts
            .iter()
            .copied()
            .zip(ends)
            .filter(|(start, _)| before.offset_secs(*start) != after.offset_secs(*start));
        differing
            .flat_map(|(start, end)| {
                let seam = end - REACH;
                [(start - REACH, seam), (seam, end + REACH)]
            })
            .find_map(|(start, end)| self.difference_within(before, after, from.max(start), until.min(end)))
    }

    fn difference_within(
        &self,
        before: Timezone,
        after: Timezone,
        start: DateTime<Utc>,
        end: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let times = |tz| self.times_after(start, tz).take_while(|time| *time <= end).take(COMPARED);
        let (mut before, mut after) = (times(before), times(after));
        loop {
            let pair = (before.next(), after.next());
            if pair.0 != pair.1 {
                return pair.0.into_iter().chain(pair.1).min();
            }
            pair.0?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ZoneSet;

    /// Vancouver by the rules of Los Angeles, which it had until 2026.
    fn vancouver_of_2025() -> Timezone {
        let los_angeles = ZoneSet::bundled().tzif("America/Los_Angeles").expect("a zone").to_vec();
        let version = "2025b".parse().expect("a version");
        let old = ZoneSet::from_files(&version, [("America/Vancouver".to_owned(), los_angeles)]).expect("zone data");
        Arc::new(old).find("America/Vancouver").expect("a zone")
    }

    fn difference(cron: &str, from: &str, until: &str) -> Option<String> {
        let at = |text: &str| text.parse().expect("a time");
        let now = ZoneSet::bundled().find("America/Vancouver").expect("a zone");
        let cron = Cron::parse(cron).expect("a cron");
        let found = cron.first_difference(vancouver_of_2025(), now, at(from), at(until));
        found.map(|time| time.format("%FT%RZ").to_string())
    }

    #[test]
    fn other_rules_move_the_times_of_winter() {
        let (june, next_june) = ("2026-06-01T00:00:00Z", "2027-06-01T00:00:00Z");
        assert_eq!(difference("0 9 * * *", june, next_june).as_deref(), Some("2026-11-01T16:00Z"));
        assert_eq!(difference("0 9 1 7 *", june, next_june), None, "a time of summer");
        assert_eq!(difference("0 9 24 12 *", june, next_june).as_deref(), Some("2026-12-24T16:00Z"));
        assert_eq!(difference("*/5 * * * *", june, next_june), None, "every hour, so the same instants");
        assert_eq!(difference("0 * * * MON", june, next_june).as_deref(), Some("2026-11-02T07:00Z"));
        assert_eq!(
            difference("0 2 * * *", june, "2026-11-01T09:00:00Z").as_deref(),
            Some("2026-11-01T09:00Z"),
            "its end"
        );
    }

    /// Thousands of equal times come before the first that differs.
    #[test]
    fn dense_crons_differ_where_they_end() {
        let (from, until) = ("2026-11-03T00:00:00Z", "2026-12-01T12:00:00Z");
        assert_eq!(difference("* * * 11 *", from, until).as_deref(), Some("2026-12-01T07:00Z"));
    }
}
