//! The result of one tick, which the Lambda returns.

use notifications::delivery::Settlement;
use serde::Serialize;

/// The result of one tick, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// AWS accepted them.
    pub sent: u64,
    /// AWS refused them, and another attempt follows.
    pub retried: u64,
    /// AWS refused their last attempt: they are dead letters.
    pub failed: u64,
}

impl Report {
    /// Counts what became of an attempt.
    pub(crate) fn count(&mut self, settlement: Settlement) {
        match settlement {
            Settlement::Sent => self.sent += 1,
            Settlement::Again => self.retried += 1,
            Settlement::Failed => self.failed += 1,
        }
    }
}
