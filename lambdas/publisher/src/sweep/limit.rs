//! Step 3 of 7: how many deletions or changes a sweep may make without force.

/// This many are always allowed.
const FEW: i64 = 10;
/// Above that, one in this many of the environment's schedules.
const ONE_IN: i64 = 20;
/// Never more than this many.
const MOST: i64 = 100;

/// The maximum that a sweep deletes, disables or changes without force, if the database has `ours` schedules.
pub(crate) fn most_of(ours: i64) -> i64 {
    FEW.max(ours / ONE_IN).min(MOST)
}

#[cfg(test)]
mod tests {
    /// At least 10, then one in 20 schedules, at most 100.
    #[test]
    fn the_limit_grows_with_the_schedules() {
        let limits = [0, 9, 200, 400, 2_000, 1_000_000].map(super::most_of);
        assert_eq!(limits, [10, 10, 10, 20, 100, 100]);
    }
}
