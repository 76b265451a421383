//! The limits of a team.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The limits of a team, and what it uses.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TeamLimitsView {
    /// The team.
    pub team_id: i64,
    /// What an admin has set; null = the default of the operator.
    pub set: LimitsView,
    /// What is in force; null or 0 = no limit of the team.
    pub in_force: LimitsView,
    /// What the team uses.
    pub usage: TeamUsageView,
}

/// What a team uses: its running runs, and what its workflows add up to.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TeamUsageView {
    /// Runs that all instances together execute now.
    pub running_runs: i64,
    /// Workflows that are not archived.
    pub workflows: i64,
    /// How many times their crons fire in an hour in which all of them fire: at most 60 for each fire a minute.
    pub fires_per_hour: i64,
    /// Bytes of their inputs and actions.
    pub input_bytes: i64,
    /// Archived workflows, which stay until an admin deletes them.
    pub archived_workflows: i64,
    /// Bytes of the inputs and actions of archived workflows.
    pub archived_bytes: i64,
}

/// The hosts that the http actions of a team may call; none = every public host.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AllowedHostsView {
    /// The team.
    pub team_id: i64,
    /// Names, or `*.` and a name for all below it.
    pub allowed_hosts: Vec<String>,
}

/// The limits of a team. In each, null is the default of the operator, and 0 is no limit.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct LimitsView {
    /// Runs that all instances together execute at once.
    pub running_runs: Option<i64>,
    /// Workflows that are not archived.
    pub workflows: Option<i64>,
    /// Fires a minute, on average over an hour in which all workflows fire; and as many manual runs, retries and runs of
    /// backfills together.
    pub fires_per_minute: Option<i64>,
    /// Bytes of inputs and actions of the workflows that are not archived.
    pub input_bytes: Option<i64>,
    /// Archived workflows, from which on no workflow is created.
    pub archived_workflows: Option<i64>,
    /// Bytes of inputs and actions of archived workflows, from which on no workflow is created.
    pub archived_bytes: Option<i64>,
    /// Requests in progress on one instance.
    pub requests_in_flight: Option<i64>,
    /// Edits in progress on one instance.
    pub edits_in_flight: Option<i64>,
    /// Lists and statistics in progress on one instance.
    pub lists_in_flight: Option<i64>,
}
