//! Steps 1 and 7 of 7: what starts a run. An edit names triggers too, because archiving a workflow ends its runs.

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A fire of its schedule.
    Schedule,
    /// A manual request.
    Manual,
    /// The catch-up policy.
    CatchUp,
    /// A backfill.
    Backfill,
    /// A manual retry.
    Retry,
}

impl Trigger {
    /// All triggers.
    pub const ALL: [Self; 5] = [Self::Schedule, Self::Manual, Self::CatchUp, Self::Backfill, Self::Retry];

    /// The value in the column.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::Schedule => "schedule",
            Trigger::Manual => "manual",
            Trigger::CatchUp => "catch_up",
            Trigger::Backfill => "backfill",
            Trigger::Retry => "retry",
        }
    }
}
