//! Teams.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A team in a list.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ListedTeamView {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_on: DateTime<Utc>,
}
