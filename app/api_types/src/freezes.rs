//! Freezes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A freeze.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct FreezeView {
    /// Its id.
    pub id: Uuid,
    /// Null: all teams.
    pub team_id: Option<i64>,
    /// Why, for people.
    pub reason: String,
    /// Its state.
    pub state: FreezeState,
    /// The first time of the span.
    pub from: DateTime<Utc>,
    /// Exclusive; null: until it is lifted. Equal to `from`: it was lifted before it began.
    pub until: Option<DateTime<Utc>>,
    /// Who requested it.
    pub actor: String,
    /// The name of the key, as it was then.
    pub actor_name: Option<String>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// Who ended it early.
    pub lifted_by: Option<String>,
    /// When it was ended early.
    pub lifted_on: Option<DateTime<Utc>>,
}

/// Whether a freeze is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FreezeState {
    /// It has not begun.
    Planned,
    /// No schedule of the team runs.
    InForce,
    /// It has ended, or was lifted.
    Ended,
}
