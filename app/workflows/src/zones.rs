//! Steps 1 and 7 of 7: the zone data that all instances use, and the effects of a change of them.
//!
//! The zone data of an environment are rows of `zone_data`; the rows of `zone_changes` say from when on which of them
//! are in force. Each instance loads them at its start, when they change, and before it refuses a fire as not due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool, ZoneChange};
use schedule::{Cron, Timezone, ZoneSet};
use serde_json::json;

use crate::audit::{self, Edit, Entry};

/// How often an instance checks which zone data are in force.
const POLL: Duration = Duration::from_secs(15);
/// How long after it was stored a change comes into force. By then each instance has loaded it, so all of them evaluate
/// a due time by the same zone data.
const LEAD: TimeDelta = TimeDelta::minutes(1);
/// How far ahead changed times are reported; offsets are announced a few years ahead at most.
const REPORTED: TimeDelta = TimeDelta::days(3 * 366);

/// The outcome of storing zone data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The newest data are the same, or newer than the bundled ones.
    Unchanged,
    /// The next times of some workflows changed.
    Changed {
        /// Due times from then on are evaluated by the new data.
        in_force_from: DateTime<Utc>,
        /// How many workflows changed that are not archived.
        workflows: u64,
    },
}

/// What to do with a set that lacks timezones of workflows: their due times become unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingTimezones {
    /// Refuse the set.
    Refuse,
    /// Activate it.
    Accept,
}

/// Which of two sets to keep.
#[derive(Clone, Copy)]
enum Choice {
    /// The one with the higher version.
    Newer,
    /// The given one.
    Given(MissingTimezones),
}

/// A cron and its timezone, which workflows may share.
#[derive(Clone, Debug)]
struct Timing {
    cron: String,
    timezone: String,
}

/// Stores the bundled zone data if the database has none, or older ones.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn store_bundled(pool: &PgPool, edit: &Edit) -> anyhow::Result<Stored> {
    store_chosen(pool, &ZoneSet::bundled(), Choice::Newer, edit).await
}

/// Activates zone data, and marks the workflows whose next times they change.
///
/// # Errors
/// Fails if the database does not answer, if it has other data under the same version, or if the set lacks timezones of
/// workflows and these are refused.
pub async fn store_zones(
    pool: &PgPool,
    set: &ZoneSet,
    missing: MissingTimezones,
    edit: &Edit,
) -> anyhow::Result<Stored> {
    store_chosen(pool, set, Choice::Given(missing), edit).await
}

async fn store_chosen(pool: &PgPool, set: &ZoneSet, choice: Choice, edit: &Edit) -> anyhow::Result<Stored> {
    loop {
        let mut connection = pool.acquire().await?;
        let last = db::read_zone_change(&mut connection).await?;
        let newest = read_newest(&mut connection, last.as_ref()).await?;
        if newest.as_ref().is_some_and(|newest| choice.keeps(newest, set)) {
            return Ok(Stored::Unchanged);
        }
        // Before the database had its first row, each binary used its own set.
        let newest = newest.unwrap_or_else(ZoneSet::bundled);
        let timings = changed_timings(&mut connection, &newest, set, edit.now).await?;
        if matches!(choice, Choice::Given(MissingTimezones::Refuse)) {
            refuse_missing(&timings, set)?;
        }
        drop(connection);
        // `None`: another change came first, so compute the effects of this one again.
        if let Some(stored) = insert_unless_outrun(pool, last.map(|last| last.id), &newest, set, &timings, edit).await?
        {
            return Ok(stored);
        }
    }
}

impl Choice {
    fn keeps(self, newest: &ZoneSet, given: &ZoneSet) -> bool {
        match self {
            Self::Newer => newest.version() >= given.version(),
            // If the contents differ under the same version, the insert refuses them.
            Self::Given(_) => newest.version() == given.version() && newest.archive() == given.archive(),
        }
    }
}

async fn insert_unless_outrun(
    pool: &PgPool,
    last: Option<i64>,
    before: &ZoneSet,
    set: &ZoneSet,
    timings: &[Timing],
    edit: &Edit,
) -> anyhow::Result<Option<Stored>> {
    let mut tx = db::begin_transaction(pool).await?;
    lock_changes(&mut tx).await?;
    if db::read_zone_change(&mut tx).await?.map(|change| change.id) != last {
        return Ok(None);
    }
    let change = insert_change(&mut tx, set).await.context("cannot store the zone data")?;
    let Change { id, in_force_from } = change.with_context(|| {
        let version = set.version();
        format!("zone data {version} are already stored with other contents: give this set another version")
    })?;
    let workflows = mark_workflows(&mut tx, id, timings, edit.now)
        .await
        .context("cannot mark the workflows whose next times change with the zone data")?;
    let entry = Entry {
        verb: "zones_update",
        subject: "zone_data".to_owned(),
        team_id: None,
        before: Some(json!({ "version": before.version().to_string() })),
        after: Some(json!({ "version": set.version().to_string(), "changed_workflows": workflows.len() })),
    };
    audit::record_entry(&mut tx, edit, entry).await?;
    tx.commit().await?;
    for workflow in &workflows {
        tracing::info!(workflow_id = workflow, version = %set.version(), "next times changed with the zone data");
    }
    Ok(Some(Stored::Changed { in_force_from, workflows: workflows.len() as u64 }))
}

/// Returns the zone data of the last change; `None` if there was no change.
///
/// # Errors
/// Fails if the database does not answer, or if the stored data cannot be read.
async fn read_newest(db: &mut PgConnection, last: Option<&ZoneChange>) -> anyhow::Result<Option<Arc<ZoneSet>>> {
    let Some(change) = last else { return Ok(None) };
    let archive = db::read_zone_archive(db, &change.version).await?;
    Ok(Some(Arc::new(ZoneSet::from_archive(archive).context("the zone data in force cannot be read")?)))
}

/// Locks the changes, so that ids and times ascend together; readers do not wait.
async fn lock_changes(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("LOCK TABLE zone_changes IN EXCLUSIVE MODE").execute(tx).await.map(drop)
}

/// Returns the timings whose next times differ between two sets.
async fn changed_timings(
    db: &mut PgConnection,
    before: &ZoneSet,
    after: &ZoneSet,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Timing>> {
    let timings = sqlx::query_as!(
        Timing,
        r#"
        -- changed_timings: each timing once, however many workflows have it
        SELECT DISTINCT cron_schedule AS "cron!", timezone AS "timezone!"
          FROM workflows
         WHERE cron_schedule IS NOT NULL AND timezone IS NOT NULL AND state <> 'archived'
        "#
    )
    .fetch_all(db)
    .await?;
    Ok(timings.into_iter().filter(|timing| timing.is_changed(before, after, now)).collect())
}

fn refuse_missing(changed: &[Timing], set: &ZoneSet) -> anyhow::Result<()> {
    let names = changed.iter().map(|timing| timing.timezone.as_str()).filter(|name| set.find(name).is_none());
    let names: Vec<_> = names.collect::<BTreeSet<_>>().into_iter().collect();
    anyhow::ensure!(
        names.is_empty(),
        "zone data {} lack timezones of workflows: {}. --drop-timezones activates them all the same; then these workflows have \
         no next times",
        set.version(),
        names.join(", ")
    );
    Ok(())
}

impl Timing {
    fn is_changed(&self, before: &ZoneSet, after: &ZoneSet, now: DateTime<Utc>) -> bool {
        let Ok(cron) = Cron::parse(&self.cron) else { return false };
        match (before.find(&self.timezone), after.find(&self.timezone)) {
            (Some(before), Some(after)) => {
                before != after && cron.first_difference(before, after, now, now + REPORTED).is_some()
            }
            // A timezone that is new or dropped: its times become known or unknown.
            (before, after) => before.map(Timezone::name) != after.map(Timezone::name),
        }
    }
}

/// A row of `zone_changes`.
struct Change {
    id: i64,
    in_force_from: DateTime<Utc>,
}

/// Stores the set and activates it. Returns `None` if its version has other contents, which past times need.
async fn insert_change(tx: &mut PgConnection, set: &ZoneSet) -> sqlx::Result<Option<Change>> {
    sqlx::query_as!(
        Change,
        r#"
        -- insert_change: a version that was in force before comes into force again
        WITH stored AS (
            INSERT INTO zone_data AS d (version, archive) VALUES ($1, $2)
            ON CONFLICT (version) DO UPDATE SET archive = d.archive WHERE d.archive = excluded.archive
            RETURNING version
        )
        INSERT INTO zone_changes (version, in_force_from)
        SELECT version,
               GREATEST(cronbox_now() + make_interval(secs => $3),
                        (SELECT max(in_force_from) FROM zone_changes) + INTERVAL '1 microsecond')
          FROM stored
        RETURNING id, in_force_from
        "#,
        set.version().to_string(),
        set.archive(),
        LEAD.as_seconds_f64(),
    )
    .fetch_optional(tx)
    .await
}

/// Marks the workflows of these timings; the watchdog computes their next times again.
async fn mark_workflows(
    tx: &mut PgConnection,
    change: i64,
    timings: &[Timing],
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<i64>> {
    let (crons, timezones): (Vec<_>, Vec<_>) =
        timings.iter().map(|timing| (timing.cron.clone(), timing.timezone.clone())).unzip();
    sqlx::query_scalar!(
        r#"
        -- mark_workflows: locked in the order of their ids, as everywhere
        WITH changed AS MATERIALIZED (
            SELECT w.id FROM workflows w
              JOIN unnest($2::text[], $3::text[]) AS t (cron, timezone)
                ON w.cron_schedule = t.cron AND w.timezone = t.timezone
             WHERE w.state <> 'archived'
             ORDER BY w.id
               FOR NO KEY UPDATE OF w
        ), watched AS (
            -- the due times of a follower are computed by each pass
            UPDATE ledger l SET watch_at = LEAST(l.watch_at, $4)
              FROM changed
             WHERE l.workflow_id = changed.id AND l.watch_at IS NOT NULL
        )
        UPDATE workflows w
           SET zone_change_id = $1
          FROM changed
         WHERE w.id = changed.id
        RETURNING w.id
        "#,
        change,
        &crons,
        &timezones,
        now,
    )
    .fetch_all(tx)
    .await
}

/// Follows the zone data in force until the task is dropped.
pub async fn follow_zones(pool: PgPool) {
    let mut last_change = None;
    loop {
        if let Err(error) = follow_once(&pool, &mut last_change).await {
            tracing::warn!(%error, "zone data in force not read; the next poll tries again");
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn follow_once(pool: &PgPool, last_change: &mut Option<i64>) -> sqlx::Result<()> {
    let mut connection = pool.acquire().await?;
    let Some(change) = db::read_zone_change(&mut connection).await? else { return Ok(()) };
    db::load_zones(&mut connection).await?;
    if last_change.is_some_and(|last| last < change.id) {
        rewatch_workflows(&mut connection, change.id).await?;
    }
    *last_change = Some(change.id);
    Ok(())
}

/// Makes the watchdog check the marked workflows again.
///
/// An instance that had not loaded the new data yet may have computed a next time by the old ones. Each instance calls
/// this after it has loaded them, so the last one corrects such a time.
async fn rewatch_workflows(db: &mut PgConnection, change: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- rewatch_workflows
        UPDATE ledger l
           SET watch_at = LEAST(l.watch_at, cronbox_now())
          FROM workflows w
         WHERE w.id = l.workflow_id AND w.zone_change_id = $1 AND l.watch_at IS NOT NULL
        "#,
        change,
    )
    .execute(db)
    .await
    .map(drop)
}
