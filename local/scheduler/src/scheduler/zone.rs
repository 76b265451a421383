//! Step 5 of 7: a timezone. `tz-rs` reads its `TZif` file (RFC 9636); the crate `schedule` uses another library.
//!
//! After the last change that a file lists, the rule in its footer applies, a `TZ` string of POSIX.

use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

use super::zone_files::ZoneFiles;

/// Larger than any offset. No zone changes its offset twice within the double of it: since 1970 at least 167 h passed.
const REACH: TimeDelta = TimeDelta::hours(26);

/// A timezone with its rules.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    rules: Arc<tz::TimeZone>,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Zone {
    /// Returns the timezone of this name.
    pub fn by_name(name: &str, files: &ZoneFiles) -> Option<Zone> {
        let rules = tz::TimeZone::from_tz_data(&files.read_tzif(name)?).ok()?;
        // Without a footer nothing says which offset applies after the last change.
        let is_complete = rules.as_ref().extra_rule().is_some() || rules.as_ref().transitions().is_empty();
        is_complete.then(|| Zone { name: name.to_owned(), rules: Arc::new(rules) })
    }

    /// The name as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The local time at `instant`.
    pub fn wall_time(&self, instant: DateTime<Utc>) -> NaiveDateTime {
        instant.naive_utc() + self.offset(instant)
    }

    /// The instants at which the local time is `wall`, in ascending order: none in a gap, two in a fold.
    ///
    /// Each offset around `wall` gives a candidate. It counts if that offset is in force at the candidate.
    pub fn instants_at(&self, wall: NaiveDateTime) -> impl Iterator<Item = DateTime<Utc>> + use<> {
        let near = wall.and_utc();
        let offsets = [near - REACH, near, near + REACH].map(|at| self.offset(at));
        let mut found = offsets.map(|offset| Some(near - offset).filter(|at| self.offset(*at) == offset));
        found.sort_unstable();
        let mut last = None;
        found.into_iter().flatten().filter(move |at| last.replace(*at) != Some(*at))
    }

    fn offset(&self, instant: DateTime<Utc>) -> TimeDelta {
        // It fails only for times that the calendar of AWS's crons, 1970 to 2199, does not reach.
        let found = self.rules.find_local_time_type(instant.timestamp());
        TimeDelta::seconds(found.map_or(0, |local| i64::from(local.ut_offset())))
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike as _, Timelike as _};
    use tz::datetime::FoundDateTimeKind;

    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::by_name(name, &ZoneFiles::bundled()).unwrap_or_else(|| panic!("no zone {name}"))
    }

    fn instants(name: &str, wall: &str) -> Vec<String> {
        zone(name).instants_at(wall.parse().unwrap()).map(|at| at.format("%FT%RZ").to_string()).collect()
    }

    #[test]
    fn walls_have_none_one_or_two_instants() {
        assert_eq!(instants("Europe/Paris", "2026-03-29T02:30:00"), [""; 0]);
        assert_eq!(instants("Europe/Paris", "2026-03-29T03:30:00"), ["2026-03-29T01:30Z"]);
        assert_eq!(instants("Europe/Paris", "2026-10-25T02:30:00"), ["2026-10-25T00:30Z", "2026-10-25T01:30Z"]);
        assert_eq!(instants("UTC", "2026-03-29T02:30:00"), ["2026-03-29T02:30Z"]);
    }

    #[test]
    fn gap_and_fold_have_exact_borders() {
        assert_eq!(instants("America/New_York", "2026-03-08T01:59:00"), ["2026-03-08T06:59Z"]);
        assert_eq!(instants("America/New_York", "2026-03-08T02:00:00"), [""; 0]);
        assert_eq!(instants("America/New_York", "2026-03-08T02:59:00"), [""; 0]);
        assert_eq!(instants("America/New_York", "2026-03-08T03:00:00"), ["2026-03-08T07:00Z"]);
        assert_eq!(instants("America/New_York", "2026-11-01T00:59:00"), ["2026-11-01T04:59Z"]);
        assert_eq!(instants("America/New_York", "2026-11-01T01:00:00"), ["2026-11-01T05:00Z", "2026-11-01T06:00Z"]);
        assert_eq!(instants("America/New_York", "2026-11-01T01:59:00"), ["2026-11-01T05:59Z", "2026-11-01T06:59Z"]);
        assert_eq!(instants("America/New_York", "2026-11-01T02:00:00"), ["2026-11-01T07:00Z"]);
    }

    /// Offsets of quarters of an hour, changes of half an hour, at midnight, and of a complete day.
    #[test]
    fn odd_offsets_and_changes_are_followed() {
        assert_eq!(instants("Asia/Kathmandu", "2026-07-01T12:00:00"), ["2026-07-01T06:15Z"]);
        assert_eq!(instants("Asia/Kolkata", "2026-07-01T00:00:00"), ["2026-06-30T18:30Z"]);
        assert_eq!(instants("Pacific/Chatham", "2026-07-01T00:00:00"), ["2026-06-30T11:15Z"]);
        // The gap from 02:45 to 03:45.
        assert_eq!(instants("Pacific/Chatham", "2026-09-27T03:00:00"), [""; 0]);
        assert_eq!(instants("Pacific/Chatham", "2026-09-27T03:45:00"), ["2026-09-26T14:00Z"]);
        // Half an hour.
        assert_eq!(instants("Australia/Lord_Howe", "2026-04-05T01:45:00"), ["2026-04-04T14:45Z", "2026-04-04T15:15Z"]);
        assert_eq!(instants("Australia/Lord_Howe", "2026-04-05T01:15:00"), ["2026-04-04T14:15Z"]);
        assert_eq!(instants("Australia/Lord_Howe", "2026-10-04T02:15:00"), [""; 0]);
        // Two hours.
        assert_eq!(instants("Antarctica/Troll", "2026-03-29T02:30:00"), [""; 0]);
        assert_eq!(instants("Antarctica/Troll", "2026-10-25T01:30:00"), ["2026-10-24T23:30Z", "2026-10-25T01:30Z"]);
        // Samoa had no 30 December 2011.
        assert_eq!(instants("Pacific/Apia", "2011-12-29T12:00:00"), ["2011-12-29T22:00Z"]);
        assert_eq!(instants("Pacific/Apia", "2011-12-30T12:00:00"), [""; 0]);
        assert_eq!(instants("Pacific/Apia", "2011-12-31T12:00:00"), ["2011-12-30T22:00Z"]);
    }

    /// The file of Paris lists no change after 1996; a rule in its footer names all later ones.
    #[test]
    fn footer_rules_apply_after_the_table() {
        let paris = zone("Europe/Paris");
        let last = DateTime::from_timestamp(*changes(&paris).last().unwrap(), 0).unwrap();
        assert!(last.year() < 2026, "the file lists changes until {last}, so this test needs another zone");
        assert_eq!(instants("Europe/Paris", "2199-03-31T02:30:00"), [""; 0]);
        assert_eq!(instants("Europe/Paris", "2199-10-27T02:30:00"), ["2199-10-27T00:30Z", "2199-10-27T01:30Z"]);
        // A footer with the negative time of an extension, `M3.5.0/-1`: 23:00 on the day before.
        assert_eq!(instants("America/Nuuk", "2199-03-30T23:30:00"), [""; 0]);
        // A footer without changes.
        assert_eq!(instants("Pacific/Apia", "2199-01-01T00:00:00"), ["2198-12-31T11:00Z"]);
    }

    /// RFC 9636 leaves open what follows the last change of such a file.
    #[test]
    fn files_without_footer_are_refused() {
        let whole = ZoneFiles::bundled().read_tzif("Europe/Paris").unwrap();
        let footer = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        let cut = [&whole[..=footer], b"\n"].concat();
        let files = ZoneFiles::from_reader(move |_| Some(cut.clone()));
        assert!(Zone::by_name("Europe/Paris", &files).is_none());
    }

    /// Another way to the same result: `tz-rs` searches all changes of a zone.
    #[test]
    fn every_change_agrees_with_exhaustive_search() {
        for name in ["Europe/Dublin", "Africa/Casablanca", "Asia/Gaza", "America/St_Johns", "Antarctica/Casey"] {
            let zone = zone(name);
            for change in changes(&zone).into_iter().filter(|change| *change > 0) {
                let before = DateTime::from_timestamp(change - 1, 0).unwrap();
                let start = zone.wall_time(before) + TimeDelta::seconds(1);
                for minutes in [-181, -61, -60, -30, -1, 0, 1, 29, 30, 59, 60, 61, 181] {
                    let wall = start + TimeDelta::minutes(minutes);
                    let ours: Vec<i64> = zone.instants_at(wall).map(|at| at.timestamp()).collect();
                    assert_eq!(ours, exhaustive(&zone, wall), "{name} at {wall}");
                }
            }
        }
    }

    /// The times of the changes that a zone's file lists.
    fn changes(zone: &Zone) -> Vec<i64> {
        let rules = tz::TimeZone::as_ref(&zone.rules);
        rules.transitions().iter().map(tz::timezone::Transition::unix_leap_time).collect()
    }

    fn exhaustive(zone: &Zone, wall: NaiveDateTime) -> Vec<i64> {
        let (month, day) = (wall.month() as u8, wall.day() as u8);
        let (hour, minute, second) = (wall.hour() as u8, wall.minute() as u8, wall.second() as u8);
        let rules = tz::TimeZone::as_ref(&zone.rules);
        let found = tz::DateTime::find(wall.year(), month, day, hour, minute, second, 0, rules).unwrap();
        let times = found.into_inner().into_iter().filter_map(|kind| match kind {
            FoundDateTimeKind::Normal(time) => Some(time.unix_time()),
            FoundDateTimeKind::Skipped { .. } => None,
        });
        times.collect()
    }
}
