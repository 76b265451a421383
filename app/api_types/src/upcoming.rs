//! The due times that come.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The due times that come.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct UpcomingView {
    /// The start of the minute in which the span begins.
    pub from: DateTime<Utc>,
    /// The end of the span, exclusive.
    pub to: DateTime<Utc>,
    /// The length of a bucket, in seconds.
    pub bucket_secs: i64,
    /// Only buckets with a due time, the earliest first.
    pub buckets: Vec<UpcomingBucketView>,
}

/// The due times of one bucket.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct UpcomingBucketView {
    /// The first time of the span.
    pub from: DateTime<Utc>,
    /// Due times of active schedules, by today's timing: what an edit, a pause or a freeze changes is not known.
    pub due: i64,
}
