//! Step 7 of 7: the loop of an executor: it claims runs and starts their attempts until the process shuts down.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use db::failpoint::pass_point;
use ledger::runs::{Claimable, OfferedSlots};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use workflows::failpoint::Point;

use super::activity::ClaimOutcome;
use super::ends::EndBatches;
use super::executor::DECISION_LIMIT;
use super::started::{ReadyAttempt, receive_started_runs};
use super::{Executor, Settings, heartbeat};
use crate::claim::{Claimed, Slots};
use crate::shutdown::Shutdown;

/// How long interrupted attempts may take to hand over their runs.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(3);

/// How many runs one claim takes at most.
const CLAIMED_AT_ONCE: usize = 64;

/// When the loop claims again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Now.
    Claim,
    /// At the end of an attempt, because runs may wait for its slot.
    ClaimAfterEnd,
    /// At the end of a claimed run, a notification or the poll: the last claim has left no run that waits for a slot.
    Wait,
}

impl Next {
    /// What follows the end of an attempt; `had_room` is whether another run could have started before it.
    ///
    /// The end of a claimed run always leads to a claim: its team may have a limit over all instances, and the claim did
    /// not say whether it left runs for that.
    fn after_end(self, had_room: bool, freed: Origin) -> Self {
        if had_room && self == Self::Wait && freed == Origin::Fire { Self::Wait } else { Self::Claim }
    }
}

/// What started the run of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A claim.
    Claim,
    /// The fire that this instance decided.
    Fire,
}

/// The attempts that one loop has started. Each uses a slot of its team until the loop sees the end of its task.
#[derive(Default)]
pub(super) struct RunningAttempts {
    tasks: JoinSet<()>,
    /// What each task uses.
    uses: HashMap<Id, Use>,
    /// The slots and the memory that all teams use, also the slots of fires whose attempts have not begun.
    slots: OfferedSlots,
}

/// What an attempt uses beside its slot.
#[derive(Clone, Copy, Debug)]
struct Use {
    team_id: i64,
    workflow_id: i64,
    origin: Origin,
    /// The memory of its action and inputs.
    bytes: usize,
}

impl Use {
    fn of_run(run: &Claimed, origin: Origin) -> Self {
        let bytes = [&run.action, &run.inputs].map(|document| document.read().map_or(0, count_bytes)).iter().sum();
        Self { team_id: run.team_id, workflow_id: run.workflow_id, origin, bytes }
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
    /// None yet; they use these slots.
    pub(super) fn in_slots(slots: OfferedSlots) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Whether no attempt uses a slot.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Starts an attempt, whose run has a slot and the memory of its team.
    fn start_attempt(&mut self, uses: Use, attempt: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(attempt).id();
        self.uses.insert(task, uses);
    }

    /// Whether a further run may start.
    fn has_room(&self) -> bool {
        self.slots.has_room()
    }

    /// Waits until an attempt ends, and frees its slot; `None` if none runs. If the wait is cancelled, nothing is lost.
    pub(super) async fn wait_for_end(&mut self) -> Option<Origin> {
        let ended = self.tasks.join_next_with_id().await?;
        Some(self.free_slot(&ended))
    }

    /// Frees the slots of all attempts that have ended; returns a claim as their origin, if one of them was claimed.
    fn free_slots(&mut self) -> Option<Origin> {
        let mut freed = None;
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            let origin = self.free_slot(&ended);
            freed = if freed == Some(Origin::Claim) { freed } else { Some(origin) };
        }
        freed
    }

    fn free_slot(&mut self, ended: &Result<(Id, ()), JoinError>) -> Origin {
        let task = match ended {
            Ok((task, ())) => *task,
            Err(error) => error.id(),
        };
        let Some(uses) = self.uses.remove(&task) else { return Origin::Claim };
        self.slots.free_slot(uses.team_id, uses.bytes);
        uses.origin
    }

    /// Returns what a claim may take. Until its end, fires leave so many slots to it.
    fn slots_to_claim(&self, settings: &Settings) -> Slots {
        let mut used_by_workflow = HashMap::<i64, i64>::new();
        for uses in self.uses.values() {
            *used_by_workflow.entry(uses.workflow_id).or_default() += 1;
        }
        let count = |slots: usize| i64::try_from(slots).unwrap_or(i64::MAX);
        let Claimable { free, most, used } = self.slots.begin_claim(CLAIMED_AT_ONCE);
        Slots {
            total: count(settings.capacity.slots),
            free: count(free),
            most: count(most),
            of_a_team: count(settings.capacity.slots_of_a_team),
            running_of_a_team: settings.running_of_a_team,
            used: used.into_iter().map(|(team_id, slots)| (team_id, count(slots))).collect(),
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
    ///
    /// Runs come from claims, and from the fires that this instance decides (`started.rs`).
    pub async fn execute_until(mut self, shutdown: Shutdown) {
        let settings = self.parts.settings;
        self.ends = Some(EndBatches::new(self.parts.pool.clone(), self.parts.instance));
        let beating = tokio::spawn(heartbeat::renew_repeatedly(self.clone()));
        let (sender, mut ready) = mpsc::unbounded_channel();
        let starts = self.parts.offered.receive_starts();
        let receiving = tokio::spawn(receive_started_runs(self.clone(), starts, sender));
        // At once, even if the loop waits for a claim.
        let withdrawing = tokio::spawn(withdraw_at_drain(self.parts.offered.clone(), shutdown.clone()));
        let mut running = RunningAttempts::in_slots(self.parts.offered.clone());
        let (mut next, mut next_poll) = (Next::Claim, Instant::now());
        while !shutdown.is_draining() {
            let had_room = running.has_room();
            if let Some(freed) = running.free_slots() {
                next = next.after_end(had_room, freed);
            }
            if next == Next::Claim {
                let started = self.start_due(&mut running, &shutdown).await;
                next = self.end_claim(&running);
                next_poll = Instant::now() + settings.poll;
                // A full claim may have left more runs; otherwise wait for a slot, a notification or the poll.
                if started > 0 && running.has_room() {
                    next = Next::Claim;
                    continue;
                }
            }
            let has_room = running.has_room();
            tokio::select! {
                () = shutdown.wait_for_drain() => break,
                Some(freed) = running.wait_for_end() => next = next.after_end(has_room, freed),
                Some(attempt) = ready.recv() => self.start_ready(&mut running, attempt),
                () = self.parts.wake.wait_for_notification(), if has_room => next = Next::Claim,
                () = tokio::time::sleep_until(next_poll), if has_room => next = Next::Claim,
            }
        }
        self.drain(running, &mut ready, &shutdown).await;
        withdrawing.abort();
        receiving.abort();
        beating.abort();
    }

    /// Offers the slots that a claim has left to fires.
    pub(super) fn end_claim(&self, running: &RunningAttempts) -> Next {
        // A claim counts the running runs of a team over all instances; a fire counts none.
        let may_offer = self.parts.settings.running_of_a_team == 0 && running.has_room();
        let offer = may_offer.then(|| self.slot_offer());
        if self.parts.offered.end_claim(offer) { Next::ClaimAfterEnd } else { Next::Wait }
    }

    /// Starts the attempt of a run that a fire has started.
    pub(super) fn start_ready(&self, running: &mut RunningAttempts, (run, registered): ReadyAttempt) {
        pass_point(Point::I4);
        let uses = Use::of_run(&run, Origin::Fire);
        self.parts.offered.begin_attempt(uses.team_id, uses.bytes);
        self.parts.activity.count_attempt("fire");
        running.start_attempt(uses, self.clone().execute_attempt(run, registered));
        if !running.has_room() {
            self.parts.offered.close();
        }
    }

    pub(super) async fn start_due(&self, running: &mut RunningAttempts, shutdown: &Shutdown) -> usize {
        let slots = running.slots_to_claim(&self.parts.settings);
        if !running.has_room() || !self.hand_over_unknown().await {
            return 0;
        }
        // A later poll hands over the runs whose rows are locked now, and those of a claim that commits late.
        let are_some_unknown = self.has_unknown_claims.load(Ordering::SeqCst);
        let claimed = self.claim_runs(&slots).await;
        // Set until the attempts below have started: before that, a committed claim may have no attempt.
        self.has_unknown_claims.store(true, Ordering::SeqCst);
        let (requested, claimed) = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                self.parts.activity.count_claim(ClaimOutcome::Failed);
                self.expect_late_commits();
                tracing::warn!(%error, "runs not claimed; the next poll tries again");
                return 0;
            }
        };
        // The leases began when the database executed the claim, not when its reply arrived.
        if shutdown.is_draining() || self.is_too_old(requested) {
            // This drops the attempts, so `hand_over_unknown` returns their runs.
            return 0;
        }
        let started = claimed.len();
        self.parts.activity.count_claim(if started > 0 { ClaimOutcome::Runs } else { ClaimOutcome::Nothing });
        for (run, registered) in claimed {
            pass_point(Point::I4);
            let uses = Use::of_run(&run, Origin::Claim);
            running.slots.use_slot(uses.team_id, uses.bytes);
            self.parts.activity.count_attempt("claim");
            running.start_attempt(uses, self.clone().execute_attempt(run, registered));
        }
        self.has_unknown_claims.store(are_some_unknown, Ordering::SeqCst);
        started
    }

    /// Begins a shutdown: no attempt begins any more, and the runs without one are handed over.
    pub(super) async fn stop_starting(&self, ready: &mut UnboundedReceiver<ReadyAttempt>) {
        self.parts.offered.withdraw();
        self.in_flight.hand_over_unsent();
        // Fires that have slots are decided first: their runs arrive, or become unknown.
        if tokio::time::timeout(DECISION_LIMIT, self.parts.offered.stop_starts()).await.is_err() {
            tracing::warn!(
                "a fire with a slot is still being decided; its run is handed over at the end of the shutdown"
            );
        }
        self.forget_ready_attempts(ready);
        // Runs that the last claim and the last fires took while the shutdown began have no attempt, so they need not wait
        // for the others to drain.
        self.hand_over_unknown().await;
    }

    async fn drain(
        &self,
        mut running: RunningAttempts,
        ready: &mut UnboundedReceiver<ReadyAttempt>,
        shutdown: &Shutdown,
    ) {
        let limit = tokio::time::sleep(self.parts.settings.drain);
        self.stop_starting(ready).await;
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
        self.forget_ready_attempts(ready);
        self.hand_over_unknown().await;
    }
}

/// Offers no slot to fires from the begin of the shutdown on.
async fn withdraw_at_drain(offered: OfferedSlots, shutdown: Shutdown) {
    shutdown.wait_for_drain().await;
    offered.withdraw();
}
