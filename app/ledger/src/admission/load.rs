//! Step 7 of 7: how many runs of a workflow have not ended, and whether a slot is free for another one.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use workflows::definition::policies::{Overlap, Policies};
use workflows::{State, Workflow};

use crate::freezes::read_freezes;
use crate::runs::{RunState, Trigger};

/// Whether the automatic runs of a workflow may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Automatic {
    /// Each as soon as it has a slot.
    MayStart,
    /// None, because the workflow is paused. Those that are queued count for no slot.
    Paused,
    /// None, because its team is frozen; nor do backfills start that wait for a slot. None of both counts for a slot.
    Frozen,
}

/// Whether the automatic runs of a workflow, which the caller has locked, may start now.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn read_automatic(
    tx: &mut PgConnection,
    workflow: &Workflow,
    now: DateTime<Utc>,
) -> sqlx::Result<Automatic> {
    if workflow.state == State::Paused {
        return Ok(Automatic::Paused);
    }
    let freezes = read_freezes(tx, now, now).await?;
    Ok(match freezes.reason_over(workflow.team_id, now, now) {
        Some(_) => Automatic::Frozen,
        None => Automatic::MayStart,
    })
}

/// How many runs of a workflow have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Live runs that are accepted or running.
    pub(crate) live: i64,
    /// Live runs that have started.
    pub(crate) started: i64,
    /// Deferred runs that are accepted or running.
    pub(crate) made_up: i64,
    /// Queued runs with the trigger `schedule`.
    pub(crate) waiting_schedule: i64,
    /// Queued runs with the trigger `schedule` that have never started.
    pub(crate) waiting_unstarted: i64,
    /// Queued manual runs.
    pub(crate) waiting_manual: i64,
    /// Queued deferred runs.
    pub(crate) waiting_made_up: i64,
}

impl Load {
    /// Queued live runs.
    pub(crate) fn waiting_live(self) -> i64 {
        self.waiting_schedule + self.waiting_manual
    }

    /// All runs that wait.
    pub(crate) fn waiting_runs(self) -> i64 {
        self.waiting_live() + self.waiting_made_up
    }

    /// Runs that are accepted or running.
    pub(crate) fn busy_runs(self) -> i64 {
        self.live + self.made_up
    }

    /// Whether queued runs may start now; they start before newer runs.
    pub(crate) fn needs_promotion(self, policies: &Policies) -> bool {
        self.waiting_runs() > 0 && self.has_room(policies)
    }

    /// Counts a further deferred run in this state.
    pub(crate) fn with_deferred(mut self, state: RunState) -> Self {
        match state {
            RunState::Queued => self.waiting_made_up += 1,
            _ => self.made_up += 1,
        }
        self
    }

    /// Counts a run of this trigger that gets a slot.
    pub(crate) fn with_accepted(mut self, trigger: Trigger) -> Self {
        if is_live(trigger) {
            self.live += 1;
        } else {
            self.made_up += 1;
        }
        self
    }

    /// Whether a slot is free.
    pub(crate) fn has_room(self, policies: &Policies) -> bool {
        self.busy_runs() < slot_limit(policies)
    }

    /// Whether a waiting run of this trigger may start.
    pub(crate) fn has_room_for(self, policies: &Policies, trigger: Trigger) -> bool {
        // `concurrent` allows deferred runs beside each other; a backfill has its own limit.
        let beside = policies.overlap == Overlap::Concurrent && trigger == Trigger::Backfill;
        self.has_room(policies) && (is_live(trigger) || beside || self.made_up == 0)
    }
}

/// Whether a run with this trigger is live: started by a fire of the schedule, or manual.
pub(crate) fn is_live(trigger: Trigger) -> bool {
    match trigger {
        Trigger::Schedule | Trigger::Manual => true,
        Trigger::CatchUp | Trigger::Backfill | Trigger::Retry => false,
    }
}

/// How many runs of a workflow may run at once.
pub(crate) fn slot_limit(policies: &Policies) -> i64 {
    match policies.overlap {
        Overlap::Concurrent => policies.max_concurrent.into(),
        Overlap::Skip | Overlap::Queue | Overlap::QueueOne | Overlap::Replace => 1,
    }
}

/// Counts the runs that have not ended, except queued ones that a pause or a freeze holds.
pub(crate) async fn read_load(tx: &mut PgConnection, workflow: &Workflow, automatic: Automatic) -> sqlx::Result<Load> {
    sqlx::query_as!(
        Load,
        r#"
        -- load of a workflow: a run whose instance was lost counts until recovery ends or continues it
        SELECT count(*) FILTER (WHERE busy AND live) AS "live!",
               count(*) FILTER (WHERE live AND NOT never_started) AS "started!",
               count(*) FILTER (WHERE busy AND NOT live) AS "made_up!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'schedule') AS "waiting_schedule!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'schedule' AND never_started) AS "waiting_unstarted!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'manual') AS "waiting_manual!",
               count(*) FILTER (WHERE state = 'queued' AND NOT live) AS "waiting_made_up!"
          FROM (SELECT state, trigger, trigger IN ('schedule', 'manual') AS live, state IN ('accepted', 'running') AS busy,
                       run_never_started(attempt, handed_over, cut_off) AS never_started
                  FROM runs
                 WHERE workflow_id = $1 AND state IN ('accepted', 'queued', 'running')
                   AND NOT ($2 AND state = 'queued' AND trigger IN ('schedule', 'catch_up'))
                   AND NOT ($3 AND state = 'queued' AND trigger = 'backfill')) r
        "#,
        workflow.id.0,
        automatic != Automatic::MayStart,
        automatic == Automatic::Frozen,
    )
    .fetch_one(tx)
    .await
}

/// As [`read_load`], for many workflows that are active; one without an unfinished run is left out.
pub(crate) async fn read_loads(tx: &mut PgConnection, active: &[i64]) -> sqlx::Result<HashMap<i64, Load>> {
    let rows = sqlx::query!(
        r#"
        -- loads of active workflows: as the load of one
        SELECT workflow_id AS "workflow_id!",
               count(*) FILTER (WHERE busy AND live) AS "live!",
               count(*) FILTER (WHERE live AND NOT never_started) AS "started!",
               count(*) FILTER (WHERE busy AND NOT live) AS "made_up!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'schedule') AS "waiting_schedule!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'schedule' AND never_started) AS "waiting_unstarted!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'manual') AS "waiting_manual!",
               count(*) FILTER (WHERE state = 'queued' AND NOT live) AS "waiting_made_up!"
          FROM (SELECT workflow_id, state, trigger, trigger IN ('schedule', 'manual') AS live,
                       state IN ('accepted', 'running') AS busy,
                       run_never_started(attempt, handed_over, cut_off) AS never_started
                  FROM runs
                 WHERE workflow_id = ANY($1) AND state IN ('accepted', 'queued', 'running')) r
         GROUP BY workflow_id
        "#,
        active,
    )
    .fetch_all(tx)
    .await?;
    let loads = rows.into_iter().map(|row| {
        let load = Load {
            live: row.live,
            started: row.started,
            made_up: row.made_up,
            waiting_schedule: row.waiting_schedule,
            waiting_unstarted: row.waiting_unstarted,
            waiting_manual: row.waiting_manual,
            waiting_made_up: row.waiting_made_up,
        };
        (row.workflow_id, load)
    });
    Ok(loads.collect())
}
