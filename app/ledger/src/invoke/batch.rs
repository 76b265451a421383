//! Step 7 of 7: decides fires that arrive at the same moment in one batch, and answers them after one commit.
//!
//! On the hour thousands of fires arrive at once, and one commit for each would be most of the cost. While one batch
//! commits, the next one fills, so no fire waits for a batch to fill. A batch decides only the fast path: a fire on
//! time, due by its version, of an active workflow, whether it starts, waits or is skipped. Every other fire gets its own
//! transaction, and so does a fire whose workflow another transaction has locked: few at a time, and few of each team.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use db::failpoint::pass_point;
use db::{KeptConnection, PgPool};
use moka::future::Cache;
use schedule::{Fire, WorkflowId};
use tokio::sync::oneshot;
use uuid::Uuid;
use workflows::failpoint::Point;

use super::on_time::Decided;
use super::slow_path::{self, SlowPath};
use super::{Answer, cases, on_time};
use crate::runs::OfferedSlots;

/// How many fires one batch has at most.
const SIZE: usize = 128;
/// How many batches one instance decides at once; meanwhile the next one fills.
const AT_ONCE: usize = 2;
/// How often a fire is tried whose transaction Postgres rolled back because of another one.
const TRIES: u32 = 5;

/// The runs of the times that this instance decided.
pub(super) type Runs = Cache<(WorkflowId, DateTime<Utc>), Uuid>;

/// The fires that wait to be decided in a batch; clones share them.
#[derive(Clone)]
pub(super) struct FireBatches {
    ledger: Ledger,
    gathering: Arc<Mutex<Gathering>>,
}

/// What is needed to decide fires.
#[derive(Clone)]
struct Ledger {
    pool: PgPool,
    kept: TimeDelta,
    /// The cache, which removes a run that a newer fire replaced.
    runs: Runs,
    slow_path: SlowPath,
    /// The slots of this instance, in which runs start at once.
    slots: OfferedSlots,
}

#[derive(Default)]
struct Gathering {
    waiting: Vec<Waiting>,
    workers: usize,
}

/// A fire, and the channel for its answer.
struct Waiting {
    fire: Fire,
    asker: oneshot::Sender<Outcome>,
}

type Outcome = Result<Answer, Arc<sqlx::Error>>;

impl FireBatches {
    pub(super) fn new(pool: PgPool, kept: TimeDelta, runs: Runs, slots: OfferedSlots) -> Self {
        let connections = usize::try_from(pool.raw_pool().options().get_max_connections()).unwrap_or(usize::MAX);
        // Batches, and the keys of the callers of fires, have connections besides.
        let slow_path = SlowPath::new(connections.saturating_sub(AT_ONCE + 1));
        Self { ledger: Ledger { pool, kept, runs, slow_path, slots }, gathering: Arc::default() }
    }

    /// Decides a fire in a batch with concurrent ones; answers after the commit.
    pub(super) async fn decide_in_batch(&self, fire: &Fire) -> Outcome {
        let (asker, answer) = oneshot::channel();
        if self.join(Waiting { fire: fire.clone(), asker }) == Joined::NeedsAWorker {
            tokio::spawn(self.clone().decide_batches());
        }
        answer.await.unwrap_or_else(|_| Err(Arc::new(sqlx::Error::WorkerCrashed)))
    }

    fn join(&self, waiting: Waiting) -> Joined {
        let mut gathering = self.gathering();
        gathering.waiting.push(waiting);
        if gathering.workers == AT_ONCE {
            return Joined::WillBeMet;
        }
        gathering.workers += 1;
        Joined::NeedsAWorker
    }

    /// Decides batches until no fire waits.
    async fn decide_batches(self) {
        // Let the tasks that are ready at this moment join first.
        tokio::task::yield_now().await;
        let kept = || KeptConnection::of(self.ledger.pool.clone());
        let mut db = kept();
        while let Some(batch) = self.next() {
            // In its own task, so that a panic does not prevent the next batch.
            let deciding = tokio::spawn(decide_together(self.ledger.clone(), db, batch));
            db = deciding.await.unwrap_or_else(|lost| {
                tracing::error!(%lost, "batch of fires lost; each fire is answered with an error");
                kept()
            });
        }
    }

    /// Returns the next batch. Its fires are of different workflows, because a fire must see the run that the previous
    /// one started.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut gathering = self.gathering();
        let (mut batch, mut rest, mut met) = (Vec::new(), Vec::new(), HashSet::new());
        for waiting in gathering.waiting.drain(..) {
            let is_next = batch.len() < SIZE && met.insert(waiting.fire.workflow_id);
            if is_next { &mut batch } else { &mut rest }.push(waiting);
        }
        gathering.waiting = rest;
        if batch.is_empty() {
            gathering.workers -= 1;
            return None;
        }
        Some(batch)
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides the fires of the fast path in one transaction, and the others in their own; returns the worker's connection.
async fn decide_together(ledger: Ledger, mut db: KeptConnection, batch: Vec<Waiting>) -> KeptConnection {
    let decided = match on_time::decide_fires(&mut db, &ledger.slots, batch.iter().map(|one| &one.fire)).await {
        Ok(decided) => decided,
        // One fire is refused, or two batches block each other: decide each fire separately.
        Err(sqlx::Error::Database(error)) => {
            tracing::warn!(%error, fires = batch.len(), "batch of fires failed; each fire is decided on its own");
            Decided::default()
        }
        Err(error) => {
            answer_all(batch, error);
            return db;
        }
    };
    let Decided { mut answers, replaced, started } = decided;
    if answers.values().any(|answer| answer.new_run().is_some()) {
        pass_point(Point::I2);
    }
    for replaced in replaced {
        ledger.runs.invalidate(&replaced).await;
    }
    let mut remaining = Vec::new();
    for Waiting { fire, asker } in batch {
        match answers.remove(&fire.workflow_id.0) {
            // A caller that has disconnected needs no answer.
            Some(answer) => drop(asker.send(Ok(answer))),
            None => remaining.push(Waiting { fire, asker }),
        }
    }
    if let Some(started) = started {
        ledger.slots.pass_started(started);
    }
    if !remaining.is_empty() {
        decide_remaining(ledger, &mut db, remaining).await;
    }
    db
}

/// Decides each of these fires in its own transaction. One that gets no place in time is answered like one that gets no
/// connection.
async fn decide_remaining(ledger: Ledger, db: &mut KeptConnection, remaining: Vec<Waiting>) {
    let ids: Vec<_> = remaining.iter().map(|one| one.fire.workflow_id.0).collect();
    let teams = async { slow_path::read_teams(db.acquire().await?, &ids).await };
    let teams = match teams.await {
        Ok(teams) => teams,
        Err(error) => return answer_all(remaining, error),
    };
    for waiting in remaining {
        // Those of deleted workflows share one limit.
        let team_id = teams.get(&waiting.fire.workflow_id.0).copied().unwrap_or_default();
        let ledger = ledger.clone();
        drop(tokio::spawn(async move {
            let patience = ledger.pool.raw_pool().options().get_acquire_timeout();
            match tokio::time::timeout(patience, ledger.slow_path.admit_fire(team_id)).await {
                Ok(admitted) => {
                    decide_singly(ledger, waiting).await;
                    drop(admitted);
                }
                Err(_) => answer_all(vec![waiting], sqlx::Error::PoolTimedOut),
            }
        }));
    }
}

/// Which task decides a fire that has joined.
#[derive(PartialEq, Eq)]
enum Joined {
    /// The caller must start a worker.
    NeedsAWorker,
    /// A running worker takes it with the next batch.
    WillBeMet,
}

fn answer_all(batch: Vec<Waiting>, error: sqlx::Error) {
    let error = Arc::new(error);
    for waiting in batch {
        waiting.asker.send(Err(error.clone())).ok();
    }
}

/// Decides one fire through all its cases; repeats it if Postgres rolled it back because of another transaction.
async fn decide_singly(ledger: Ledger, Waiting { fire, asker }: Waiting) {
    let mut tries = 1;
    let decided = loop {
        match in_its_own_transaction(&ledger, &fire).await {
            Err(error) if tries < TRIES && was_taken_back(&error) => tries += 1,
            decided => break decided.map_err(Arc::new),
        }
    };
    asker.send(decided).ok();
}

async fn in_its_own_transaction(ledger: &Ledger, fire: &Fire) -> sqlx::Result<Answer> {
    let mut tx = db::begin_transaction(&ledger.pool).await?;
    let cases::Outcome { answer, replaced } = cases::decide_under_lock(&mut tx, fire, ledger.kept).await?;
    let is_accepted = answer.new_run().is_some();
    if is_accepted {
        pass_point(Point::I1);
    }
    tx.commit().await?;
    if is_accepted {
        pass_point(Point::I2);
    }
    for time in replaced {
        ledger.runs.invalidate(&(fire.workflow_id, time)).await;
    }
    Ok(answer)
}

/// Whether Postgres rolled this transaction back because of another one: a deadlock, or a serialization failure.
fn was_taken_back(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("40P01" | "40001"))
}
