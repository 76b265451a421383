//! Step 7 of 7: what an executor is given by its instance: the database, the time, its settings and its handles.

use std::time::Duration;

use db::PgPool;
use schedule::Clock;
use uuid::Uuid;

use super::Wake;
use crate::claim::Lease;
use crate::nudge::Nudge;

/// How an instance executes runs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Runs at once.
    pub slots: usize,
    /// Runs of one team at once.
    pub slots_of_a_team: usize,
    /// How often it looks for runs without a notification.
    pub poll: Duration,
    /// How long running actions may take to end at shutdown.
    pub drain: Duration,
    /// How often it renews its leases.
    pub heartbeat: Duration,
    /// How long a lease lasts, in seconds.
    pub lost_after_secs: u64,
    /// A run that is handed over may go on for so many seconds.
    pub max_age_secs: u32,
}

/// What an executor works with.
#[derive(Clone)]
pub struct Parts {
    /// Whose runs it claims.
    pub instance: Uuid,
    /// The database.
    pub pool: PgPool,
    /// Business time.
    pub clock: Clock,
    /// How it executes.
    pub settings: Settings,
    /// Notifies it of runs.
    pub wake: Wake,
    /// Notifies the publisher of workflows that it pauses.
    pub nudge: Nudge,
}

impl Parts {
    /// The leases of the runs that it executes.
    pub(super) fn lease(&self) -> Lease {
        let secs = u32::try_from(self.settings.lost_after_secs).unwrap_or(u32::MAX);
        Lease { instance: self.instance, secs: secs.into() }
    }
}
