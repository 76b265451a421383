//! Step 7 of 7: decides the times of many workflows in one transaction, by a dozen statements for all of them.
//!
//! Normally every workflow takes this path. `account.rs` processes the others, one by one: a workflow that another
//! transaction has locked, whose pause is over, whose due times cannot be computed or are very many, or whose queued
//! runs must start first.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;

use super::member::{Instants, Member, read_members};
use super::shard::{self, Shard};
use super::verdicts::{self, Verdicts};
use super::{Pass, write};

/// What a batch has done.
pub(super) struct Decided {
    /// The workflows that remain, to be processed one by one.
    pub(super) remaining: Vec<WorkflowId>,
    pub(super) pass: Pass,
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

/// Returns the due times without a decision.
async fn find_undecided(tx: &mut PgConnection, members: &[Member]) -> sqlx::Result<HashSet<(i64, DateTime<Utc>)>> {
    let (ids, times): (Vec<_>, Vec<_>) =
        members.iter().flat_map(|member| member.due_times.iter().map(|due| (member.id, due.time))).unzip();
    let rows = sqlx::query!(
        r#"
        -- undecided times of a batch: $3 and $4 are the bounds of all times, so that Postgres reads only their days
        SELECT due.workflow_id AS "workflow_id!", due.time AS "time!"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS due (workflow_id, time)
         WHERE (SELECT TRUE FROM occurrences o
                 WHERE o.workflow_id = due.workflow_id AND o.scheduled_time = due.time
                   AND o.scheduled_time BETWEEN $3 AND $4
                 LIMIT 1) IS NULL
        "#,
        &ids,
        &times,
        times.iter().min().copied(),
        times.iter().max().copied(),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.workflow_id, row.time)).collect())
}
