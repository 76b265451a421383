//! `cronbox-app teams limits`: shows the limits of a team, and changes those that are named.

use access::limits::{MOST, TeamLimits, find_team_limits, set_team_limits};
use access::teams::lock_team;
use anyhow::Context as _;
use clap::Args;
use db::PgConnection;
use workflows::audit::Edit;

/// The limits to change.
#[derive(Args)]
pub(crate) struct NamedLimits {
    /// First set all limits to the defaults of the operator.
    #[arg(long)]
    reset: bool,
    /// Runs that all instances together execute at once. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    running_runs: Option<i64>,
    /// Workflows that are not archived. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    workflows: Option<i64>,
    /// Fires a minute of its workflows, and as many manual runs, retries and runs of backfills together. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    fires_per_minute: Option<i64>,
    /// Bytes of inputs and actions of its workflows. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    input_bytes: Option<i64>,
    /// Archived workflows, from which on no workflow is created. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    archived_workflows: Option<i64>,
    /// Bytes of inputs and actions of archived workflows, from which on no workflow is created. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    archived_bytes: Option<i64>,
    /// Requests in progress on one instance. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    requests_in_flight: Option<i64>,
    /// Edits in progress on one instance. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    edits_in_flight: Option<i64>,
    /// Lists and statistics in progress on one instance. 0 = no limit
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=MOST))]
    lists_in_flight: Option<i64>,
}

impl NamedLimits {
    /// The limits that are named; the others are those of `current`, or the defaults after a reset.
    fn over(&self, current: TeamLimits) -> TeamLimits {
        let named = TeamLimits {
            running_runs: self.running_runs,
            workflows: self.workflows,
            fires_per_minute: self.fires_per_minute,
            input_bytes: self.input_bytes,
            archived_workflows: self.archived_workflows,
            archived_bytes: self.archived_bytes,
            requests_in_flight: self.requests_in_flight,
            edits_in_flight: self.edits_in_flight,
            lists_in_flight: self.lists_in_flight,
        };
        named.or(if self.reset { TeamLimits::default() } else { current })
    }
}

/// Sets the limits of a team that differ, and returns all of them.
///
/// # Errors
/// Fails if the team does not exist, or if the database refuses the statement.
pub(crate) async fn change_limits(
    tx: &mut PgConnection,
    team_id: i64,
    named: &NamedLimits,
    edit: &Edit,
) -> anyhow::Result<TeamLimits> {
    // What it does not name must stay as an edit at the same time has set it.
    lock_team(tx, team_id).await?.with_context(|| format!("no team has the id {team_id}"))?;
    let (current, _) = find_team_limits(tx, team_id).await?.unwrap_or_default();
    let limits = named.over(current);
    if limits != current {
        set_team_limits(tx, team_id, limits, edit).await?;
    }
    Ok(limits)
}
