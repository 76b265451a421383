//! Step 7 of 7: the inputs of an executor: the database, the time, its settings and its handles.

use std::time::Duration;

use db::PgPool;
use schedule::Clock;
use uuid::Uuid;
use workflows::notify::Notifier;

use super::Wake;
use crate::claim::Lease;

/// The settings of an executor.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many runs it executes at once.
    pub slots: usize,
    /// How many runs of one team it executes at once.
    pub slots_of_a_team: usize,
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

/// The inputs of an executor.
#[derive(Clone)]
pub struct Parts {
    /// The instance that executes the runs.
    pub instance: Uuid,
    /// The database.
    pub pool: PgPool,
    /// Business time.
    pub clock: Clock,
    /// Its settings.
    pub settings: Settings,
    /// Notifies it of accepted runs.
    pub wake: Wake,
    /// Notifies the publisher of the workflows that it pauses.
    pub notifier: Notifier,
}

impl Parts {
    /// The leases of the runs that this instance executes.
    pub(super) fn lease(&self) -> Lease {
        let secs = u32::try_from(self.settings.lost_after_secs).unwrap_or(u32::MAX);
        Lease { instance: self.instance, secs: secs.into() }
    }
}
