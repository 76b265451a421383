//! The health of an instance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The health of the app.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Health {
    /// Its status.
    pub status: String,
    /// The environment.
    pub env: String,
    /// The version of the program.
    pub version: String,
    /// Version of the IANA database that this instance uses.
    #[schema(example = "2026f")]
    pub zone_data: String,
}

/// The readiness of the app.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Readiness {
    /// The health.
    #[serde(flatten)]
    pub health: Health,
    /// How far this instance's clock is ahead of the database's, which decides. Above 2 a warning is logged.
    pub clock_skew_seconds: f64,
    /// Whether this instance takes jobs: not if its clock differs by more than 30 s, nor with
    /// `CRONBOX_JOBS_ENABLED=false`.
    pub takes_jobs: bool,
    /// Why no run starts until `cronbox-app ledger accept`: `restored`, `cloned`, `marked` or `eventbridge_ahead`;
    /// null = runs start.
    pub held: Option<String>,
}
