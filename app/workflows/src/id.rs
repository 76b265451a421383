//! Step 7 of 7: ids that sort by their creation time.

use std::sync::atomic::{AtomicU32, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use uuid::{Timestamp, Uuid};

/// Counts the ids of this process, so that ids of one moment sort in the order of their creation.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// Returns a uuid v7 with the time of the business clock.
#[must_use]
pub fn make_id(now: DateTime<Utc>) -> Uuid {
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    let given = GIVEN.fetch_add(1, Ordering::Relaxed);
    // 32 bits of counter leave 42 random bits, which separate two processes with equal counters.
    Uuid::new_v7(Timestamp::from_unix_time(seconds, now.timestamp_subsec_nanos(), given.into(), 32))
}

/// Returns the smallest id of the millisecond of this time: ids that were made before it are smaller, later ones are not.
#[must_use]
pub fn first_id_of(time: DateTime<Utc>) -> Uuid {
    let millis = u64::try_from(time.timestamp_millis()).unwrap_or_default();
    Uuid::from_u128(u128::from(millis) << 80)
}

/// Returns the millisecond in which an id was made.
#[must_use]
pub fn time_of_id(id: Uuid) -> DateTime<Utc> {
    let millis = i64::try_from(id.as_u128() >> 80).unwrap_or_default();
    DateTime::from_timestamp_millis(millis).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// How much earlier than its time a run is made at most: clocks of instances differ, and the database's may be set.
const EARLIEST: TimeDelta = TimeDelta::hours(1);

/// Returns an id that is smaller than that of each run of this time or a later one. As a bound it leaves out the
/// partitions of earlier days.
#[must_use]
pub fn first_run_id_of(time: DateTime<Utc>) -> Uuid {
    first_id_of(time - EARLIEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_ids_separate_milliseconds() {
        let time = DateTime::from_timestamp_millis(1_772_442_000_123).unwrap();
        let next = time + chrono::TimeDelta::milliseconds(1);
        assert!((first_id_of(time)..first_id_of(next)).contains(&make_id(time)));
        assert_eq!(time_of_id(make_id(time)), time);
        assert!(time_of_id(Uuid::max()) > next, "also of a bound that is no uuid v7");
    }

    #[test]
    fn ids_of_one_moment_sort_by_creation() {
        let now = DateTime::UNIX_EPOCH;
        let ids: Vec<_> = (0..1000).map(|_| make_id(now)).collect();
        assert!(ids.is_sorted());
    }
}
