//! Step 7 of 7: accepts the ledger of a database that was restored or cloned.
//!
//! A time that was due between the backup and the loss may have run, but the backup has no record of it. So each of
//! these times becomes `missed` with the reason `restored`: no fire and no catch-up runs it. Each run that is
//! unfinished in the backup is abandoned. A running backfill is paused, because it would repeat runs from before the
//! loss. A sweep that is open in the backup is removed, because what it has listed is outdated. Then the jobs and the
//! publisher continue.
//!
//! A server that was upgraded has another identity, too, but its database is complete. The operator says so, and then
//! nothing is missed, abandoned or paused.

use anyhow::{Context as _, bail, ensure};
use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::{Environment, WorkflowId};
use uuid::Uuid;
use workflows::audit::{self, Edit};
use workflows::lock_workflow;
use workflows::reasons::ReasonCode;

use crate::backfills;
use crate::due_times;
use crate::identity::{self, DEFAULT_ENVIRONMENT};
use crate::ledger_cursor;
use crate::occurrences::Decision;
use crate::occurrences::span::{self, NotRun};
use crate::runs::abandon_runs;
use crate::versions;

/// How many due times one transaction records.
const STRETCH: usize = 1_000;
/// How many workflows one statement reads, and how many runs one transaction abandons.
const BATCH: i64 = 500;

/// Which identity the database has afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The database keeps its identity, because it replaces the database that was lost.
    Identity,
    /// The database gets a new identity, because it runs beside the original, whose schedules it must never delete.
    Nothing,
}

/// What the database does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// What happened between the backup and this moment, at which the database was lost.
    Until(DateTime<Utc>),
    /// Nothing, because the database is complete: its server was upgraded, or its environment has another name.
    Nothing,
}

/// The result of an acceptance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Accepted {
    /// Due times that became `missed`.
    pub missed: u64,
    /// Unfinished runs that were abandoned.
    pub abandoned: u64,
    /// Running backfills that were paused.
    pub backfills_paused: u64,
}

/// Returns the environment to accept for: `named`, else the default if the database belongs to no other environment.
///
/// # Errors
/// Fails if none is named and the database belongs to another environment, or if the database does not answer.
pub async fn resolve_environment(pool: &PgPool, named: Option<Environment>) -> anyhow::Result<Environment> {
    if let Some(named) = named {
        return Ok(named);
    }
    let owner = identity::read_environment(&mut *pool.acquire().await?).await?;
    match owner {
        // If it were accepted for the default environment, it would wait again as soon as its own app starts.
        Some(owner) if owner != DEFAULT_ENVIRONMENT => {
            bail!("the database belongs to environment {owner}, and CRONBOX_ENV is not set: set it or write --env")
        }
        _ => Ok(DEFAULT_ENVIRONMENT.parse()?),
    }
}

/// Accepts the ledger, without what was lost. Times after the loss run again, and all times if nothing was lost.
///
/// Each workflow has its own transaction, so the caller can repeat a call that was interrupted.
///
/// # Errors
/// Fails if the loss lies in the future, if EventBridge shows that something was lost and `lost` says that nothing was, if
/// the database does not wait for an acceptance, or if it does not answer. Then it continues to wait.
pub async fn accept_ledger(
    pool: &PgPool,
    environment: &Environment,
    lost: Lost,
    keep: Keep,
    edit: &Edit,
) -> anyhow::Result<Accepted> {
    let until = match lost {
        Lost::Until(until) => Some(until),
        Lost::Nothing => None,
    };
    if let Some(until) = until {
        ensure!(until <= edit.now, "--until must not be in the future: the time is {} now", edit.now.to_rfc3339());
    }
    let held_on = read_hold_start(pool, environment).await?;
    if lost == Lost::Nothing {
        refuse_if_ahead(pool).await?;
    }
    let mut accepted = Accepted::default();
    // Runs accepted after this time are not from the backup, and none of them has started.
    let of_backup = until.map(|until| until.min(held_on));
    if let (Some(until), Some(of_backup)) = (until, of_backup) {
        accepted.missed = mark_gaps(pool, until, edit.now).await?;
        accepted.abandoned = abandon_unfinished(pool, of_backup, edit.now).await?;
    }
    let mut tx = db::begin_transaction(pool).await?;
    if let Some(of_backup) = of_backup {
        // In the transaction that ends the wait, so that no backfill takes a step in between.
        accepted.backfills_paused = backfills::pause_running(&mut tx, of_backup, edit.now).await?;
    }
    forget_sweeps(&mut tx).await?;
    if keep == Keep::Nothing {
        forget_schedules(&mut tx).await?;
    }
    release_hold(&mut tx, environment, keep).await?;
    record_acceptance(&mut tx, until, accepted, edit).await?;
    tx.commit().await?;
    Ok(accepted)
}

async fn record_acceptance(
    tx: &mut PgConnection,
    until: Option<DateTime<Utc>>,
    accepted: Accepted,
    edit: &Edit,
) -> anyhow::Result<()> {
    let after = Some(serde_json::json!({
        "until": until, "missed": accepted.missed, "abandoned": accepted.abandoned,
        "backfills_paused": accepted.backfills_paused,
    }));
    let entry = audit::Entry { verb: "accept", subject: "ledger".to_owned(), team_id: None, before: None, after };
    audit::record_entry(tx, edit, entry).await?;
    Ok(())
}

/// Marks the due times of all workflows up to `until` as missed, if they have no decision yet; returns how many.
async fn mark_gaps(pool: &PgPool, until: DateTime<Utc>, now: DateTime<Utc>) -> anyhow::Result<u64> {
    let mut missed = 0;
    let mut last = WorkflowId(0);
    loop {
        let batch = workflows_after(&mut *pool.acquire().await?, last).await?;
        let Some(end) = batch.last() else { return Ok(missed) };
        last = *end;
        for workflow in batch {
            missed += mark_gap(pool, workflow, until, now)
                .await
                .with_context(|| format!("cannot accept workflow {workflow}"))?;
        }
    }
}

/// Returns since when the database waits for an acceptance. If it does not wait, an acceptance would abandon valid
/// runs.
async fn read_hold_start(pool: &PgPool, environment: &Environment) -> anyhow::Result<DateTime<Utc>> {
    let mut connection = pool.acquire().await?;
    identity::claim_identity(&mut connection, environment).await?;
    match identity::read_hold_start(&mut connection).await? {
        Some(held_on) => Ok(held_on),
        None => bail!(
            "the ledger is not held, so it needs no acceptance; if the database is a restored storage snapshot, start \
             the app with CRONBOX_RESTORED=true first"
        ),
    }
}

/// Refuses a database that lacks what EventBridge has: it is not complete, so what ran since its backup would run again.
async fn refuse_if_ahead(pool: &PgPool) -> anyhow::Result<()> {
    let hold = identity::read_hold(&mut *pool.acquire().await?).await?;
    ensure!(
        hold.as_deref() != Some("eventbridge_ahead"),
        "--nothing-lost: EventBridge has a later state than the database (eventbridge_ahead), so the database is not complete; write \
         --until with the moment of the loss"
    );
    Ok(())
}

/// Marks the due times of one workflow up to `until` as missed, if they have no decision yet.
async fn mark_gap(pool: &PgPool, id: WorkflowId, until: DateTime<Utc>, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut missed = 0;
    loop {
        let mut tx = db::begin_transaction(pool).await?;
        if lock_workflow(&mut tx, id, None, now).await?.is_none() {
            return Ok(missed);
        }
        let ledger = ledger_cursor::find_cursor(&mut tx, id).await?;
        let Some(cursor) = ledger.map(|ledger| ledger.cursor).filter(|cursor| *cursor < until) else {
            return Ok(missed);
        };
        let versions = versions::read_over(&mut tx, id, cursor, DateTime::<Utc>::MAX_UTC).await?;
        let due = due_times::list_due_times(&versions, cursor, until, STRETCH);
        let decided = span::list_decided_times(&mut tx, id, cursor, due.through).await?;
        let gap: Vec<NotRun> = due
            .times
            .iter()
            .filter(|due| !decided.contains(&due.time))
            .map(|due| NotRun {
                time: due.time,
                revision: due.revision,
                decision: Decision::Missed,
                reason: ReasonCode::Restored.into(),
            })
            .collect();
        missed += span::record_not_run(&mut tx, id, &gap, now).await?;
        // Times that cannot be computed stay open. The watchdog decides them when they can be.
        let next = due_times::next_due_time(&versions, due.through).filter(|_| !due.is_blocked);
        let watch_at = next.unwrap_or(due.through);
        ledger_cursor::advance_cursor(&mut tx, id, due.through, watch_at).await?;
        tx.commit().await?;
        if due.through >= until || due.is_blocked {
            return Ok(missed);
        }
    }
}

async fn abandon_unfinished(pool: &PgPool, until: DateTime<Utc>, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut abandoned = 0;
    loop {
        let mut tx = db::begin_transaction(pool).await?;
        let ids = lock_unfinished(&mut tx, until).await?;
        if ids.is_empty() {
            return Ok(abandoned);
        }
        abandon_runs(&mut tx, &ids, &vec![ReasonCode::Restored.as_str().to_owned(); ids.len()], now).await?;
        tx.commit().await?;
        abandoned += ids.len() as u64;
    }
}

async fn workflows_after(db: &mut PgConnection, last: WorkflowId) -> sqlx::Result<Vec<WorkflowId>> {
    let ids = sqlx::query_scalar!(
        r#"
        -- the next workflows by id; workflows that never had a cron have no cursor
        SELECT workflow_id FROM ledger WHERE workflow_id > $1 ORDER BY workflow_id LIMIT $2
        "#,
        last.0,
        BATCH,
    )
    .fetch_all(db)
    .await?;
    Ok(ids.into_iter().map(WorkflowId).collect())
}

async fn lock_unfinished(tx: &mut PgConnection, until: DateTime<Utc>) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- lock unfinished runs
        SELECT id FROM runs
         WHERE state IN ('accepted', 'queued', 'running') AND created_on <= $1
         ORDER BY id
         LIMIT $2
           FOR UPDATE
        "#,
        until,
        BATCH,
    )
    .fetch_all(tx)
    .await
}

/// Removes the open sweep of the backup and what it has found, so that the first sweep afterwards lists everything.
async fn forget_sweeps(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget sweeps: by a function of the owner, because these tables are the publisher's
        SELECT forget_sweeps()
        "#
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Marks every workflow as unpublished, because a clone has no schedules. The publisher then creates them; a create
/// never overwrites the original's.
async fn forget_schedules(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget schedules: the schedules that the backup names belong to the original
        UPDATE publications SET schedule_name = NULL, spec_hash = NULL
        "#
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn release_hold(tx: &mut PgConnection, environment: &Environment, keep: Keep) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- release hold: from now on the identity belongs to this server, database and environment
        INSERT INTO database_identity AS i (environment) VALUES ($1)
        ON CONFLICT (singleton) DO UPDATE
           SET uuid = CASE WHEN $2 THEN i.uuid ELSE gen_random_uuid() END,
               environment = $1,
               system_identifier = cronbox_system_identifier(),
               database_oid = cronbox_database_oid(),
               accepted_on = cronbox_now(),
               held_on = NULL,
               held_reason = NULL
        "#,
        environment.to_string(),
        keep == Keep::Identity,
    )
    .execute(tx)
    .await
    .map(drop)
}
