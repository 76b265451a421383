//! Step 7 of 7: writes the outcomes of runs that end at the same moment in one statement.
//!
//! While one statement commits, further ends gather for the next, so no end waits for others. A run that the statement
//! leaves out is ended by the statement for one run (`claim.rs`): its row is locked, its attempt has lost it, or the
//! statement or its reply failed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use db::{KeptConnection, PgConnection, PgPool};
use ledger::admission::queue;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::claim::{Claimed, Fence, Finished};

/// How many runs one statement ends at most.
const SIZE: usize = 128;

/// The ends that wait for their statement; clones share them.
#[derive(Clone)]
pub(super) struct EndBatches {
    pool: PgPool,
    instance: Uuid,
    gathering: Arc<Mutex<Gathering>>,
}

#[derive(Default)]
struct Gathering {
    waiting: Vec<Waiting>,
    has_writer: bool,
}

/// An end, and the channel for its answer.
struct Waiting {
    end: RunEnd,
    asker: oneshot::Sender<Ended>,
}

/// What a batch has done about an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It may be unwritten.
    Unknown,
    /// It is written, and a run of the workflow may wait for the slot.
    Written,
    /// It is written, and afterwards no run of the workflow waited for the slot.
    WithoutQueue,
}

/// The outcome of one attempt.
struct RunEnd {
    run: Fence,
    workflow_id: i64,
    state: &'static str,
    /// JSON.
    result: Option<String>,
    error: Option<String>,
    failed_tries: i32,
    finished_on: DateTime<Utc>,
}

impl EndBatches {
    /// Creates batches for the runs of an instance.
    pub(super) fn new(pool: PgPool, instance: Uuid) -> Self {
        Self { pool, instance, gathering: Arc::default() }
    }

    /// Writes the outcome of a run together with concurrent ones.
    pub(super) async fn end_run(&self, run: &Claimed, finished: &Finished<'_>, now: DateTime<Utc>) -> Ended {
        let end = RunEnd {
            run: run.fence(),
            workflow_id: run.workflow_id,
            state: finished.state.as_str(),
            result: finished.result.map(ToString::to_string),
            error: finished.error.map(str::to_owned),
            failed_tries: finished.failed_tries,
            finished_on: now,
        };
        let (asker, answer) = oneshot::channel();
        if self.join(Waiting { end, asker }) == Joined::NeedsAWriter {
            tokio::spawn(self.clone().write_batches());
        }
        answer.await.unwrap_or(Ended::Unknown)
    }

    fn join(&self, waiting: Waiting) -> Joined {
        let mut gathering = self.gathering();
        gathering.waiting.push(waiting);
        if std::mem::replace(&mut gathering.has_writer, true) { Joined::WillBeWritten } else { Joined::NeedsAWriter }
    }

    /// Writes batches until no end waits.
    async fn write_batches(self) {
        // Let the tasks that are ready at this moment join first.
        tokio::task::yield_now().await;
        let kept = || KeptConnection::of(self.pool.clone());
        let mut db = kept();
        while let Some(batch) = self.next() {
            // In its own task, so that a panic does not prevent the next batch.
            let writing = tokio::spawn(write_batch(db, self.instance, batch));
            db = writing.await.unwrap_or_else(|lost| {
                tracing::error!(%lost, "batch of outcomes lost; each outcome is written on its own");
                kept()
            });
        }
    }

    fn next(&self) -> Option<Vec<Waiting>> {
        let mut gathering = self.gathering();
        let size = gathering.waiting.len().min(SIZE);
        gathering.has_writer = size > 0;
        (size > 0).then(|| gathering.waiting.drain(..size).collect())
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which task writes an end that has joined.
#[derive(PartialEq, Eq)]
enum Joined {
    /// The caller must start a writer.
    NeedsAWriter,
    /// A running writer takes it with the next batch.
    WillBeWritten,
}

/// Writes one batch; returns the writer's connection.
async fn write_batch(mut db: KeptConnection, instance: Uuid, batch: Vec<Waiting>) -> KeptConnection {
    let ended: HashSet<Uuid> = match finish_batch(&mut db, instance, &batch).await {
        Ok(ended) => ended.into_iter().collect(),
        Err(error) => {
            tracing::warn!(%error, runs = batch.len(), "batch of outcomes failed; each outcome is written on its own");
            HashSet::new()
        }
    };
    // After the commit of the ends: a run that is queued later finds the slot by itself.
    let queued = if ended.is_empty() { None } else { find_queued(&mut db, &batch).await.ok() };
    for Waiting { end, asker } in batch {
        let has_no_queue = queued.as_ref().is_some_and(|queued| !queued.contains(&end.workflow_id));
        let outcome = match ended.contains(&end.run.id) {
            true if has_no_queue => Ended::WithoutQueue,
            true => Ended::Written,
            false => Ended::Unknown,
        };
        // An attempt that was stopped meanwhile needs no answer.
        asker.send(outcome).ok();
    }
    db
}

async fn finish_batch(db: &mut KeptConnection, instance: Uuid, batch: &[Waiting]) -> sqlx::Result<Vec<Uuid>> {
    finish_runs(db.acquire().await?, instance, batch).await
}

/// The workflows of a batch of which a run waits for a slot.
async fn find_queued(db: &mut KeptConnection, batch: &[Waiting]) -> sqlx::Result<HashSet<i64>> {
    let workflows: Vec<_> = batch.iter().map(|waiting| waiting.end.workflow_id).collect();
    let queued = queue::list_queued_workflows(db.acquire().await?, &workflows).await?;
    Ok(queued.into_iter().collect())
}

/// Ends the runs that the instance still has in these attempts, and returns their ids.
async fn finish_runs(db: &mut PgConnection, instance: Uuid, batch: &[Waiting]) -> sqlx::Result<Vec<Uuid>> {
    let all = batch.iter().map(|waiting| &waiting.end);
    let ids: Vec<_> = all.clone().map(|end| end.run.id).collect();
    let attempts: Vec<_> = all.clone().map(|end| end.run.attempt).collect();
    let states: Vec<_> = all.clone().map(|end| end.state.to_owned()).collect();
    let results: Vec<_> = all.clone().map(|end| end.result.clone()).collect();
    let errors: Vec<_> = all.clone().map(|end| end.error.clone()).collect();
    let failed_tries: Vec<_> = all.clone().map(|end| end.failed_tries).collect();
    let finished_on: Vec<_> = all.map(|end| end.finished_on).collect();
    sqlx::query_scalar!(
        r#"
        -- finish runs: as finish a run, for the ends of one moment. A row that another transaction has locked is left out,
        -- because the other runs must not wait for it, and two transactions that wait for rows could block each other
        WITH given AS MATERIALIZED (
            SELECT id, attempt, state, result::jsonb AS result, error, failed_tries, finished_on
              FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::int[], $8::timestamptz[])
                AS given (id, attempt, state, result, error, failed_tries, finished_on)
        ), own AS MATERIALIZED (
            SELECT r.id
              FROM given JOIN runs_live r ON r.id = given.id AND r.attempt = given.attempt
             WHERE r.state = 'running' AND r.locked_by = $1
               FOR UPDATE OF r SKIP LOCKED
        ), finished AS (
            DELETE FROM runs_live r
             USING own, given
             WHERE r.id = own.id AND given.id = own.id
               AND r.state = 'running' AND r.locked_by = $1 AND r.attempt = given.attempt
            RETURNING r AS run, given.state, given.result, given.error, given.failed_tries,
                      GREATEST(given.finished_on, r.started_on) AS finished_on
        ), apart AS (
            -- lists and statistics do not read long results
            INSERT INTO run_results (run_id, result)
            SELECT (run).id, result FROM finished WHERE octet_length(result::text) > 1024
        )
        INSERT INTO runs_ended
        SELECT e.*
          FROM finished f
         CROSS JOIN LATERAL ended_run(run, f.state, f.finished_on,
                                      CASE WHEN f.state = 'cancelled' THEN COALESCE((run).cancel_reason, f.error) ELSE f.error END,
                                      result => CASE WHEN octet_length(f.result::text) <= 1024 THEN f.result END,
                                      failed_tries => f.failed_tries,
                                      took_ms => (EXTRACT(EPOCH FROM f.finished_on - (run).started_on) * 1000)::bigint) AS e
        RETURNING id
        "#,
        instance,
        &ids,
        &attempts,
        &states,
        &results as &[Option<String>],
        &errors as &[Option<String>],
        &failed_tries,
        &finished_on,
    )
    .fetch_all(db)
    .await
}
