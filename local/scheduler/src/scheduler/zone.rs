//! A timezone of the stand-in: the same data as in the crate `schedule`, with another parser.

use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use schedule::ZoneSet;

/// Larger than any offset, and no zone changes its offset twice within this span.
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
    /// Returns the timezone of this name in the zone data of this process.
    pub fn find(name: &str) -> Option<Zone> {
        let zones = ZoneSet::installed();
        let rules = tz::TimeZone::from_tz_data(zones.tzif(name)?).ok()?;
        Some(Zone { name: name.to_owned(), rules: Arc::new(rules) })
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
    pub fn instants(&self, wall: NaiveDateTime) -> impl Iterator<Item = DateTime<Utc>> + use<> {
        let near = wall.and_utc();
        let offsets = [near - REACH, near, near + REACH].map(|at| self.offset(at));
        let mut found = offsets.map(|offset| Some(near - offset).filter(|at| self.offset(*at) == offset));
        found.sort_unstable();
        let mut last = None;
        found.into_iter().flatten().filter(move |at| last.replace(*at) != Some(*at))
    }

    fn offset(&self, instant: DateTime<Utc>) -> TimeDelta {
        let found = self.rules.find_local_time_type(instant.timestamp());
        TimeDelta::seconds(found.map_or(0, |local| i64::from(local.ut_offset())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(zone: &str, wall: &str) -> Vec<String> {
        let zone = Zone::find(zone).unwrap();
        zone.instants(wall.parse().unwrap()).map(|at| at.format("%FT%RZ").to_string()).collect()
    }

    #[test]
    fn walls_have_none_one_or_two_instants() {
        assert_eq!(instants("Europe/Paris", "2026-03-29T02:30:00"), [""; 0]);
        assert_eq!(instants("Europe/Paris", "2026-03-29T03:30:00"), ["2026-03-29T01:30Z"]);
        assert_eq!(instants("Europe/Paris", "2199-10-27T02:30:00"), ["2199-10-27T00:30Z", "2199-10-27T01:30Z"]);
        assert_eq!(instants("Pacific/Apia", "2011-12-30T12:00:00"), [""; 0]);
        assert_eq!(instants("UTC", "2026-03-29T02:30:00"), ["2026-03-29T02:30Z"]);
    }
}
