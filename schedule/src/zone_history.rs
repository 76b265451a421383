//! The history of the zone data in force, so that a past time keeps the rules of its day.
//!
//! A process uses one history: the bundled set for all times until [`ZoneHistory::install_history`] installs another.
//! The app installs the history of its database.

use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, TimeDelta, Utc};

use crate::{Cron, Timezone, ZoneSet};

static INSTALLED: RwLock<Option<Arc<ZoneHistory>>> = RwLock::new(None);

/// The sets that were in force one after the other. Before the first of them, the first is in force.
///
/// ```
/// use schedule::{ZoneHistory, ZoneSet};
/// let history = ZoneHistory::from_set(ZoneSet::bundled());
/// assert_eq!(history.newest_set().version(), ZoneSet::bundled().version());
/// let paris = history.find("Europe/Paris").unwrap();
/// assert_eq!(paris.timezone_at("1970-01-01T00:00:00Z".parse().unwrap()), "Europe/Paris".parse().ok());
/// ```
#[derive(Debug)]
pub struct ZoneHistory {
    first: Arc<ZoneSet>,
    /// Ascending.
    later: Vec<(DateTime<Utc>, Arc<ZoneSet>)>,
    last_change: Option<i64>,
}

/// A timezone with its rules over time: at each instant those of the set that was in force then.
///
/// While a set without the timezone was in force, the rules of the previous set apply. Before the first set that has
/// it, the rules of that set apply. After the last set that has it, its rules are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimezoneHistory {
    first: Timezone,
    /// Ascending; empty if no change of the data changed this timezone.
    later: Vec<(DateTime<Utc>, Timezone)>,
    unknown_from: Option<DateTime<Utc>>,
}

impl ZoneHistory {
    /// A history of one set, for all times.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// assert_eq!(ZoneHistory::from_set(ZoneSet::bundled()).last_change(), None);
    /// ```
    pub fn from_set(set: Arc<ZoneSet>) -> Self {
        Self { first: set, later: Vec::new(), last_change: None }
    }

    /// A history of sets with the instants from which they were in force, in ascending order; the first instant is
    /// ignored.
    ///
    /// `last_change` is the caller's number of the last change, by which it distinguishes histories. Without any set
    /// the history has the bundled one.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// let from = "2026-06-01T00:00:00Z".parse().unwrap();
    /// assert_eq!(ZoneHistory::new([(from, ZoneSet::bundled())], 7).last_change(), Some(7));
    /// ```
    pub fn new(changes: impl IntoIterator<Item = (DateTime<Utc>, Arc<ZoneSet>)>, last_change: i64) -> Self {
        let mut changes = changes.into_iter();
        let first = changes.next().map_or_else(ZoneSet::bundled, |(_, set)| set);
        Self { first, later: changes.collect(), last_change: Some(last_change) }
    }

    /// The history that this process uses.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// assert_eq!(ZoneHistory::installed().newest_set().version(), ZoneSet::installed().version());
    /// ```
    pub fn installed() -> Arc<Self> {
        let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(Arc::clone);
        installed.unwrap_or_else(|| Arc::new(Self::from_set(ZoneSet::bundled())))
    }

    /// Makes this process use `history` from now on.
    ///
    /// Timezones that were parsed before keep their rules.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// ZoneHistory::install_history(ZoneHistory::from_set(ZoneSet::bundled()));
    /// assert_eq!(ZoneSet::installed().version(), ZoneSet::bundled().version());
    /// ```
    pub fn install_history(history: Self) {
        *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(history));
    }

    /// The caller's number of the last change; `None` for a set without a number.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// assert_eq!(ZoneHistory::new([], 3).last_change(), Some(3));
    /// ```
    pub fn last_change(&self) -> Option<i64> {
        self.last_change
    }

    /// The newest set, with the rules of upcoming times.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// assert_eq!(ZoneHistory::new([], 3).newest_set().version(), ZoneSet::bundled().version());
    /// ```
    pub fn newest_set(&self) -> &Arc<ZoneSet> {
        self.later.last().map_or(&self.first, |(_, set)| set)
    }

    /// All sets, the oldest first.
    ///
    /// ```
    /// use schedule::{ZoneHistory, ZoneSet};
    /// assert_eq!(ZoneHistory::from_set(ZoneSet::bundled()).all_sets().count(), 1);
    /// ```
    pub fn all_sets(&self) -> impl Iterator<Item = &Arc<ZoneSet>> {
        std::iter::once(&self.first).chain(self.later.iter().map(|(_, set)| set))
    }

    /// A timezone with its rules over time; `None` if no set has it.
    ///
    /// ```
    /// use schedule::ZoneHistory;
    /// assert!(ZoneHistory::installed().find("Asia/Kolkata").is_some());
    /// assert_eq!(ZoneHistory::installed().find("Mars/Phobos"), None);
    /// ```
    pub fn find(&self, name: &str) -> Option<TimezoneHistory> {
        let mut found = self.first.find(name).map(TimezoneHistory::of);
        for (from, set) in &self.later {
            match (&mut found, set.find(name)) {
                (Some(history), zone) => history.change(*from, zone),
                (None, zone) => found = zone.map(TimezoneHistory::of),
            }
        }
        found
    }
}

/// The set by which this process computes upcoming times.
impl ZoneSet {
    /// The newest set of the installed [`ZoneHistory`].
    ///
    /// ```
    /// use schedule::ZoneSet;
    /// assert_eq!(ZoneSet::installed().version(), ZoneSet::bundled().version());
    /// ```
    pub fn installed() -> Arc<Self> {
        let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner);
        installed.as_ref().map_or_else(Self::bundled, |history| Arc::clone(history.newest_set()))
    }

    /// Makes this process use `set` from now on, for all times.
    ///
    /// ```
    /// use schedule::ZoneSet;
    /// ZoneSet::install_set(ZoneSet::bundled());
    /// assert_eq!(ZoneSet::installed().version(), ZoneSet::bundled().version());
    /// ```
    pub fn install_set(set: Arc<Self>) {
        ZoneHistory::install_history(ZoneHistory::from_set(set));
    }
}

impl TimezoneHistory {
    fn of(zone: Timezone) -> Self {
        Self { first: zone, later: Vec::new(), unknown_from: None }
    }

    fn change(&mut self, from: DateTime<Utc>, zone: Option<Timezone>) {
        match zone {
            None => self.unknown_from = self.unknown_from.or(Some(from)),
            Some(zone) => {
                self.unknown_from = None;
                if zone != self.last_rules() {
                    self.later.push((from, zone));
                }
            }
        }
    }

    /// The rules of the last set that has the timezone, also if they are unknown by now.
    ///
    /// ```
    /// use schedule::{Timezone, ZoneHistory};
    /// assert_eq!(ZoneHistory::installed().find("UTC").unwrap().last_rules(), Timezone::UTC);
    /// ```
    pub fn last_rules(&self) -> Timezone {
        self.later.last().map_or(self.first, |(_, zone)| *zone)
    }

    /// The rules at an instant; `None` if they are unknown.
    ///
    /// ```
    /// use schedule::{Timezone, ZoneHistory};
    /// let utc = ZoneHistory::installed().find("UTC").unwrap();
    /// assert_eq!(utc.timezone_at("2026-06-01T00:00:00Z".parse().unwrap()), Some(Timezone::UTC));
    /// ```
    pub fn timezone_at(&self, instant: DateTime<Utc>) -> Option<Timezone> {
        if self.unknown_from.is_some_and(|from| instant >= from) {
            return None;
        }
        Some(self.rules(self.changes_before(instant)))
    }

    /// Since when the rules are unknown, because no later set has the timezone.
    ///
    /// ```
    /// use schedule::ZoneHistory;
    /// assert_eq!(ZoneHistory::installed().find("Europe/Paris").unwrap().unknown_from(), None);
    /// ```
    pub fn unknown_from(&self) -> Option<DateTime<Utc>> {
        self.unknown_from
    }

    /// The first time of `cron` strictly after `instant`, each by the rules of its day; `None` if that is unknown.
    ///
    /// ```
    /// use schedule::{Cron, ZoneHistory};
    /// let paris = ZoneHistory::installed().find("Europe/Paris").unwrap();
    /// let next = paris.next_after(&Cron::parse("0 9 * * *")?, "2026-03-28T08:00:00Z".parse().unwrap());
    /// assert_eq!(next, Some("2026-03-29T07:00:00Z".parse().unwrap()));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn next_after(&self, cron: &Cron, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut instant = instant;
        for nth in self.changes_before(instant)..self.later.len() {
            let change = self.later[nth].0;
            let next = cron.next_after(instant, self.rules(nth)).filter(|next| *next < change);
            if next.is_some() {
                return next;
            }
            // The new rules apply to a time at the change itself.
            instant = change - TimeDelta::microseconds(1);
        }
        let next = cron.next_after(instant, self.last_rules())?;
        self.unknown_from.is_none_or(|from| next < from).then_some(next)
    }

    /// How many changes are at or before an instant.
    fn changes_before(&self, instant: DateTime<Utc>) -> usize {
        self.later.partition_point(|(from, _)| *from <= instant)
    }

    /// The rules after this many changes.
    fn rules(&self, changes: usize) -> Timezone {
        changes.checked_sub(1).map_or(self.first, |last| self.later[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    /// The zone `Test/Zone` with the rules of other zones, or without it.
    fn history(sets: &[(&str, Option<&str>)]) -> Option<TimezoneHistory> {
        let bundled = ZoneSet::bundled();
        let sets = sets.iter().zip('a'..).map(|((from, like), letter)| {
            let tzif = |name: &str| bundled.tzif(name).expect("a zone").to_vec();
            let files = like.map(|like| ("Test/Zone".to_owned(), tzif(like)));
            let version = format!("2026{letter}").parse().expect("a version");
            let files = files.into_iter().chain([("Test/Other".to_owned(), tzif("UTC"))]);
            (at(from), Arc::new(ZoneSet::from_files(&version, files).expect("zone data")))
        });
        ZoneHistory::new(sets, 1).find("Test/Zone")
    }

    fn times(history: &TimezoneHistory, cron: &str, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(cron).expect("a cron");
        let times =
            std::iter::successors(history.next_after(&cron, at(after)), |last| history.next_after(&cron, *last));
        times.take(count).map(|time| time.format("%d %R").to_string()).collect()
    }

    const FIRST: &str = "2026-06-01T00:00:00Z";
    const SECOND: &str = "2026-06-03T12:00:00Z";

    #[test]
    fn each_time_has_its_day_s_rules() {
        // Offsets +00:00 and +05:45.
        let history = history(&[(FIRST, Some("Etc/UTC")), (SECOND, Some("Asia/Kathmandu"))]).expect("a zone");
        let nine = times(&history, "0 9 * * *", "2026-06-01T09:00:00Z", 4);
        assert_eq!(nine, ["02 09:00", "03 09:00", "04 03:15", "05 03:15"]);
        // A time before the first set has the rules of the first.
        assert_eq!(times(&history, "0 9 * * *", "2020-01-01T00:00:00Z", 1), ["01 09:00"]);
        // At the change, noon by the old rules is not due any more, but 17:45 by the new rules is.
        assert_eq!(times(&history, "0 12 * * *", "2026-06-02T12:00:00Z", 1), ["04 06:15"]);
        assert_eq!(times(&history, "45 17 * * *", "2026-06-02T17:45:00Z", 1), ["03 12:00"]);
        let rules = |text: &str| history.timezone_at(at(text)).map(|zone| zone.offset_secs(at(text)));
        assert_eq!((rules("2026-06-03T11:59:59Z"), rules(SECOND)), (Some(0), Some(20_700)));
    }

    #[test]
    fn the_same_rules_are_no_change() {
        let history = history(&[(FIRST, Some("Asia/Tokyo")), (SECOND, Some("Asia/Tokyo"))]).expect("a zone");
        assert!(history.later.is_empty());
    }

    /// A timezone has rules until the last set that contains it, and again from the next set that contains it.
    #[test]
    fn dropped_timezones_have_no_later_rules() {
        let dropped = history(&[(FIRST, Some("Etc/UTC")), (SECOND, None)]).expect("a zone");
        assert_eq!(times(&dropped, "0 * * * *", "2026-06-03T09:00:00Z", 9), ["03 10:00", "03 11:00"]);
        assert_eq!((dropped.unknown_from(), dropped.timezone_at(at(SECOND))), (Some(at(SECOND)), None));
        let again = [(FIRST, Some("Etc/UTC")), (SECOND, None), ("2026-06-04T00:00:00Z", Some("Asia/Kathmandu"))];
        let again = history(&again).expect("a zone");
        assert_eq!(times(&again, "0 23 * * *", "2026-06-03T00:00:00Z", 2), ["03 23:00", "04 17:15"]);
        let new = history(&[(FIRST, None), (SECOND, Some("Asia/Kathmandu"))]).expect("a zone");
        assert_eq!(times(&new, "0 9 * * *", FIRST, 1), ["01 03:15"], "by the first set that has it");
        assert_eq!(history(&[(FIRST, None)]), None);
    }
}
