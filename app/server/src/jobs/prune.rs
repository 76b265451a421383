//! Step 7 of 7: removes old rows. A job.
//!
//! Days of runs, occurrences and processed outbox rows, and months of the audit log, are partitions, which it makes ahead
//! and drops as a whole. It deletes other rows in bounded batches, among them those that have no partition by day.
//!
//! An occurrence prevents a second run if its fire is repeated. So it is kept while its workflow may still run so late
//! a fire, at least 15 days (dead-letter queues keep messages for 14), and until the watchdog has processed its time.
//! Of the rows without a partition by day, the newest occurrence of a workflow is kept forever. A turn reads each of
//! these rows once.

mod deleted_rows;
mod old_rows;
mod partitions;
mod zone_rows;

use access::{repeats, sessions};
use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use ledger::bulk;
use ledger::freezes;
use ledger::job_failures;
use ledger::prune_marks;
use ledger::runs::remove_old_attempts;
use ledger::verify::daily;

use old_rows::{Ages, BATCH, Kind, Scope, Window};

/// Name of the job in the table `jobs`.
pub const JOB: &str = "prune";
/// How many statements one turn executes for each kind.
const BATCHES: u32 = 20;
/// Dead-letter queues keep a fire for 14 days.
const OCCURRENCES_AT_LEAST: TimeDelta = TimeDelta::days(15);

/// For how many days rows are kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Published outbox rows.
    pub outbox_days: u32,
    /// Failed outbox rows.
    pub outbox_failed_days: u32,
    /// Runs and occurrences; occurrences never less than 15.
    pub retention_days: u32,
    /// Entries of the audit log, never less than 30; 0 = forever.
    pub audit_days: u32,
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Outbox rows that it removed.
    pub outbox: u64,
    /// Runs that it removed.
    pub runs: u64,
    /// Occurrences that it removed.
    pub occurrences: u64,
    /// Records of fires that disagreed with our zone data.
    pub disagreements: u64,
    /// Partitions by day or month that it dropped.
    pub partitions: u64,
    /// Schedule versions that no kept time needs.
    pub versions: u64,
    /// Backfills whose runs are removed.
    pub backfills: u64,
    /// Publications of workflows that were deleted long ago.
    pub publications: u64,
    /// Workflows whose rows cannot be removed.
    pub failed: u64,
    /// Whether a batch was full.
    pub may_be_more: bool,
    /// Whether a transaction had locked a table, so that its partitions could not be made or dropped.
    pub is_locked: bool,
}

/// The result of one batch.
struct Batch {
    removed: u64,
    may_be_more: bool,
}

/// Removes rows that are older than the settings keep them.
///
/// A workflow whose rows cannot be removed is logged, counted and skipped for the rest of the turn.
///
/// # Errors
/// Fails if the database fails; earlier batches remain removed.
pub async fn remove_old_rows(pool: &PgPool, settings: Settings, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let ages = ages(settings, now);
    let (mut pass, mut failed) = (Pass::default(), Vec::new());
    let mut connection = pool.acquire().await?;
    partitions::make_next_days(&mut connection, now).await?;
    prune_marks::raise_marks(&mut connection, ages.runs, ages.occurrences).await?;
    let dropped = partitions::drop_old_days(&mut connection, &ages).await?;
    pass.is_locked = partitions::is_one_locked(&mut connection).await?;
    let (mut window, mut deleted_through) = (Window::before_all(), 0);
    for _ in 0..BATCHES {
        pass.may_be_more = false;
        for kind in [Kind::Outbox, Kind::Runs] {
            let batch = remove_batch(&mut connection, kind, &ages, &mut failed).await?;
            pass.add(kind, &batch);
        }
        let batch = remove_occurrences(&mut connection, &ages, &mut window, &mut failed).await?;
        pass.add(Kind::Occurrences(window), &batch);
        let deleted = deleted_rows::remove_of_deleted(&mut connection, &mut deleted_through).await?;
        pass.runs += deleted.runs;
        pass.occurrences += deleted.occurrences;
        pass.may_be_more |= deleted.may_be_more;
        let disagreements = zone_rows::remove_disagreements(&mut connection, ages.runs).await?;
        pass.add_disagreements(&Batch::of_statement(disagreements));
        if !pass.may_be_more {
            break;
        }
    }
    pass.backfills = remove_backfills(&mut connection, ages.runs).await?;
    if !pass.may_be_more {
        pass.publications = remove_publications(&mut connection, ages.occurrences).await?;
        pass.versions = remove_versions(&mut connection, ages.occurrences).await?;
    }
    remove_repeats(&mut connection, now).await?;
    sessions::remove_ended(&mut connection, now - TimeDelta::days(1), BATCH).await?;
    remove_old_attempts(&mut connection, ages.runs).await?;
    workflows::events::remove_old(&mut connection).await?;
    bulk::remove_old(&mut connection, ages.runs).await?;
    notifications::old_rows::remove_old(&mut connection, ages.runs).await?;
    daily::remove_old_days(&mut connection, ages.runs).await?;
    freezes::remove_old(&mut connection, ages.occurrences.min(ages.runs)).await?;
    zone_rows::remove_changes(&mut connection, ages.occurrences).await?;
    zone_rows::remove_data(&mut connection).await?;
    let may_be_more = pass.may_be_more || dropped.may_be_more;
    Ok(Pass { failed: failed.len() as u64, partitions: dropped.partitions, may_be_more, ..pass })
}

fn ages(settings: Settings, now: DateTime<Utc>) -> Ages {
    let kept_since = |days: u32| now - TimeDelta::days(days.into());
    let retained = kept_since(settings.retention_days);
    Ages {
        processed: kept_since(settings.outbox_days),
        failed: kept_since(settings.outbox_failed_days),
        runs: retained,
        occurrences: retained.min(now - OCCURRENCES_AT_LEAST),
        audit: (settings.audit_days > 0).then(|| kept_since(settings.audit_days)),
        now,
    }
}

/// Removes the old occurrences of the next windows, until one had some: where all rows must stay, nothing is removed.
async fn remove_occurrences(
    db: &mut PgConnection,
    ages: &Ages,
    window: &mut Window,
    failed: &mut Vec<i64>,
) -> sqlx::Result<Batch> {
    while old_rows::advance_window(db, ages, window).await? {
        let batch = remove_batch(db, Kind::Occurrences(*window), ages, failed).await?;
        if batch.removed > 0 {
            return Ok(Batch { may_be_more: true, ..batch });
        }
    }
    Ok(Batch { removed: 0, may_be_more: false })
}

/// Removes the schedule versions that no kept time needs, some workflows at a time.
async fn remove_versions(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let (mut removed, mut after) = (0, 0);
    while let Some(through) = deleted_rows::find_batch_end(db, after).await? {
        removed += deleted_rows::remove_versions(db, after, through, before).await?;
        after = through;
    }
    Ok(removed)
}

/// Removes the requests that may not be repeated any more, some at a time.
async fn remove_repeats(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<()> {
    for _ in 0..BATCHES {
        if repeats::remove_old(db, now).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// Removes the backfills whose runs are removed, some at a time.
async fn remove_backfills(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut all = 0;
    for _ in 0..BATCHES {
        let removed = deleted_rows::remove_backfills(db, before).await?;
        all += removed;
        if removed < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(all)
}

/// Removes the publications of workflows that were deleted long ago, some workflows at a time.
async fn remove_publications(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let (mut removed, mut after) = (0, 0);
    while let Some(through) = deleted_rows::find_publications_end(db, after).await? {
        removed += deleted_rows::remove_publications(db, after, through, before).await?;
        after = through;
    }
    Ok(removed)
}

/// Removes a batch, except the rows of workflows that have failed.
async fn remove_batch(db: &mut PgConnection, kind: Kind, ages: &Ages, failed: &mut Vec<i64>) -> sqlx::Result<Batch> {
    match old_rows::remove_rows(db, kind, ages, Scope::Except(failed)).await {
        Ok(removed) => Ok(Batch::of_statement(removed)),
        // One workflow makes the statement for all fail, so give each its own statement.
        Err(error) if job_failures::concerns_one_workflow(&error) => remove_singly(db, kind, ages, failed).await,
        Err(error) => Err(error),
    }
}

/// Removes a batch workflow by workflow; failures are logged and added to `failed`.
async fn remove_singly(db: &mut PgConnection, kind: Kind, ages: &Ages, failed: &mut Vec<i64>) -> sqlx::Result<Batch> {
    let mut removed = 0;
    for workflow in old_rows::workflows_of_batch(db, kind, ages, failed).await? {
        match old_rows::remove_rows(db, kind, ages, Scope::Only(workflow)).await {
            Ok(rows) => removed += rows,
            Err(error) => {
                job_failures::skip_failed(JOB, workflow, error)?;
                failed.push(workflow);
            }
        }
    }
    Ok(Batch { removed, may_be_more: true })
}

impl Batch {
    /// The result of one statement, which removes at most [`BATCH`] rows.
    fn of_statement(removed: u64) -> Self {
        Self { removed, may_be_more: removed >= BATCH.unsigned_abs() }
    }
}

impl Pass {
    fn add(&mut self, kind: Kind, batch: &Batch) {
        let count = match kind {
            Kind::Outbox => &mut self.outbox,
            Kind::Runs => &mut self.runs,
            Kind::Occurrences(_) => &mut self.occurrences,
        };
        *count += batch.removed;
        self.may_be_more |= batch.may_be_more;
    }

    fn add_disagreements(&mut self, batch: &Batch) {
        self.disagreements += batch.removed;
        self.may_be_more |= batch.may_be_more;
    }

    /// Returns how many rows and partitions it removed.
    #[must_use]
    pub fn removed_rows(&self) -> u64 {
        self.outbox
            + self.runs
            + self.occurrences
            + self.disagreements
            + self.versions
            + self.backfills
            + self.publications
            + self.partitions
    }

    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { outbox, runs, occurrences, disagreements, versions, backfills, publications, .. } = self;
        let days = match self.partitions {
            0 => String::new(),
            partitions => format!(", {partitions} partitions"),
        };
        format!(
            "old rows removed: {outbox} outbox rows, {runs} runs, {occurrences} occurrences, {disagreements} \
             disagreements, {versions} schedule versions, {backfills} backfills, {publications} publications{days}"
        )
    }
}
