//! Step 7 of 7: removes what is old, in bounded batches. A job.
//!
//! An occurrence is the guard against a fire that comes again. So it stays as long as its workflow
//! might still run so late a fire, never less than 15 days (dead letters are kept for 14), and while
//! the watchdog has not gone past it; and the newest of a workflow stays for ever.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use crate::App;
use crate::jobs::Did;

/// Rows in one statement: short enough to stand in nobody's way.
const BATCH: i64 = 1_000;
/// Statements in one turn, of each kind.
const BATCHES: u32 = 20;
/// Dead-letter queues keep a fire for 14 days.
const OCCURRENCES_AT_LEAST: TimeDelta = TimeDelta::days(15);

/// What one turn removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pruned {
    outbox: u64,
    runs: u64,
    occurrences: u64,
    may_be_more: bool,
}

/// Removes what is older than the configuration keeps.
///
/// # Errors
/// The database's; the batches before stay removed.
pub async fn prune(app: &App) -> anyhow::Result<Did> {
    let (config, now) = (&app.config, app.clock.now());
    let kept_since = |days: u32| now - TimeDelta::days(days.into());
    let (processed, failed) = (kept_since(config.outbox_keep_days), kept_since(config.outbox_keep_failed_days));
    let retained = kept_since(config.retention_days);
    let mut pruned = Pruned::default();
    let mut connection = app.pool.acquire().await?;
    for _ in 0..BATCHES {
        let outbox = outbox(&mut connection, processed, failed).await?;
        let runs = runs(&mut connection, retained).await?;
        let occurrences = occurrences(&mut connection, retained.min(now - OCCURRENCES_AT_LEAST), now).await?;
        pruned.add(outbox, runs, occurrences);
        if !pruned.may_be_more {
            break;
        }
    }
    Ok(pruned.said())
}

impl Pruned {
    fn add(&mut self, outbox: u64, runs: u64, occurrences: u64) {
        self.outbox += outbox;
        self.runs += runs;
        self.occurrences += occurrences;
        self.may_be_more = [outbox, runs, occurrences].iter().any(|removed| *removed >= BATCH.unsigned_abs());
    }

    fn said(self) -> Did {
        let Pruned { outbox, runs, occurrences, may_be_more } = self;
        let words = format!("{outbox} outbox rows, {runs} runs and {occurrences} occurrences were old and are removed");
        match (outbox + runs + occurrences, may_be_more) {
            (0, _) => Did::Nothing,
            (_, false) => Did::All(words),
            (_, true) => Did::Some(words),
        }
    }
}

async fn outbox(db: &mut PgConnection, processed: DateTime<Utc>, failed: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- prune the outbox: by created_on too, because it is indexed and comes first
        WITH old AS MATERIALIZED (
            SELECT id FROM outbox_events
             WHERE created_on < GREATEST($1::timestamptz, $2::timestamptz)
               AND (processed_on < $1 AND failed_on IS NULL OR failed_on < $2)
             ORDER BY created_on
             LIMIT $3
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM outbox_events o USING old WHERE o.id = old.id
        "#,
        processed,
        failed,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn runs(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- prune runs that have ended
        WITH old AS MATERIALIZED (
            SELECT id FROM runs
             WHERE finished_on < $1
             ORDER BY finished_on
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM runs r USING old WHERE r.id = old.id
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn occurrences(db: &mut PgConnection, before: DateTime<Utc>, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- prune occurrences: not one that a late fire could ask for, that the watchdog has yet to pass, or a newest
        WITH old AS MATERIALIZED (
            SELECT o.id FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
             WHERE o.decided_on < $1 AND o.scheduled_time < $1
               AND o.scheduled_time < $2::timestamptz - make_interval(secs => w.catch_up_window_secs) - INTERVAL '1 day'
               AND o.scheduled_time <= w.ledger_cursor
               AND EXISTS (SELECT FROM occurrences newer
                            WHERE newer.workflow_id = o.workflow_id AND newer.scheduled_time > o.scheduled_time)
             ORDER BY o.decided_on
             LIMIT $3
               FOR UPDATE OF o SKIP LOCKED
        )
        DELETE FROM occurrences o USING old WHERE o.id = old.id
        "#,
        before,
        now,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
