//! The meaning of a cron, and its next times.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The meaning of a cron.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ExplanationView {
    /// The canonical text, which is stored.
    pub normalized: String,
    /// The one expression that is sent to EventBridge.
    pub eventbridge: String,
    /// The timezone that is sent to EventBridge.
    pub eventbridge_timezone: String,
    /// `exact`, or `superset`: then `:invoke` refuses the surplus fires.
    #[schema(example = "exact")]
    pub coverage: String,
    /// The cron in English.
    pub description: String,
    /// Version of the IANA database by which the times are computed.
    #[schema(example = "2026f")]
    pub zone_data: String,
    /// The next times.
    pub next: Vec<TimeView>,
}

/// One upcoming time.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TimeView {
    /// The instant.
    pub utc: DateTime<Utc>,
    /// The same instant in local time, RFC 3339.
    pub local: String,
    /// UTC offset at this time, for example `+02:00`.
    pub offset: String,
    /// `gap`: a time before this one was skipped; `fold`: this local time comes twice; `paused`: it will not run.
    /// Freezes are not considered.
    pub note: Option<String>,
}

/// The upcoming times of a schedule.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NextView {
    /// Each of them.
    pub items: Vec<TimeView>,
    /// Send it as `cursor` for the next page; null: this is the last.
    pub next_cursor: Option<String>,
    /// The timezone in which the times were computed.
    pub timezone: String,
    /// Why the times may be wrong.
    pub warning: Option<String>,
}

/// The timezones of the zone data in force.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TimezonesView {
    /// Version of the IANA database.
    #[schema(example = "2026f")]
    pub zone_data: String,
    /// The names and aliases that a workflow may have, in alphabetical order.
    pub timezones: Vec<String>,
}
