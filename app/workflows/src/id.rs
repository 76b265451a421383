//! Step 7 of 7: ids that sort by their creation time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

/// Bits of an id that order the ids of one moment. They are followed by random bits, so that ids of two processes differ.
const ORDER_BITS: u32 = 50;
const RANDOM_BITS: u32 = 74 - ORDER_BITS;
/// A step of the order. No id is made in less time, so that the order tells the time and not a number of ids. In 50 bits
/// there are 208 days of them.
const STEP_NANOSECONDS: u128 = 16;

/// When this process made its first id, and the order of that id.
static FIRST: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), rand::random()));
/// The order of the newest id.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Returns a uuid v7 with the time of the business clock. Ids of one moment sort in the order of their creation.
#[must_use]
pub fn make_id(now: DateTime<Utc>) -> Uuid {
    let millisecond = u64::try_from(now.timestamp_millis()).unwrap_or_default();
    let order = u128::from(next_order()) & ((1 << ORDER_BITS) - 1);
    let tail = order << RANDOM_BITS | u128::from(rand::random::<u32>()) >> (32 - RANDOM_BITS);
    let (above_variant, below) = (tail >> 62, tail & ((1 << 62) - 1));
    Uuid::from_u128(u128::from(millisecond) << 80 | 7 << 76 | above_variant << 64 | 0b10 << 62 | below)
}

/// Returns the time that has passed in this process, from a random start. A counter would order ids, too, but two ids of a
/// team would show how many all teams have made in between.
fn next_order() -> u64 {
    let (began, first) = *FIRST;
    let passed = u64::try_from(began.elapsed().as_nanos() / STEP_NANOSECONDS).unwrap_or_default();
    // Half of the range is left, so that the order does not begin again soon.
    let order = (first & ((1 << (ORDER_BITS - 1)) - 1)) + passed;
    let later = |newest: u64| Some(order.max(newest + 1));
    match NEWEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later) {
        Ok(newest) | Err(newest) => order.max(newest + 1),
    }
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
        let other = now + TimeDelta::hours(1);
        let ids: Vec<_> = (0..1000).map(|_| (make_id(now), make_id(other)).0).collect();
        assert!(ids.is_sorted_by(|earlier, later| earlier < later));
        assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
    }

    /// A counter would show a team how many ids all teams have made between two of its own.
    #[test]
    fn the_order_counts_no_ids() {
        let order = |id: Uuid| (id.as_u128() >> 64 & 0xfff) << 62 | id.as_u128() & ((1 << 62) - 1);
        let (first, began) = (make_id(DateTime::UNIX_EPOCH), Instant::now());
        while began.elapsed().as_micros() < 100 {
            std::hint::spin_loop();
        }
        let steps = (order(make_id(DateTime::UNIX_EPOCH)) - order(first)) >> RANDOM_BITS;
        assert!(steps > 5_000, "{steps} steps, and no id was made in between");
    }
}
