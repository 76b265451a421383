//! Step 7 of 7: the workflows of a batch, locked, each with the due times that have to be decided.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::delivery::GRACE;
use workflows::State;
use workflows::definition::policies::{CatchUp, OnLost, Overlap, Policies};

use crate::due_times::{self, DueTime};
use crate::ledger_cursor::Ledger;
use crate::versions::{self, Version};

/// A workflow with more due times than this is processed on its own.
const TIMES: usize = 200;

/// The shared inputs of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instants {
    /// The time of the pass.
    pub(super) now: DateTime<Utc>,
    /// How long the ledger keeps its rows.
    pub(super) kept: TimeDelta,
}

impl Instants {
    /// The time up to which the pass decides.
    pub(super) fn until(self) -> DateTime<Utc> {
        self.now - GRACE
    }

    /// Older rows would be pruned at once, and an older time never runs, whatever the catch-up window.
    pub(super) fn oldest(self) -> DateTime<Utc> {
        self.now - self.kept
    }
}

/// A locked workflow, with all due times that have to be decided.
pub(super) struct Member {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) state: State,
    pub(super) policies: Policies,
    pub(super) pause_until: Option<DateTime<Utc>>,
    pub(super) ledger: Ledger,
    pub(super) versions: Vec<Version>,
    pub(super) due_times: Vec<DueTime>,
}

struct Locked {
    id: i64,
    team_id: i64,
    state: State,
    policies: Policies,
    pause_until: Option<DateTime<Utc>>,
}

/// Locks the workflows that are not locked; returns those whose due times are known and not too many.
pub(super) async fn read_members(
    tx: &mut PgConnection,
    workflows: &[i64],
    instants: Instants,
) -> sqlx::Result<Vec<Member>> {
    let locked = lock_workflows(tx, workflows, instants.now).await?;
    let ids: Vec<_> = locked.iter().map(|locked| locked.id).collect();
    let ledgers = read_ledgers(tx, &ids).await?;
    let after = |ledger: &Ledger| ledger.cursor.max(instants.oldest()).min(instants.until());
    let instants_of: Vec<_> = ledgers.iter().map(|(id, ledger)| (*id, after(ledger))).collect();
    let mut versions = versions::read_of_all(tx, &instants_of).await?;
    let members = locked.into_iter().filter_map(|locked| {
        let ledger = *ledgers.get(&locked.id)?;
        let versions = versions.remove(&locked.id).unwrap_or_default();
        let due = due_times::list_due_times(&versions, after(&ledger), instants.until(), TIMES);
        let is_all = due.unjudged.is_empty() && due.through == instants.until();
        let Locked { id, team_id, state, policies, pause_until } = locked;
        is_all.then_some(Member { id, team_id, state, policies, pause_until, ledger, versions, due_times: due.times })
    });
    Ok(members.collect())
}

async fn lock_workflows(tx: &mut PgConnection, ids: &[i64], now: DateTime<Utc>) -> sqlx::Result<Vec<Locked>> {
    let rows = sqlx::query!(
        r#"
        -- lock a batch: without workflows whose pause is over, because that pause must end first
        SELECT id, team_id, state AS "state: State", pause_until,
               overlap_policy AS "overlap_policy: Overlap", max_concurrent,
               catch_up_policy AS "catch_up_policy: CatchUp", catch_up_window_secs, spread_secs, timeout_secs,
               max_attempts, on_lost AS "on_lost: OnLost", pause_after_failures
          FROM workflows
         WHERE id = ANY($1) AND (pause_until IS NULL OR pause_until > $2)
         ORDER BY id
           FOR NO KEY UPDATE SKIP LOCKED
        "#,
        ids,
        now,
    )
    .fetch_all(tx)
    .await?;
    let locked = rows.into_iter().map(|row| {
        let policies = Policies {
            overlap: row.overlap_policy,
            max_concurrent: row.max_concurrent,
            catch_up: row.catch_up_policy,
            catch_up_window_secs: row.catch_up_window_secs,
            spread_secs: row.spread_secs,
            timeout_secs: row.timeout_secs,
            max_attempts: row.max_attempts,
            on_lost: row.on_lost,
            pause_after_failures: row.pause_after_failures,
        };
        Locked { id: row.id, team_id: row.team_id, state: row.state, policies, pause_until: row.pause_until }
    });
    Ok(locked.collect())
}

/// Reads how far the ledgers are; a later statement than the one that locked the workflows sees their newest rows.
async fn read_ledgers(tx: &mut PgConnection, ids: &[i64]) -> sqlx::Result<HashMap<i64, Ledger>> {
    let rows = sqlx::query!(
        r#"
        -- read how far the ledgers of a batch are
        SELECT l.workflow_id, ledger_decided_through(l.cursor, l.watch_at, s.decided_through) AS "cursor!",
               l.watch_at, l.activated_on
          FROM ledger l JOIN watchdog_shards s ON s.shard = l.shard
         WHERE l.workflow_id = ANY($1)
        "#,
        ids,
    )
    .fetch_all(tx)
    .await?;
    let ledgers = rows.into_iter().map(|row| {
        (row.workflow_id, Ledger { cursor: row.cursor, watch_at: row.watch_at, activated_on: row.activated_on })
    });
    Ok(ledgers.collect())
}
