//! Step 7 of 7: identities that sort by the time at which they were given.

use chrono::{DateTime, Utc};
use uuid::{NoContext, Timestamp, Uuid};

/// A uuid v7 of the business clock's time.
#[must_use]
pub(crate) fn at(now: DateTime<Utc>) -> Uuid {
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, now.timestamp_subsec_nanos()))
}
