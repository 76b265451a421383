//! Step 7 of 7: decides the times of many workflows in one transaction, by a dozen statements for all of them.
//!
//! Normally every workflow takes this path. `account.rs` processes the others, one by one: a workflow that another
//! transaction has locked, whose pause is over, whose due times cannot be computed or are very many, or whose queued
//! runs must start first.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;
use schedule::delivery::GRACE;
use workflows::State;
use workflows::definition::policies::{CatchUp, OnLost, Overlap, Policies};

use super::shard::{self, Shard};
use super::verdicts::{self, Verdicts};
use super::{Pass, write};
use crate::due_times::{self, DueTime};
use crate::ledger_cursor::Ledger;
use crate::versions::{self, Version};

/// A workflow with more due times than this is processed on its own.
const TIMES: usize = 200;

/// What a batch has done.
pub(super) struct Decided {
    /// The workflows that remain, to be processed one by one.
    pub(super) remaining: Vec<WorkflowId>,
    pub(super) pass: Pass,
}

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

/// Decides the times of these workflows, all of the shard; `None` if the lease of the shard is lost.
pub(super) async fn decide_batch(
    pool: &PgPool,
    shard: &Shard,
    workflows: &[i64],
    instants: Instants,
) -> sqlx::Result<Option<Decided>> {
    let mut tx = db::begin_transaction(pool).await?;
    let done = decide_in(&mut tx, shard, workflows, instants).await;
    tx.commit_or_rollback(done).await
}

async fn decide_in(
    tx: &mut PgConnection,
    shard: &Shard,
    workflows: &[i64],
    instants: Instants,
) -> sqlx::Result<Option<Decided>> {
    let Some(through) = shard::renew_lease(tx, shard).await? else { return Ok(None) };
    let members = read_members(tx, workflows, instants).await?;
    let undecided = find_undecided(tx, &members).await?;
    let Verdicts { not_run, caught_up, singly } = verdicts::decide_members(tx, &members, &undecided, instants).await?;
    let settled: Vec<&Member> = members.iter().filter(|member| !singly.contains(&member.id)).collect();
    let mut pass = Pass { workflows: settled.len() as u64, ..Pass::default() };
    pass.count_not_run(&not_run);
    pass.caught_up = caught_up.len() as u64;
    write::record_not_run(tx, &not_run, instants.now).await?;
    write::record_caught_up(tx, &caught_up, instants.now).await?;
    write::move_on(tx, &settled, through, instants.until()).await?;
    let ids: HashSet<i64> = settled.iter().map(|member| member.id).collect();
    let remaining = workflows.iter().filter(|id| !ids.contains(id)).map(|id| WorkflowId(*id)).collect();
    Ok(Some(Decided { remaining, pass }))
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
async fn read_members(tx: &mut PgConnection, workflows: &[i64], instants: Instants) -> sqlx::Result<Vec<Member>> {
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

/// Returns the due times without a decision.
async fn find_undecided(tx: &mut PgConnection, members: &[Member]) -> sqlx::Result<HashSet<(i64, DateTime<Utc>)>> {
    let (ids, times): (Vec<_>, Vec<_>) =
        members.iter().flat_map(|member| member.due_times.iter().map(|due| (member.id, due.time))).unzip();
    let rows = sqlx::query!(
        r#"
        -- undecided times of a batch
        SELECT due.workflow_id AS "workflow_id!", due.time AS "time!"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS due (workflow_id, time)
         WHERE (SELECT TRUE FROM occurrences o
                 WHERE o.workflow_id = due.workflow_id AND o.scheduled_time = due.time
                 LIMIT 1) IS NULL
        "#,
        &ids,
        &times,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.workflow_id, row.time)).collect())
}
