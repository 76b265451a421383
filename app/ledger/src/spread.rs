//! Step 7 of 7: delays runs, so that the workflows of one minute do not all start at once.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Cron, Timezone, WorkflowId};

/// Returns when the run of a scheduled time may start: later by a fixed part of `spread_secs`, which the workflow's id
/// determines, and always before the next time.
#[must_use]
pub fn run_after(
    workflow: WorkflowId,
    spread_secs: i32,
    cron: Option<(Cron, Timezone)>,
    time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> DateTime<Utc> {
    if spread_secs == 0 {
        return now;
    }
    let spread = i64::from(spread_secs);
    let next = cron.and_then(|(cron, timezone)| cron.next_after(time, timezone));
    let bound = next.map_or(spread, |next| spread.min((next - time).num_seconds()));
    now.max(time + TimeDelta::seconds(share(workflow.0, bound)))
}

/// Returns the same part for the same id, and distant ones for neighbouring ids (Fibonacci hashing).
///
/// The upper bits choose the part by multiplication; a remainder would put neighbours next to each other again.
fn share(id: i64, bound: i64) -> i64 {
    let hash = id.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    (i64::try_from(hash).unwrap_or_default() * bound) >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_neighbours_are_spread_evenly() {
        for bound in [10, 60, 600, 3600] {
            let mut tenths = [0; 10];
            for id in 1..=1000 {
                tenths[usize::try_from(share(id, bound) * 10 / bound).unwrap()] += 1;
            }
            assert!(tenths.iter().all(|&in_tenth| (80..=120).contains(&in_tenth)), "{bound}: {tenths:?}");
        }
    }
}
