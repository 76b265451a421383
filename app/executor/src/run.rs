//! Step 7 of 7: the loop of an executor: it claims runs and starts their attempts until the process shuts down.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use db::failpoint::pass_point;
use serde_json::Value;
use tokio::task::{Id, JoinError, JoinSet};
use workflows::failpoint::Point;

use super::{Executor, Settings, heartbeat};
use crate::claim::{Claimed, Slots};
use crate::shutdown::Shutdown;

/// How long interrupted attempts may take to hand over their runs.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);

/// How many runs one claim takes at most: by so many the bytes of the runs may exceed their limit.
const CLAIMED_AT_ONCE: i64 = 64;

/// The attempts that one loop has started. Each uses a slot of its team until the loop sees the end of its task.
#[derive(Default)]
pub(super) struct RunningAttempts {
    tasks: JoinSet<()>,
    /// What each task uses.
    uses: HashMap<Id, Use>,
}

/// What an attempt uses beside its slot.
#[derive(Clone, Copy, Debug)]
struct Use {
    team_id: i64,
    workflow_id: i64,
    /// The memory of its action and inputs.
    bytes: usize,
}

impl Use {
    fn of_run(run: &Claimed) -> Self {
        let bytes = count_bytes(&run.action) + count_bytes(&run.inputs);
        Self { team_id: run.team_id, workflow_id: run.workflow_id, bytes }
    }
}

/// Returns how much memory a document takes, approximately: much more than its text, if it has many small values.
fn count_bytes(document: &Value) -> usize {
    const NODE: usize = 32;
    NODE + match document {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(count_bytes).sum::<usize>(),
        Value::Object(fields) => fields.iter().map(|(key, value)| NODE + key.len() + count_bytes(value)).sum::<usize>(),
    }
}

impl RunningAttempts {
    /// Whether no attempt uses a slot.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Starts an attempt, which uses a slot of its team.
    fn start_attempt(&mut self, uses: Use, attempt: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(attempt).id();
        self.uses.insert(task, uses);
    }

    /// Whether a further run may start: a slot is free, and the documents of the running ones are within their limit.
    fn has_room(&self, settings: &Settings) -> bool {
        let bytes: usize = self.uses.values().map(|uses| uses.bytes).sum();
        self.len() < settings.slots && bytes < settings.bytes
    }

    /// Waits until an attempt ends, and frees its slot; `None` if none runs. If the wait is cancelled, nothing is lost.
    pub(super) async fn wait_for_end(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        self.free_slot(&ended);
        Some(())
    }

    /// Frees the slots of all attempts that have ended.
    fn free_slots(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.free_slot(&ended);
        }
    }

    fn free_slot(&mut self, ended: &Result<(Id, ()), JoinError>) {
        let task = match ended {
            Ok((task, ())) => *task,
            Err(error) => error.id(),
        };
        self.uses.remove(&task);
    }

    /// Returns what a claim may take.
    fn slots_to_claim(&self, settings: &Settings) -> Slots {
        let (mut used, mut used_by_workflow) = (HashMap::<i64, i64>::new(), HashMap::<i64, i64>::new());
        for uses in self.uses.values() {
            *used.entry(uses.team_id).or_default() += 1;
            *used_by_workflow.entry(uses.workflow_id).or_default() += 1;
        }
        let count = |slots: usize| i64::try_from(slots).unwrap_or(i64::MAX);
        Slots {
            total: count(settings.slots),
            free: count(settings.slots.saturating_sub(self.len())),
            most: CLAIMED_AT_ONCE,
            of_a_team: count(settings.slots_of_a_team),
            running_of_a_team: settings.running_of_a_team,
            used: used.into_iter().collect(),
            used_by_workflow: used_by_workflow.into_iter().collect(),
        }
    }

    /// Waits until all attempts have ended.
    pub(super) async fn wait_for_all(&mut self) {
        while self.wait_for_end().await.is_some() {}
    }
}

impl Executor {
    /// Executes runs until `shutdown`, then waits for the running ones or hands them over.
    pub async fn execute_until(self, shutdown: Shutdown) {
        let settings = self.parts.settings;
        let poll = self.parts.settings.poll;
        let beating = tokio::spawn(heartbeat::renew_repeatedly(self.clone()));
        let mut running = RunningAttempts::default();
        while !shutdown.is_draining() {
            running.free_slots();
            let started = self.start_due(&mut running, &shutdown).await;
            // A full claim may have left more runs; otherwise wait for a slot, a notification or the poll.
            let has_room = running.has_room(&settings);
            if started > 0 && has_room {
                continue;
            }
            tokio::select! {
                () = shutdown.wait_for_drain() => break,
                Some(()) = running.wait_for_end() => {}
                () = self.parts.wake.wait_for_notification(), if has_room => {}
                () = tokio::time::sleep(poll), if has_room => {}
            }
        }
        self.drain(running, &shutdown).await;
        beating.abort();
    }

    pub(super) async fn start_due(&self, running: &mut RunningAttempts, shutdown: &Shutdown) -> usize {
        let slots = running.slots_to_claim(&self.parts.settings);
        if !running.has_room(&self.parts.settings) || !self.hand_over_unknown().await {
            return 0;
        }
        // A later poll hands over the runs whose rows are locked now.
        let are_some_unknown = self.has_unknown_claims.load(Ordering::SeqCst);
        let claimed = self.claim_runs(&slots).await;
        // Set until the attempts below have started: before that, a committed claim may have no attempt.
        self.has_unknown_claims.store(true, Ordering::SeqCst);
        let (requested, claimed) = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "runs not claimed; the next poll tries again");
                return 0;
            }
        };
        // The leases began when the database executed the claim, not when its reply arrived.
        if shutdown.is_draining() || requested.elapsed() > Duration::from_secs(self.parts.settings.lost_after_secs) / 3
        {
            // This drops the attempts, so `hand_over_unknown` returns their runs.
            return 0;
        }
        let started = claimed.len();
        for (run, registered) in claimed {
            pass_point(Point::I4);
            running.start_attempt(Use::of_run(&run), self.clone().execute_attempt(run, registered));
        }
        self.has_unknown_claims.store(are_some_unknown, Ordering::SeqCst);
        started
    }

    async fn drain(&self, mut running: RunningAttempts, shutdown: &Shutdown) {
        let limit = tokio::time::sleep(self.parts.settings.drain);
        self.in_flight.hand_over_unsent();
        // Runs that the last claim took while the shutdown began have no attempt, so they need not wait for the others
        // to drain.
        self.hand_over_unknown().await;
        tokio::select! {
            () = running.wait_for_all() => {}
            () = limit => {}
            () = shutdown.wait_for_hand_over() => {}
        }
        if !running.is_empty() {
            tracing::warn!(runs = running.len(), "runs handed over, because they did not end before the shutdown");
            self.in_flight.hand_over_all();
            if tokio::time::timeout(HAND_OVER_LIMIT, running.wait_for_all()).await.is_err() {
                tracing::warn!(runs = running.len(), "runs not handed over in time; their leases expire");
                running.tasks.shutdown().await;
                // This process no longer knows which requests it sent, so no run may be treated as an unknown claim.
                return;
            }
        }
        self.hand_over_unknown().await;
    }
}
