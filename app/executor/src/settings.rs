//! Step 7 of 7: the settings of an executor.

use std::time::Duration;

use ledger::requested_fires::DefaultRate;
use ledger::runs::Capacity;

/// The settings of an executor.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many runs it executes at once, of all teams and of one, and the memory for them.
    pub capacity: Capacity,
    /// How many runs of one team all instances execute at once, unless an admin has set its limit; 0 = no limit.
    pub running_of_a_team: i64,
    /// How many runs a minute the callers of a team start, backfills among them, unless an admin has set its limit.
    pub requested_fires: DefaultRate,
    /// How often it checks for runs without a notification.
    pub poll: Duration,
    /// How long running actions may take to end at shutdown.
    pub drain: Duration,
    /// How often it renews its leases.
    pub heartbeat: Duration,
    /// How long a lease lasts, in seconds.
    pub lost_after_secs: u64,
    /// A run that has started and is handed over may continue for these seconds.
    pub max_age_secs: u32,
}

impl Settings {
    /// How long after the last renewal of its lease an attempt goes on, and may send its request: another instance may soon claim its run.
    pub(crate) fn longest_without_renewal(&self) -> Duration {
        Duration::from_secs(self.lost_after_secs) * 2 / 3
    }
}
