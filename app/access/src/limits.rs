//! Step 1 of 7: what a team may use of what all teams share, and what it uses.
//!
//! An operator sets the defaults, an admin the limits of one team. The workflows of a team are counted by the database,
//! in the transaction of each edit; its requests are counted by each instance (`in_flight.rs`).

use db::PgConnection;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use workflows::audit::{self, Edit, Entry};
use workflows::definition::spec::{Spec, Usage};

/// The highest value of a limit.
pub const MOST: i64 = 1_000_000_000_000;

/// The limits of a team. In each, null is the default of the operator, and 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeamLimits {
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

/// What the workflows of a team add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TeamUsage {
    /// The number of those that are not archived.
    pub workflows: i64,
    /// How many times their crons fire in an hour in which all of them fire.
    pub fires_per_hour: i64,
    /// Bytes of their inputs and actions.
    pub input_bytes: i64,
    /// The number of archived ones.
    pub archived_workflows: i64,
    /// Bytes of the inputs and actions of archived ones.
    pub archived_bytes: i64,
}

/// What an edit adds to the usage of its team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    workflows: bool,
    fires: bool,
    input_bytes: bool,
}

/// A limit that an edit exceeds, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The number of workflows.
    Workflows(i64),
    /// The fires a minute.
    FiresPerMinute(i64),
    /// The bytes of inputs and actions.
    InputBytes(i64),
    /// The number of archived workflows.
    ArchivedWorkflows(i64),
    /// The bytes of inputs and actions of archived workflows.
    ArchivedBytes(i64),
}

impl Growth {
    /// What a new workflow adds.
    #[must_use]
    pub fn of_new(spec: &Spec) -> Self {
        Self { workflows: true, ..Self::of_change(Usage::default(), spec.count_usage()) }
    }

    /// What an edit of a workflow adds. An edit that adds nothing is never refused.
    #[must_use]
    pub fn of_edit(before: &Spec, next: &Spec) -> Self {
        Self::of_change(before.count_usage(), next.count_usage())
    }

    /// Whether the usage of the team must be compared with its limits.
    #[must_use]
    pub fn adds_anything(self) -> bool {
        self != Self::default()
    }

    fn of_change(before: Usage, next: Usage) -> Self {
        Self {
            workflows: false,
            fires: next.fires_per_hour > before.fires_per_hour,
            input_bytes: next.input_bytes > before.input_bytes,
        }
    }
}

impl TeamLimits {
    /// Returns these limits, and the defaults where an admin has set none.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            running_runs: self.running_runs.or(defaults.running_runs),
            workflows: self.workflows.or(defaults.workflows),
            fires_per_minute: self.fires_per_minute.or(defaults.fires_per_minute),
            input_bytes: self.input_bytes.or(defaults.input_bytes),
            archived_workflows: self.archived_workflows.or(defaults.archived_workflows),
            archived_bytes: self.archived_bytes.or(defaults.archived_bytes),
            requests_in_flight: self.requests_in_flight.or(defaults.requests_in_flight),
            edits_in_flight: self.edits_in_flight.or(defaults.edits_in_flight),
            lists_in_flight: self.lists_in_flight.or(defaults.lists_in_flight),
        }
    }

    /// Returns the name of a limit that is below 0 or above [`MOST`].
    #[must_use]
    pub fn find_invalid(&self) -> Option<&'static str> {
        let named = [
            ("running_runs", self.running_runs),
            ("workflows", self.workflows),
            ("fires_per_minute", self.fires_per_minute),
            ("input_bytes", self.input_bytes),
            ("archived_workflows", self.archived_workflows),
            ("archived_bytes", self.archived_bytes),
            ("requests_in_flight", self.requests_in_flight),
            ("edits_in_flight", self.edits_in_flight),
            ("lists_in_flight", self.lists_in_flight),
        ];
        named
            .into_iter()
            .find(|(_, limit)| limit.is_some_and(|limit| !(0..=MOST).contains(&limit)))
            .map(|(name, _)| name)
    }

    /// Returns the limit that a usage after an edit exceeds, of those to which the edit added. An archiving is never refused, so the
    /// limits of what is archived refuse the next workflow.
    #[must_use]
    pub fn exceeded_by(&self, usage: TeamUsage, growth: Growth) -> Option<Exceeded> {
        let over = |limit: Option<i64>, used: i64, grew: bool, factor: i64| {
            let limit = limit.filter(|limit| grew && *limit > 0)?;
            (used > limit.saturating_mul(factor)).then_some(limit)
        };
        over(self.workflows, usage.workflows, growth.workflows, 1)
            .map(Exceeded::Workflows)
            .or_else(|| {
                over(self.fires_per_minute, usage.fires_per_hour, growth.fires, 60).map(Exceeded::FiresPerMinute)
            })
            .or_else(|| over(self.input_bytes, usage.input_bytes, growth.input_bytes, 1).map(Exceeded::InputBytes))
            .or_else(|| self.reached_by_archived(usage).filter(|_| growth.workflows))
    }

    /// Returns the limit of archived workflows that a team has reached.
    fn reached_by_archived(&self, usage: TeamUsage) -> Option<Exceeded> {
        let reached = |limit: Option<i64>, used: i64| limit.filter(|limit| *limit > 0 && used >= *limit);
        reached(self.archived_workflows, usage.archived_workflows)
            .map(Exceeded::ArchivedWorkflows)
            .or_else(|| reached(self.archived_bytes, usage.archived_bytes).map(Exceeded::ArchivedBytes))
    }
}

/// Returns the limits that an admin has set for a team, and its usage; `None` if the team does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_team_limits(db: &mut PgConnection, team_id: i64) -> sqlx::Result<Option<(TeamLimits, TeamUsage)>> {
    let found = sqlx::query!(
        r#"
        -- the limits and the usage of a team, by three primary keys
        SELECT l.running_runs AS "running_runs?", l.workflows AS "workflows?",
               l.fires_per_minute AS "fires_per_minute?", l.input_bytes AS "input_bytes?",
               l.archived_workflows AS "archived_workflows?", l.archived_bytes AS "archived_bytes?",
               l.requests_in_flight AS "requests_in_flight?", l.edits_in_flight AS "edits_in_flight?",
               l.lists_in_flight AS "lists_in_flight?", COALESCE(u.workflows, 0) AS "used_workflows!",
               COALESCE(u.fires_per_hour, 0) AS "used_fires_per_hour!", COALESCE(u.input_bytes, 0) AS "used_input_bytes!",
               COALESCE(u.archived_workflows, 0) AS "used_archived_workflows!",
               COALESCE(u.archived_bytes, 0) AS "used_archived_bytes!"
          FROM teams t
          LEFT JOIN team_limits l ON l.team_id = t.id
          LEFT JOIN team_usage u ON u.team_id = t.id
         WHERE t.id = $1
        "#,
        team_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(found.map(|row| {
        let limits = TeamLimits {
            running_runs: row.running_runs,
            workflows: row.workflows,
            fires_per_minute: row.fires_per_minute,
            input_bytes: row.input_bytes,
            archived_workflows: row.archived_workflows,
            archived_bytes: row.archived_bytes,
            requests_in_flight: row.requests_in_flight,
            edits_in_flight: row.edits_in_flight,
            lists_in_flight: row.lists_in_flight,
        };
        let usage = TeamUsage {
            workflows: row.used_workflows,
            fires_per_hour: row.used_fires_per_hour,
            input_bytes: row.used_input_bytes,
            archived_workflows: row.used_archived_workflows,
            archived_bytes: row.used_archived_bytes,
        };
        (limits, usage)
    }))
}

/// Replaces the limits of a team.
///
/// # Errors
/// Fails if the database refuses the statement; an unknown team violates `team_limits_team_id_fkey`.
pub async fn set_team_limits(tx: &mut PgConnection, team_id: i64, limits: TeamLimits, edit: &Edit) -> sqlx::Result<()> {
    let before = find_team_limits(tx, team_id).await?.map(|(limits, _)| json!(limits));
    sqlx::query!(
        r#"
        -- set the limits of a team
        INSERT INTO team_limits (team_id, running_runs, workflows, fires_per_minute, input_bytes, requests_in_flight,
                                 edits_in_flight, lists_in_flight, archived_workflows, archived_bytes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (team_id) DO UPDATE
           SET running_runs = excluded.running_runs, workflows = excluded.workflows,
               fires_per_minute = excluded.fires_per_minute, input_bytes = excluded.input_bytes,
               requests_in_flight = excluded.requests_in_flight, edits_in_flight = excluded.edits_in_flight,
               lists_in_flight = excluded.lists_in_flight,
               archived_workflows = excluded.archived_workflows, archived_bytes = excluded.archived_bytes
        "#,
        team_id,
        limits.running_runs,
        limits.workflows,
        limits.fires_per_minute,
        limits.input_bytes,
        limits.requests_in_flight,
        limits.edits_in_flight,
        limits.lists_in_flight,
        limits.archived_workflows,
        limits.archived_bytes,
    )
    .execute(&mut *tx)
    .await?;
    let after = Some(json!(limits));
    let subject = format!("team:{team_id}");
    audit::record_entry(tx, edit, Entry { verb: "limits", subject, team_id: Some(team_id), before, after }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grown_usage_is_refused() {
        let limits =
            TeamLimits { workflows: Some(2), fires_per_minute: Some(1), input_bytes: Some(0), ..TeamLimits::default() };
        let usage = TeamUsage { workflows: 3, fires_per_hour: 61, input_bytes: 1 << 40, ..TeamUsage::default() };
        let grown = |workflows, fires, input_bytes| Growth { workflows, fires, input_bytes };
        assert_eq!(limits.exceeded_by(usage, grown(true, true, true)), Some(Exceeded::Workflows(2)));
        assert_eq!(limits.exceeded_by(usage, grown(false, true, true)), Some(Exceeded::FiresPerMinute(1)));
        assert_eq!(limits.exceeded_by(usage, grown(false, false, true)), None, "0 is no limit");
        let full = TeamUsage { workflows: 2, fires_per_hour: 60, ..usage };
        assert_eq!(limits.exceeded_by(full, grown(true, true, true)), None);
    }

    #[test]
    fn archived_workflows_refuse_only_creates() {
        let limits = TeamLimits { archived_workflows: Some(2), archived_bytes: Some(10), ..TeamLimits::default() };
        let (create, edit) =
            (Growth { workflows: true, ..Growth::default() }, Growth { fires: true, ..Growth::default() });
        let usage = |archived_workflows, archived_bytes| TeamUsage {
            archived_workflows,
            archived_bytes,
            ..TeamUsage::default()
        };
        assert_eq!(limits.exceeded_by(usage(1, 9), create), None);
        assert_eq!(limits.exceeded_by(usage(2, 0), create), Some(Exceeded::ArchivedWorkflows(2)));
        assert_eq!(limits.exceeded_by(usage(1, 10), create), Some(Exceeded::ArchivedBytes(10)));
        assert_eq!(limits.exceeded_by(usage(3, 20), edit), None);
    }
}
