//! Step 7 of 7: removes old rows. A job.
//!
//! Days of runs, occurrences and processed outbox rows, and months of the audit log, are partitions, which it makes ahead
//! and drops as a whole. It deletes other rows in bounded batches, among them those that have no partition by day.
//!
//! An occurrence prevents a second run if its fire is repeated. So it is kept while its workflow may still run so late
//! a fire, at least 15 days (dead-letter queues keep messages for 14), and until the watchdog has processed its time.
//! Of the rows without a partition by day, the newest occurrence of a workflow is kept forever. A turn reads each of
//! these rows once.
//!
//! A turn has rounds with one batch of each kind of rows, so the backlog of one kind delays no other. If a statement fails,
//! the turn goes on with the other kinds, and fails at its end.

mod deleted_rows;
mod old_rows;
mod partitions;
mod zone_rows;

use std::time::{Duration, Instant};

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
/// For so long a turn begins further rounds; the next turn follows at once.
const ROUNDS: Duration = Duration::from_secs(60);
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

/// The rows that a turn removes in rounds. A table that keeps rows by their age is here, has partitions by day or month, or
/// has a job of its own, as the events.
const SUBJECTS: [Subject; 14] = [
    Subject::Outbox,
    Subject::Runs,
    Subject::Occurrences,
    Subject::DeletedWorkflows,
    Subject::Disagreements,
    Subject::IdempotencyKeys,
    Subject::Sessions,
    Subject::Attempts,
    Subject::BulkOperations,
    Subject::Notifications,
    Subject::Messages,
    Subject::Streaks,
    Subject::Verifications,
    Subject::Freezes,
];
/// The rows that refer to others: they are removed after these.
const LAST_SUBJECTS: [Subject; 2] = [Subject::Backfills, Subject::ZoneData];

/// Rows of one kind. A statement removes at least [`BATCH`] of them, if there are as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Outbox,
    Runs,
    Occurrences,
    DeletedWorkflows,
    Disagreements,
    IdempotencyKeys,
    Sessions,
    Attempts,
    BulkOperations,
    Notifications,
    Messages,
    Streaks,
    Verifications,
    Freezes,
    Backfills,
    ZoneData,
}

impl Subject {
    /// Its name in the log and in the error of the turn.
    fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox rows",
            Self::Runs => "runs",
            Self::Occurrences => "occurrences",
            Self::DeletedWorkflows => "rows of deleted workflows",
            Self::Disagreements => "disagreements",
            Self::IdempotencyKeys => "idempotency keys",
            Self::Sessions => "sessions",
            Self::Attempts => "attempts",
            Self::BulkOperations => "bulk operations",
            Self::Notifications => "notifications",
            Self::Messages => "messages",
            Self::Streaks => "failure streaks",
            Self::Verifications => "verifications",
            Self::Freezes => "freezes",
            Self::Backfills => "backfills",
            Self::ZoneData => "zone data",
        }
    }
}

/// The result of one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Rows of the other tables, and the tombstones of deleted workflows.
    pub others: u64,
    /// Workflows whose rows cannot be removed.
    pub failed: u64,
    /// The kinds of rows of which a statement failed.
    pub not_removed: Vec<&'static str>,
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

/// A turn that goes on.
struct Turn {
    ages: Ages,
    /// The occurrences that it has read.
    window: Window,
    /// The last of the deleted workflows that are done.
    deleted_through: i64,
    /// Workflows whose rows cannot be removed.
    failed: Vec<i64>,
    pass: Pass,
}

/// Removes rows that are older than the settings keep them.
///
/// A workflow whose rows cannot be removed is logged, counted and skipped for the rest of the turn. A kind of rows of which a
/// statement fails is logged, named in the result and skipped, too.
///
/// # Errors
/// Fails if the connection to the database does; earlier batches remain removed.
pub async fn remove_old_rows(pool: &PgPool, settings: Settings, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut connection = pool.acquire().await?;
    let mut turn = Turn::begin(ages(settings, now));
    turn.renew_partitions(&mut connection).await?;
    turn.remove_in_rounds(&mut connection, &SUBJECTS).await?;
    turn.remove_in_rounds(&mut connection, &LAST_SUBJECTS).await?;
    if !turn.pass.may_be_more {
        turn.remove_publications(&mut connection).await?;
        turn.remove_versions(&mut connection).await?;
    }
    Ok(Pass { failed: turn.failed.len() as u64, ..turn.pass })
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

impl Turn {
    fn begin(ages: Ages) -> Self {
        Self { ages, window: Window::before_all(), deleted_through: 0, failed: Vec::new(), pass: Pass::default() }
    }

    /// Makes the partitions of the next days, and drops the old ones.
    async fn renew_partitions(&mut self, db: &mut PgConnection) -> sqlx::Result<()> {
        let made = partitions::make_next_days(db, self.ages.now).await;
        self.pass.keep_failure("partitions of the next days", made)?;
        // Before anything is removed, because a time below a mark is unknown and never missing.
        prune_marks::raise_marks(db, self.ages.runs, self.ages.occurrences).await?;
        let dropped = partitions::drop_old_days(db, &self.ages).await;
        if let Some(dropped) = self.pass.keep_failure("old partitions", dropped)? {
            self.pass.partitions = dropped.partitions;
            self.pass.may_be_more = dropped.may_be_more;
        }
        self.pass.is_locked = partitions::is_one_locked(db).await?;
        Ok(())
    }

    /// Removes a batch of each kind, then the next batch of those that may have more, and so on.
    async fn remove_in_rounds(&mut self, db: &mut PgConnection, subjects: &[Subject]) -> sqlx::Result<()> {
        let began = Instant::now();
        let mut open = subjects.to_vec();
        for _ in 0..BATCHES {
            let mut full = Vec::new();
            for subject in open {
                let batch = self.remove_batch(db, subject).await;
                let Some(batch) = self.pass.keep_failure(subject.name(), batch)? else { continue };
                self.pass.add(subject, batch.removed);
                full.extend(batch.may_be_more.then_some(subject));
            }
            open = full;
            if open.is_empty() || began.elapsed() >= ROUNDS {
                break;
            }
        }
        self.pass.may_be_more |= !open.is_empty();
        Ok(())
    }

    async fn remove_batch(&mut self, db: &mut PgConnection, subject: Subject) -> sqlx::Result<Batch> {
        let Ages { runs, occurrences, now, .. } = self.ages;
        let removed = match subject {
            Subject::Outbox => return self.remove_kind(db, Kind::Outbox).await,
            Subject::Runs => return self.remove_kind(db, Kind::Runs).await,
            Subject::Occurrences => return self.remove_occurrences(db).await,
            Subject::DeletedWorkflows => return self.remove_of_deleted(db).await,
            Subject::Disagreements => zone_rows::remove_disagreements(db, runs).await?,
            Subject::IdempotencyKeys => repeats::remove_old(db, now).await?,
            Subject::Sessions => sessions::remove_ended(db, now - TimeDelta::days(1), BATCH).await?,
            Subject::Attempts => remove_old_attempts(db, runs).await?,
            Subject::BulkOperations => return remove_bulk_operations(db, runs).await,
            Subject::Notifications => notifications::old_rows::remove_notifications(db, runs).await?,
            Subject::Messages => notifications::old_rows::remove_messages(db, runs).await?,
            Subject::Streaks => notifications::old_rows::remove_streaks(db, runs).await?,
            Subject::Verifications => daily::remove_old_days(db, runs).await?,
            Subject::Freezes => freezes::remove_old(db, occurrences.min(runs)).await?,
            Subject::Backfills => deleted_rows::remove_backfills(db, runs).await?,
            Subject::ZoneData => {
                zone_rows::remove_changes(db, occurrences).await?;
                zone_rows::remove_data(db).await?;
                0
            }
        };
        Ok(Batch::of_statement(removed))
    }

    /// Removes the old occurrences of the next windows, until one had some: where all rows must stay, nothing is removed.
    async fn remove_occurrences(&mut self, db: &mut PgConnection) -> sqlx::Result<Batch> {
        while old_rows::advance_window(db, &self.ages, &mut self.window).await? {
            let batch = self.remove_kind(db, Kind::Occurrences(self.window)).await?;
            if batch.removed > 0 {
                return Ok(Batch { may_be_more: true, ..batch });
            }
        }
        Ok(Batch { removed: 0, may_be_more: false })
    }

    /// Removes rows of the next deleted workflows; counts the tombstones of those that have none.
    async fn remove_of_deleted(&mut self, db: &mut PgConnection) -> sqlx::Result<Batch> {
        let deleted = deleted_rows::remove_of_deleted(db, &mut self.deleted_through).await?;
        self.pass.runs += deleted.runs;
        self.pass.occurrences += deleted.occurrences;
        Ok(Batch { removed: deleted.tombstones, may_be_more: deleted.may_be_more })
    }

    /// Removes a batch, except the rows of workflows that have failed.
    async fn remove_kind(&mut self, db: &mut PgConnection, kind: Kind) -> sqlx::Result<Batch> {
        match old_rows::remove_rows(db, kind, &self.ages, Scope::Except(&self.failed)).await {
            Ok(removed) => Ok(Batch::of_statement(removed)),
            // One workflow makes the statement for all fail, so give each its own statement.
            Err(error) if job_failures::concerns_one_workflow(&error) => self.remove_singly(db, kind).await,
            Err(error) => Err(error),
        }
    }

    /// Removes a batch workflow by workflow; failures are logged and kept.
    async fn remove_singly(&mut self, db: &mut PgConnection, kind: Kind) -> sqlx::Result<Batch> {
        let mut removed = 0;
        for workflow in old_rows::workflows_of_batch(db, kind, &self.ages, &self.failed).await? {
            match old_rows::remove_rows(db, kind, &self.ages, Scope::Only(workflow)).await {
                Ok(rows) => removed += rows,
                Err(error) => {
                    job_failures::skip_failed(JOB, workflow, error)?;
                    self.failed.push(workflow);
                }
            }
        }
        Ok(Batch { removed, may_be_more: true })
    }

    /// Removes the publications of workflows that were deleted long ago, some workflows at a time.
    async fn remove_publications(&mut self, db: &mut PgConnection) -> sqlx::Result<()> {
        let (before, mut after) = (self.ages.occurrences, 0);
        while let Some(through) = deleted_rows::find_publications_end(db, after).await? {
            let removed = deleted_rows::remove_publications(db, after, through, before).await;
            self.pass.publications += self.pass.keep_failure("publications", removed)?.unwrap_or_default();
            after = through;
        }
        Ok(())
    }

    /// Removes the schedule versions that no kept time needs, some workflows at a time, and of these some versions at a time.
    async fn remove_versions(&mut self, db: &mut PgConnection) -> sqlx::Result<()> {
        let (before, mut after, mut full) = (self.ages.occurrences, 0, 0);
        while let Some(through) = deleted_rows::find_batch_end(db, after).await? {
            let removed = deleted_rows::remove_versions(db, after, through, before).await;
            let removed = self.pass.keep_failure("schedule versions", removed)?.unwrap_or_default();
            self.pass.versions += removed;
            if removed < deleted_rows::VERSIONS.unsigned_abs() {
                after = through;
                continue;
            }
            full += 1;
            if full == BATCHES {
                self.pass.may_be_more = true;
                break;
            }
        }
        Ok(())
    }
}

/// Removes items of old bulk operations, and those that have none.
async fn remove_bulk_operations(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<Batch> {
    let items = Batch::of_statement(bulk::remove_old_items(db, before).await?);
    if items.may_be_more {
        return Ok(items);
    }
    let operations = Batch::of_statement(bulk::remove_old_operations(db, before).await?);
    Ok(Batch { removed: items.removed + operations.removed, ..operations })
}

impl Batch {
    /// The result of one statement, which removes at least [`BATCH`] rows if there are as many.
    fn of_statement(removed: u64) -> Self {
        Self { removed, may_be_more: removed >= BATCH.unsigned_abs() }
    }
}

impl Pass {
    fn add(&mut self, subject: Subject, removed: u64) {
        let count = match subject {
            Subject::Outbox => &mut self.outbox,
            Subject::Runs => &mut self.runs,
            Subject::Occurrences => &mut self.occurrences,
            Subject::Disagreements => &mut self.disagreements,
            Subject::Backfills => &mut self.backfills,
            _ => &mut self.others,
        };
        *count += removed;
    }

    /// Logs a failed statement, and keeps the kind of its rows; `None`: it failed. The turn goes on with other kinds.
    ///
    /// # Errors
    /// Returns the same error if the server did not send it, because no later statement would succeed.
    fn keep_failure<T>(&mut self, rows: &'static str, result: sqlx::Result<T>) -> sqlx::Result<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error @ sqlx::Error::Database(_)) => {
                tracing::error!(job = JOB, rows, %error, "old rows not removed: {rows}: {error}");
                if !self.not_removed.contains(&rows) {
                    self.not_removed.push(rows);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
            + self.others
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
        let others = match self.others {
            0 => String::new(),
            others => format!(", {others} others"),
        };
        format!(
            "old rows removed: {outbox} outbox rows, {runs} runs, {occurrences} occurrences, {disagreements} \
             disagreements, {versions} schedule versions, {backfills} backfills, {publications} publications{others}{days}"
        )
    }
}
