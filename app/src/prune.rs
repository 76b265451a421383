//! Step 7 of 7: removes old rows, in bounded batches. A job.
//!
//! An occurrence prevents a second run if its fire is repeated. So it is kept while its workflow may still run so late
//! a fire, at least 15 days (dead-letter queues keep messages for 14), and until the watchdog has processed its time.
//! The newest occurrence of a workflow is kept forever.

pub mod marks;
mod old_rows;
mod zone_rows;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;

use crate::App;
use crate::clock;
use crate::config::Config;
use crate::jobs::{self, Did};

use old_rows::{Ages, BATCH, Kind, Scope};

/// Name of the job in the table `jobs`.
const JOB: &str = "prune";
/// How many statements one turn executes for each kind.
const BATCHES: u32 = 20;
/// Dead-letter queues keep a fire for 14 days.
const OCCURRENCES_AT_LEAST: TimeDelta = TimeDelta::days(15);

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pruned {
    outbox: u64,
    runs: u64,
    occurrences: u64,
    disagreements: u64,
    may_be_more: bool,
}

/// The result of one batch.
struct Batch {
    removed: u64,
    may_be_more: bool,
}

/// Removes rows that are older than the configured retention.
///
/// A workflow whose rows cannot be removed is logged, counted and skipped for the rest of the turn.
///
/// # Errors
/// Fails if the database fails; earlier batches remain removed.
pub async fn prune(app: &App) -> anyhow::Result<Did> {
    let ages = ages(&app.config, clock::database_time(app).await?);
    let (mut pruned, mut failed) = (Pruned::default(), Vec::new());
    let mut connection = app.pool.acquire().await?;
    marks::raise(&mut connection, ages.runs, ages.occurrences).await?;
    for _ in 0..BATCHES {
        pruned.may_be_more = false;
        for kind in Kind::ALL {
            let batch = remove_batch(&mut connection, kind, &ages, &mut failed).await?;
            pruned.add(kind, &batch);
        }
        let disagreements = zone_rows::remove_disagreements(&mut connection, ages.runs).await?;
        pruned.add_disagreements(disagreements);
        if !pruned.may_be_more {
            break;
        }
    }
    zone_rows::remove_changes(&mut connection, ages.occurrences).await?;
    zone_rows::remove_data(&mut connection).await?;
    jobs::fail_at_end(JOB, failed.len() as u64, &app.metrics)?;
    Ok(pruned.said())
}

fn ages(config: &Config, now: DateTime<Utc>) -> Ages {
    let kept_since = |days: u32| now - TimeDelta::days(days.into());
    let retained = kept_since(config.retention_days);
    Ages {
        processed: kept_since(config.outbox_keep_days),
        failed: kept_since(config.outbox_keep_failed_days),
        runs: retained,
        occurrences: retained.min(now - OCCURRENCES_AT_LEAST),
        now,
    }
}

/// Removes a batch, except the rows of workflows that have failed.
async fn remove_batch(db: &mut PgConnection, kind: Kind, ages: &Ages, failed: &mut Vec<i64>) -> sqlx::Result<Batch> {
    match old_rows::remove(db, kind, ages, Scope::Except(failed)).await {
        Ok(removed) => Ok(Batch { removed, may_be_more: removed >= BATCH.unsigned_abs() }),
        // One workflow makes the statement for all fail, so give each its own statement.
        Err(error) if jobs::concerns_one_workflow(&error) => remove_singly(db, kind, ages, failed).await,
        Err(error) => Err(error),
    }
}

/// Removes a batch workflow by workflow; failures are logged and added to `failed`.
async fn remove_singly(db: &mut PgConnection, kind: Kind, ages: &Ages, failed: &mut Vec<i64>) -> sqlx::Result<Batch> {
    let mut removed = 0;
    for workflow in old_rows::workflows_of_batch(db, kind, ages, failed).await? {
        match old_rows::remove(db, kind, ages, Scope::Only(workflow)).await {
            Ok(rows) => removed += rows,
            Err(error) => {
                jobs::skip_failed(JOB, workflow, error)?;
                failed.push(workflow);
            }
        }
    }
    Ok(Batch { removed, may_be_more: true })
}

impl Pruned {
    fn add(&mut self, kind: Kind, batch: &Batch) {
        let count = match kind {
            Kind::Outbox => &mut self.outbox,
            Kind::Runs => &mut self.runs,
            Kind::Occurrences => &mut self.occurrences,
        };
        *count += batch.removed;
        self.may_be_more |= batch.may_be_more;
    }

    fn add_disagreements(&mut self, removed: u64) {
        self.disagreements += removed;
        self.may_be_more |= removed >= BATCH.unsigned_abs();
    }

    fn said(self) -> Did {
        let Pruned { outbox, runs, occurrences, disagreements, may_be_more } = self;
        let words = format!(
            "{outbox} outbox rows, {runs} runs, {occurrences} occurrences and {disagreements} disagreements were old and \
             are removed"
        );
        match (outbox + runs + occurrences + disagreements, may_be_more) {
            (0, _) => Did::Nothing,
            (_, false) => Did::All(words),
            (_, true) => Did::Some(words),
        }
    }
}
