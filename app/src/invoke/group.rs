//! Step 7 of 7: fires that come at the same moment are decided together, and answered after one commit.
//!
//! On the hour thousands come at once, and a commit of its own for each would be most of the work.
//! While one group is being committed the next one gathers, so nobody waits for company. A group
//! decides the plain case alone: a fire on time, owed by its version, of an active workflow none of
//! whose runs goes on. Any other goes through its cases by itself, and so does one whose workflow
//! somebody holds.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use moka::future::Cache;
use schedule::{Fire, WorkflowId};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Answer, decide, plain};
use crate::inject::{self, Point};

/// Fires in one group at most.
const SIZE: usize = 128;
/// Groups of one instance that are decided at once; while they are, the next one gathers.
const AT_ONCE: usize = 2;
/// Tries of a fire that Postgres took back because of another transaction.
const TRIES: u32 = 5;

/// The runs of the times that were decided here.
pub(super) type Runs = Cache<(WorkflowId, DateTime<Utc>), Uuid>;

/// The fires that wait to be decided together; its clones are the same.
#[derive(Clone)]
pub(super) struct Group {
    ledger: Ledger,
    gathering: Arc<Mutex<Gathering>>,
}

/// What fires are decided by.
#[derive(Clone)]
struct Ledger {
    pool: PgPool,
    kept: TimeDelta,
    /// The cache, which forgets a run that a newer fire replaced.
    runs: Runs,
}

#[derive(Default)]
struct Gathering {
    waiting: Vec<Waiting>,
    at_work: usize,
}

/// A fire, and who waits for the answer.
struct Waiting {
    fire: Fire,
    asker: oneshot::Sender<Decided>,
}

type Decided = Result<Answer, Arc<sqlx::Error>>;

impl Group {
    pub(super) fn new(pool: PgPool, kept: TimeDelta, runs: Runs) -> Self {
        Self { ledger: Ledger { pool, kept, runs }, gathering: Arc::default() }
    }

    /// Decides a fire, with those that come at the same moment; answers after the commit.
    pub(super) async fn decide(&self, fire: &Fire) -> Decided {
        let (asker, answer) = oneshot::channel();
        if self.join(Waiting { fire: fire.clone(), asker }) == Joined::NeedsAWorker {
            tokio::spawn(self.clone().work());
        }
        answer.await.unwrap_or_else(|_| Err(Arc::new(sqlx::Error::WorkerCrashed)))
    }

    fn join(&self, waiting: Waiting) -> Joined {
        let mut gathering = self.gathering();
        gathering.waiting.push(waiting);
        if gathering.at_work == AT_ONCE {
            return Joined::WillBeMet;
        }
        gathering.at_work += 1;
        Joined::NeedsAWorker
    }

    /// Decides group after group until nobody waits.
    async fn work(self) {
        // Whoever is ready at this moment joins first.
        tokio::task::yield_now().await;
        while let Some(group) = self.next() {
            // In a task of its own: whatever happens in there, the next group is still taken.
            let deciding = tokio::spawn(decide_together(self.ledger.clone(), group));
            if let Err(lost) = deciding.await {
                tracing::error!(%lost, "a group of fires was lost; each of them is answered with an error");
            }
        }
    }

    /// The next group, of different workflows: what a fire starts, the next of its workflow must see.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut gathering = self.gathering();
        let (mut group, mut rest, mut met) = (Vec::new(), Vec::new(), HashSet::new());
        for waiting in gathering.waiting.drain(..) {
            let is_next = group.len() < SIZE && met.insert(waiting.fire.workflow_id);
            if is_next { &mut group } else { &mut rest }.push(waiting);
        }
        gathering.waiting = rest;
        if group.is_empty() {
            gathering.at_work -= 1;
            return None;
        }
        Some(group)
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides what is plain in one transaction, and leaves each of the others to its own.
async fn decide_together(ledger: Ledger, group: Vec<Waiting>) {
    let mut accepted = match plain::decide(&ledger.pool, group.iter().map(|one| &one.fire)).await {
        Ok(accepted) => accepted,
        // One of them, or two groups in each other's way: each tries by itself.
        Err(sqlx::Error::Database(error)) => {
            tracing::warn!(%error, fires = group.len(), "fires could not be decided together; each is by itself");
            HashMap::new()
        }
        Err(error) => return tell_all(group, error),
    };
    if !accepted.is_empty() {
        inject::at(Point::I2);
    }
    for Waiting { fire, asker } in group {
        match accepted.remove(&fire.workflow_id.0) {
            // Who has hung up needs no answer.
            Some(run) => drop(asker.send(Ok(Answer::Accepted(run)))),
            None => drop(tokio::spawn(alone(ledger.clone(), Waiting { fire, asker }))),
        }
    }
}

/// Who decides a fire that has joined.
#[derive(PartialEq, Eq)]
enum Joined {
    /// Nobody yet.
    NeedsAWorker,
    /// Whoever is at work takes it with the next group.
    WillBeMet,
}

fn tell_all(group: Vec<Waiting>, error: sqlx::Error) {
    let error = Arc::new(error);
    for waiting in group {
        waiting.asker.send(Err(error.clone())).ok();
    }
}

/// Decides one fire through all its cases, again if another transaction was in its way.
async fn alone(ledger: Ledger, Waiting { fire, asker }: Waiting) {
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
    let mut tx = db::begin(&ledger.pool).await?;
    let decide::Outcome { answer, replaced } = decide::decide(&mut tx, fire, ledger.kept).await?;
    let is_accepted = matches!(answer, Answer::Accepted(_));
    if is_accepted {
        inject::at(Point::I1);
    }
    tx.commit().await?;
    if is_accepted {
        inject::at(Point::I2);
    }
    for time in replaced {
        ledger.runs.invalidate(&(fire.workflow_id, time)).await;
    }
    Ok(answer)
}

/// Whether Postgres gave this transaction up for another: a deadlock, or a serialization failure.
fn was_taken_back(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("40P01" | "40001"))
}
