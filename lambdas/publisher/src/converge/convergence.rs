//! Step 4 of 7: one workflow that is being converged.

use std::sync::atomic::AtomicBool;

use chrono::{DateTime, Utc};
use schedule::ScheduleName;

use crate::claim::Claim;
use crate::publisher::Publisher;
use crate::scheduler::lease::Lease;

/// The workflow to converge, and its lease.
pub(super) struct Convergence<'a> {
    pub(super) publisher: &'a Publisher,
    pub(super) claim: &'a Claim,
    pub(super) name: ScheduleName,
    pub(super) now: DateTime<Utc>,
    pub(super) lease: &'a Lease,
    /// A call was repeated, so its first request may still arrive.
    pub(super) is_in_doubt: AtomicBool,
}
