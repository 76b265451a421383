//! The effects of a change of the zone data: whether a cron's next times differ by the new rules.

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};

use crate::{Cron, Timezone};

/// Larger than any offset, so no time moves by more.
const REACH: TimeDelta = TimeDelta::hours(26);
/// How long a stretch is compared time by time: a change before it cannot affect its last day.
const COMPARED: TimeDelta = TimeDelta::hours(3 * 26);

impl Cron {
    /// The first time from `from` to `until` that only one of two rules names; `None` if they name the same times.
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

    /// Compares all times of a window, except those that only repeat a day that was compared.
    fn difference_within(
        &self,
        before: Timezone,
        after: Timezone,
        start: DateTime<Utc>,
        end: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let mut start = start;
        while start < end {
            let stretch_end = end.min(start + COMPARED);
            let difference = self.difference_of_times(before, after, start, stretch_end);
            if difference.is_some() {
                return difference;
            }
            start = stretch_end.max(self.repeats_until(stretch_end, end));
        }
        None
    }

    fn difference_of_times(
        &self,
        before: Timezone,
        after: Timezone,
        start: DateTime<Utc>,
        end: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let times = |tz| self.times_after(start, tz).take_while(|time| *time <= end);
        let (mut before, mut after) = (times(before), times(after));
        loop {
            let pair = (before.next(), after.next());
            if pair.0 != pair.1 {
                return pair.0.into_iter().chain(pair.1).min();
            }
            pair.0?;
        }
    }

    /// Returns until when the day before `instant` repeats: as long as the cron names each local day near it.
    ///
    /// While the offsets do not change, the times of such days differ by full days only. So if the times of one day are
    /// equal, those of all are. The first day that the cron does not name ends that, for example in December
    /// for `* * * 11 *`.
    fn repeats_until(&self, instant: DateTime<Utc>, end: DateTime<Utc>) -> DateTime<Utc> {
        let last = (end + REACH).date_naive();
        let days = (instant - TimeDelta::days(1) - REACH).date_naive().iter_days();
        let unnamed = days.take_while(|day| *day <= last).find(|day| !self.names_day(*day));
        unnamed.map_or(end, |day| day.and_time(NaiveTime::MIN).and_utc() - REACH)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::ZoneSet;

    /// Vancouver with the rules of Los Angeles, which it had until 2026.
    fn vancouver_of_2025() -> Timezone {
        let los_angeles = ZoneSet::bundled().tzif("America/Los_Angeles").expect("a zone").to_vec();
        let version = "2025b".parse().expect("a version");
        let old = ZoneSet::from_files(&version, [("America/Vancouver".to_owned(), los_angeles)]).expect("zone data");
        Arc::new(old).find("America/Vancouver").expect("a zone")
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    fn difference(cron: &str, from: &str, until: &str) -> Option<String> {
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
        let two_days_later = "2026-12-02T22:00:00Z";
        assert_eq!(difference("* * * 11 *", from, two_days_later).as_deref(), Some("2026-12-01T07:00Z"));
    }

    /// The days that are compared first have no times, so they prove nothing about the named days after them.
    #[test]
    fn crons_differ_after_days_without_times() {
        let (from, until) = ("2026-11-03T00:00:00Z", "2026-11-20T00:00:00Z");
        assert_eq!(difference("0 9 6-30 11 *", from, until).as_deref(), Some("2026-11-06T16:00Z"));
    }

    /// Troll's offset changes by two hours. Even hours are the same instants as UTC's until that fold.
    #[test]
    fn even_hours_differ_at_a_fold() {
        let troll = ZoneSet::bundled().find("Antarctica/Troll").expect("a zone");
        let cron = Cron::parse("0 */2 * * *").expect("a cron");
        let (june, next_february) = (at("2026-06-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
        let found = cron.first_difference(troll, Timezone::UTC, june, next_february);
        assert_eq!(found, Some(at("2026-10-25T02:00:00Z")));
    }

    /// The difference is far from both offset changes, after weeks of equal minutes.
    #[test]
    fn dense_crons_differ_where_they_pause() {
        let (june, years_later) = ("2026-06-01T00:00:00Z", "2029-06-01T00:00:00Z");
        for (cron, expected) in [
            ("* * * 10,11 *", Some("2026-12-01T07:00Z")),
            ("* * * 2-12 *", Some("2027-01-01T07:00Z")),
            ("* * 1-14,16-31 * *", Some("2026-11-15T07:00Z")),
            // The first cron pauses only in summer, the second never.
            ("*/5 * * 1-5,7-12 *", None),
            ("* * * * *", None),
        ] {
            assert_eq!(difference(cron, june, years_later).as_deref(), expected, "{cron}");
        }
    }

    /// The old rules skip 02:30 of 14 March 2027; eight months before, all rules agree.
    #[test]
    fn times_in_a_gap_differ() {
        let (july, next_june) = ("2026-07-14T00:00:00Z", "2027-06-01T00:00:00Z");
        assert_eq!(difference("30 2 14 3 *", july, next_june).as_deref(), Some("2027-03-14T09:30Z"));
        assert_eq!(difference("30 3 14 3 *", july, next_june), None, "after the gap");
        assert_eq!(difference("30 1 14 3 *", july, next_june).as_deref(), Some("2027-03-14T08:30Z"), "before it");
    }

    /// Compared with all times of half a year, in zones that differ in winter only, by an hour, or by a day.
    #[test]
    fn differences_are_those_of_all_times() {
        let zone = |name: &str| ZoneSet::bundled().find(name).expect("a zone");
        let pairs = [
            (vancouver_of_2025(), zone("America/Vancouver")),
            (zone("Europe/Paris"), zone("Africa/Lagos")),
            (zone("Pacific/Apia"), zone("Pacific/Pago_Pago")),
        ];
        let (from, until) = (at("2026-10-01T00:00:00Z"), at("2027-04-01T00:00:00Z"));
        for text in
            ["0,30 * * * *", "0 * * * MON-FRI", "30 2 * * *", "0 */6 1-14 * *", "0 * * 11 *", "15 0 L * *", "0 9 1 7 *"]
        {
            let cron = Cron::parse(text).expect("a cron");
            for (before, after) in pairs {
                let times = |tz| cron.times_after(from, tz).take_while(|time| *time <= until).collect::<BTreeSet<_>>();
                let (old, new) = (times(before), times(after));
                let expected = old.symmetric_difference(&new).next().copied();
                assert_eq!(cron.first_difference(before, after, from, until), expected, "{text} in {before}, {after}");
            }
        }
    }
}
