//! A timezone: its name, and the rules of its `TZif` data; after the last listed change the footer's rules apply.
//!
//! Each zone is kept until the process exits, so that passing a timezone costs no more than a reference. A process
//! loads few zones: those of its workflows, and again after each change of the zone data that changes them.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{LazyLock, Mutex, PoisonError},
};

use chrono::{DateTime, FixedOffset, MappedLocalTime, NaiveDate, NaiveDateTime, NaiveTime, Offset, Timelike, Utc};
use chrono::{Datelike as _, TimeZone};
use jiff::{Timestamp, civil, tz};

use crate::ZoneDataError;

/// Earlier offsets do not affect what is published.
const PUBLISHED_FROM: i64 = 1_577_836_800; // 2020
/// The footer's rules repeat: if they agree for a century, they always agree.
const PUBLISHED_UNTIL: i64 = 4_733_510_400; // 2120

static UTC: Zone = Zone {
    name: Cow::Borrowed("UTC"),
    zone_name: Cow::Borrowed("Etc/UTC"),
    tzif: Cow::Borrowed(&[]),
    rules: tz::TimeZone::UTC,
    minutes_east: Some(0),
};
static INTERNED: LazyLock<Mutex<HashMap<String, Vec<&'static Zone>>>> = LazyLock::new(Mutex::default);

/// A timezone of the IANA database with its rules; returned by [`parse_timezone`](crate::parse_timezone).
///
/// Two are equal if they have the same name and the same rules.
///
/// ```
/// use schedule::{Timezone, parse_timezone};
/// let vancouver: Timezone = "America/Vancouver".parse()?;
/// assert_eq!(vancouver, parse_timezone("America/Vancouver")?);
/// assert_eq!((vancouver.name(), Timezone::UTC.name()), ("America/Vancouver", "UTC"));
/// # Ok::<(), schedule::TimezoneError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Timezone(&'static Zone);

struct Zone {
    name: Cow<'static, str>,
    /// The zone of which `name` is an alias, else `name`.
    zone_name: Cow<'static, str>,
    tzif: Cow<'static, [u8]>,
    rules: tz::TimeZone,
    /// By how many minutes, 0 to 59, its minutes are ahead of UTC's, if that never changes.
    minutes_east: Option<u32>,
}

/// A timezone's offset at some time, for chrono.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ZoneOffset {
    timezone: Timezone,
    offset: FixedOffset,
}

impl Timezone {
    /// Universal time.
    pub const UTC: Self = Self(&UTC);

    /// The name with which it was parsed, for example `Canada/Pacific`.
    ///
    /// ```
    /// assert_eq!(schedule::parse_timezone("Canada/Pacific")?.name(), "Canada/Pacific");
    /// # Ok::<(), schedule::TimezoneError>(())
    /// ```
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The zone that the name is an alias of, or the name itself.
    ///
    /// ```
    /// assert_eq!(schedule::parse_timezone("Canada/Pacific")?.zone_name(), "America/Vancouver");
    /// # Ok::<(), schedule::TimezoneError>(())
    /// ```
    pub fn zone_name(self) -> &'static str {
        &self.0.zone_name
    }

    /// The instants after `instant` at which the offset changes, in ascending order; endless if the footer has rules.
    ///
    /// ```
    /// let paris = schedule::parse_timezone("Europe/Paris")?;
    /// let change = paris.offset_changes_after("2199-05-01T00:00:00Z".parse().unwrap()).next();
    /// assert_eq!(change, Some("2199-10-27T01:00:00Z".parse().unwrap()));
    /// # Ok::<(), schedule::TimezoneError>(())
    /// ```
    pub fn offset_changes_after(self, instant: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> {
        self.changes_after(instant.timestamp()).map(|(at, _)| at)
    }

    /// The offset from UTC at `instant`, in seconds; positive is east.
    ///
    /// ```
    /// let paris = schedule::parse_timezone("Europe/Paris")?;
    /// assert_eq!(paris.offset_secs("2026-07-14T12:00:00Z".parse().unwrap()), 7200);
    /// # Ok::<(), schedule::TimezoneError>(())
    /// ```
    pub fn offset_secs(self, instant: DateTime<Utc>) -> i32 {
        self.0.rules.to_offset(timestamp(instant.timestamp())).seconds()
    }

    /// By how many minutes, 0 to 59, the zone's minutes are ahead of UTC's; `None` if that changes after 2020.
    pub(crate) fn minutes_east(self) -> Option<u32> {
        self.0.minutes_east
    }

    /// Returns the only timezone with this name and these rules.
    pub(crate) fn intern_zone(name: &str, zone_name: &str, tzif: &[u8]) -> Result<Self, ZoneDataError> {
        if name == Self::UTC.name() {
            return Ok(Self::UTC);
        }
        let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
        let same_name = interned.entry(name.to_owned()).or_default();
        if let Some(zone) = same_name.iter().find(|zone| *zone.tzif == *tzif && zone.zone_name == zone_name) {
            return Ok(Self(zone));
        }
        let rules = Self::check_tzif(name, tzif)?;
        let zone: &'static Zone = Box::leak(Box::new(Zone {
            name: Cow::Owned(name.to_owned()),
            zone_name: Cow::Owned(zone_name.to_owned()),
            tzif: Cow::Owned(tzif.to_owned()),
            minutes_east: minutes_east(&rules),
            rules,
        }));
        same_name.push(zone);
        Ok(Self(zone))
    }

    /// Parses `TZif` data.
    pub(crate) fn check_tzif(name: &str, tzif: &[u8]) -> Result<tz::TimeZone, ZoneDataError> {
        // Version 1 has no footer, so its rules end in 2037.
        let has_footer = tzif.starts_with(b"TZif") && tzif.get(4).is_some_and(|version| *version >= b'2');
        let rules = if has_footer { tz::TimeZone::tzif(name, tzif).ok() } else { None };
        rules.ok_or_else(|| ZoneDataError::of_zone(name))
    }

    fn changes_after(self, second: i64) -> impl Iterator<Item = (DateTime<Utc>, i32)> {
        let mut last = self.0.rules.to_offset(timestamp(second)).seconds();
        let changes = self.0.rules.following(timestamp(second));
        // A change of the abbreviation or of the summer-time flag only is not a change of the offset.
        changes.filter_map(move |change| {
            let offset = change.offset().seconds();
            let is_change = std::mem::replace(&mut last, offset) != offset;
            let at = DateTime::from_timestamp(change.timestamp().as_second(), 0)?;
            is_change.then_some((at, offset))
        })
    }
}

/// Minutes from 0 to 59 east of UTC, if all offsets from 2020 on have the same minutes.
fn minutes_east(rules: &tz::TimeZone) -> Option<u32> {
    let from = timestamp(PUBLISHED_FROM);
    let later = rules.following(from).take_while(|change| change.timestamp().as_second() < PUBLISHED_UNTIL);
    let first = rules.to_offset(from).seconds().rem_euclid(3600);
    let is_constant = later.map(|change| change.offset().seconds().rem_euclid(3600)).all(|offset| offset == first);
    (is_constant && first % 60 == 0).then(|| first.unsigned_abs() / 60)
}

fn timestamp(second: i64) -> Timestamp {
    let within = second.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(within).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// chrono's conversions, so that `instant.with_timezone(&timezone)` works.
impl TimeZone for Timezone {
    type Offset = ZoneOffset;

    fn from_offset(offset: &ZoneOffset) -> Self {
        offset.timezone
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> MappedLocalTime<ZoneOffset> {
        self.offset_from_local_datetime(&local.and_time(NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> MappedLocalTime<ZoneOffset> {
        let Some(civil) = civil(local) else {
            return MappedLocalTime::Single(self.offset_from_utc_datetime(local));
        };
        match self.0.rules.to_ambiguous_timestamp(civil).offset() {
            tz::AmbiguousOffset::Unambiguous { offset } => MappedLocalTime::Single(self.at(offset)),
            tz::AmbiguousOffset::Gap { .. } => MappedLocalTime::None,
            tz::AmbiguousOffset::Fold { before, after } => MappedLocalTime::Ambiguous(self.at(before), self.at(after)),
        }
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ZoneOffset {
        self.offset_from_utc_datetime(&utc.and_time(NaiveTime::MIN))
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> ZoneOffset {
        self.at(self.0.rules.to_offset(timestamp(utc.and_utc().timestamp())))
    }
}

impl Timezone {
    fn at(self, offset: tz::Offset) -> ZoneOffset {
        // jiff accepts offsets up to 26 hours, chrono up to 24; no zone has one above 16.
        let offset = FixedOffset::east_opt(offset.seconds()).unwrap_or(Utc.fix());
        ZoneOffset { timezone: self, offset }
    }
}

/// `None` outside of the years that jiff supports, -9999 to 9999.
fn civil(local: &NaiveDateTime) -> Option<civil::DateTime> {
    let (date, time) = (local.date(), local.time());
    let year = i16::try_from(date.year()).ok()?;
    let [month, day, hour, minute, second] =
        [date.month(), date.day(), time.hour(), time.minute(), time.second()].map(|part| part as i8);
    civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()
}

impl Offset for ZoneOffset {
    fn fix(&self) -> FixedOffset {
        self.offset
    }
}

impl fmt::Debug for ZoneOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.offset, f)
    }
}

impl fmt::Display for ZoneOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.offset, f)
    }
}

impl PartialEq for Timezone {
    fn eq(&self, other: &Self) -> bool {
        // Interned: equal names and rules are the same zone.
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Timezone {}

impl fmt::Display for Timezone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Timezone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
