//! Signing secrets and the secrets of a team.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The new signing secret of a team.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RotationView {
    /// The team.
    pub team_id: i64,
    /// Standard Webhooks secret of the team's http actions; shown only once, and null in the answer to a repeat.
    pub signing_secret: Option<String>,
    /// Whether secrets that are derived from it sign, one for each receiver: read them by `:receiver-secret`.
    pub by_receiver: bool,
    /// Until when the previous secret signs, too; null = it does not.
    pub previous_until: Option<DateTime<Utc>>,
}

/// The secret of a receiver.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ReceiverSecretView {
    /// The origin of the receiver, for example `https://example.com`.
    pub origin: String,
    /// Standard Webhooks secret that signs requests to this origin.
    pub signing_secret: String,
    /// The one that signs, too, until the overlap of the last rotation ends.
    pub previous_signing_secret: Option<String>,
}

/// A secret of a team, without its value.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SecretView {
    /// Actions refer to it as `${secret:name}`.
    pub name: String,
    /// Raised by each new value.
    pub version: i32,
    /// The only origins of URLs that it is sent to; null = every one.
    pub allowed_origins: Option<Vec<String>>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When its value or its origins last changed.
    pub updated_on: DateTime<Utc>,
}

/// The secrets of a team.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SecretsView {
    /// Each of them.
    pub items: Vec<SecretView>,
}
