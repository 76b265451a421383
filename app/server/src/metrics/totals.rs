//! Step 7 of 7: counters of what all instances together have done, made from what the database counts by minute.
//!
//! The database keeps the counts of a week only, and the count of a minute may still change: a run may end with a time that
//! has passed, and a time that was missed may run later. So a counter is the sum of the minutes that changed no more, and
//! of the minutes of the last hour. It never decreases, because Prometheus would take that for a restart.

use std::collections::BTreeMap;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use ledger::stats::MinuteCount;

/// How long the count of a minute may change.
const OPEN: TimeDelta = TimeDelta::hours(1);

/// Counters by name, which begin with 0 at the first reading of this process.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// The first minute that may still change; `None` before the first reading.
    open_from: Option<DateTime<Utc>>,
    counters: BTreeMap<&'static str, Total>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// What was counted before the first reading.
    before: i64,
    /// What the minutes have counted that change no more.
    closed: i64,
    shown: u64,
}

impl Totals {
    /// From which minute on the next reading needs the counts.
    pub(super) fn needed_from(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.open_from.unwrap_or_else(|| first_open_minute(now))
    }

    /// Adds a reading: all counts from [`Self::needed_from`] on.
    pub(super) fn add_reading<T>(
        &mut self,
        counts: &[MinuteCount<T>],
        name: impl Fn(&T) -> &'static str,
        now: DateTime<Utc>,
    ) {
        let is_first = self.open_from.is_none();
        let open_from = first_open_minute(now).max(self.needed_from(now));
        let mut open: BTreeMap<&'static str, i64> = BTreeMap::new();
        for count in counts {
            let name = name(&count.what);
            if count.minute < open_from {
                self.counters.entry(name).or_default().closed += count.count;
            } else {
                self.counters.entry(name).or_default();
                *open.entry(name).or_default() += count.count;
            }
        }
        for (name, total) in &mut self.counters {
            let all = total.closed + open.get(name).copied().unwrap_or_default();
            if is_first {
                total.before = all;
            }
            total.shown = total.shown.max(u64::try_from(all - total.before).unwrap_or_default());
        }
        self.open_from = Some(open_from);
    }

    /// The counter with this name.
    pub(super) fn get(&self, name: &str) -> u64 {
        self.counters.get(name).map_or(0, |total| total.shown)
    }
}

fn first_open_minute(now: DateTime<Utc>) -> DateTime<Utc> {
    let from = (now - OPEN).trunc_subsecs(0);
    from - TimeDelta::seconds(from.timestamp().rem_euclid(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> DateTime<Utc> {
        format!("2026-03-02T{time}Z").parse().unwrap()
    }

    /// What a database with these counts shows at this time.
    fn read(totals: &mut Totals, database: &[(&str, i64)], now: &str) -> u64 {
        let from = totals.needed_from(at(now));
        let counts = database.iter().map(|(minute, count)| MinuteCount { minute: at(minute), what: (), count: *count });
        let counts: Vec<_> = counts.filter(|count| count.minute >= from).collect();
        totals.add_reading(&counts, |()| "failed", at(now));
        totals.get("failed")
    }

    #[test]
    fn counters_begin_with_zero_and_count_once() {
        let mut totals = Totals::default();
        assert_eq!(read(&mut totals, &[("07:00:00", 50), ("09:00:00", 3)], "09:00:20"), 0);
        assert_eq!(read(&mut totals, &[("07:00:00", 50), ("09:00:00", 5)], "09:00:40"), 2);
        assert_eq!(read(&mut totals, &[("09:00:00", 5), ("09:30:00", 4)], "09:59:00"), 6);
        // The minute is closed, and the database has removed an older one.
        assert_eq!(read(&mut totals, &[("09:00:00", 5), ("09:30:00", 4)], "10:10:00"), 6);
        assert_eq!(read(&mut totals, &[("09:30:00", 4), ("10:10:00", 1)], "10:10:15"), 7);
    }

    /// A process that no one scrapes for hours reads all that it has not read.
    #[test]
    fn long_pauses_lose_no_count() {
        let mut totals = Totals::default();
        read(&mut totals, &[], "09:00:00");
        assert_eq!(read(&mut totals, &[("09:05:00", 2), ("13:00:00", 3)], "15:00:00"), 5);
        assert_eq!(read(&mut totals, &[("13:00:00", 3), ("14:59:00", 1)], "15:00:15"), 6);
    }

    /// A missed time is backfilled, so that it is no longer missed.
    #[test]
    fn counters_never_decrease() {
        let mut totals = Totals::default();
        read(&mut totals, &[], "09:00:00");
        assert_eq!(read(&mut totals, &[("09:00:00", 3)], "09:01:00"), 3);
        assert_eq!(read(&mut totals, &[("09:00:00", 1)], "09:02:00"), 3);
        assert_eq!(read(&mut totals, &[("09:00:00", 1), ("09:03:00", 4)], "09:03:00"), 5);
    }
}
