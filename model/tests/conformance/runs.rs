//! The model of step 7 against fires, the watchdog, the statements of the executor, recovery and the queue.
//!
//! A lease ends because its row says so, not because the clock passes it: the clock ends the grace of all times.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use executor::claim::{self, Claimed, Finished, Lease, Ownership, Slots};
use executor::hand_over::{Sent, hand_over};
use executor::recovery::{self, recover_lost_runs};
use ledger::admission::queue::advance_workflow;
use ledger::invoke::FireDecider;
use ledger::runs::{Capacity, OfferedSlots, RunState as Real, SlotOffer, StartedRun};
use ledger::watchdog::decide_overdue_times;
use model::execution::state::{
    Action, Decision, Execution, FIRES, Fence, INSTANCES, Lease as ModelLease, Owner, Remedy, RunState, State,
};
use model::walk::{Dice, take_step};
use schedule::{Fire, WorkflowId};
use serde_json::json;
use stateright::Model as _;
use uuid::Uuid;

use crate::ground::{Ground, KEPT};

/// How many walks there are.
const WALKS: u64 = 500;
/// Longer than a walk.
const LEASE_SECS: f64 = 1e6;
/// How often a lost run continues.
const RECOVERIES: u8 = 1;

const SHIPPED: Execution =
    Execution { deliveries: 2, faults: 3, recoveries: RECOVERIES, has_starts: true, without: None };

/// 500 walks of fires, starts, claims, leases and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_follow_their_model() {
    let ground = Ground::new().await;
    let (mut steps, mut late_results) = (0, 0);
    for seed in 0..WALKS {
        let followed = Walk::begin(&ground).await.follow(SHIPPED, seed).await.unwrap();
        steps += followed.steps;
        late_results += usize::from(followed.has_late_result);
    }
    println!("execution: {WALKS} walks with {steps} steps follow the model, {late_results} have a late result");
    assert!(late_results > 10, "{late_results} walks with an attempt that had lost its run prove little");
    assert!(steps > 10 * usize::try_from(WALKS).unwrap(), "{steps} steps in {WALKS} walks prove little");
}

/// A model without the fence expects ends that the code refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_fence_is_refuted() {
    let ground = Ground::new().await;
    let without = Some(Remedy::AttemptFence);
    for seed in 0..WALKS {
        if Walk::begin(&ground).await.follow(Execution { without, ..SHIPPED }, seed).await.is_err() {
            return;
        }
    }
    panic!("{WALKS} walks do not show the difference");
}

/// Most attempts last, so that they can lose their runs.
fn weight(action: &Action) -> usize {
    match action {
        Action::FinishRun { .. } | Action::RenewLeases { .. } => 1,
        Action::DecideAndStart { .. } | Action::LoseStartReply { .. } | Action::LoseTakeOver { .. } => 1,
        Action::EndLease { .. } | Action::RecoverLostRuns | Action::ClaimDueRuns { .. } => 12,
        _ => 4,
    }
}

/// What a walk has met.
struct Followed {
    steps: usize,
    has_late_result: bool,
}

/// One walk, and what the processes know that the database does not.
struct Walk<'a> {
    ground: &'a Ground,
    workflow: WorkflowId,
    instances: [Uuid; INSTANCES],
    /// The ids of the model's runs.
    runs: Vec<Uuid>,
    claimed: HashMap<(usize, Fence), Claimed>,
    started: HashMap<(usize, Fence), StartedRun>,
}

/// What can be compared of an occurrence: its decision and its run.
type TimeRow = (Option<&'static str>, Option<usize>);
/// What can be compared of a run: fire, state, attempt, owner, lease, recoveries, handed over, cut off, late result.
type RunRow = (usize, &'static str, u8, Owner, ModelLease, u8, u8, u8, bool);

impl<'a> Walk<'a> {
    /// A workflow with three due times, all of which are due now.
    async fn begin(ground: &'a Ground) -> Self {
        ground.set_clock("2026-03-02T11:59:30Z".parse().unwrap()).await;
        let body = json!({
            "name": Uuid::new_v4().to_string(), "action": {"type": "log", "message": "m"},
            "cron_schedule": "0,1,2 12 * * *", "timezone": "UTC", "overlap_policy": "skip", "catch_up_policy": "none",
        });
        let workflow = ground.create(body).await;
        ground.set_clock("2026-03-02T12:02:30Z".parse().unwrap()).await;
        let instances = std::array::from_fn(|_| Uuid::new_v4());
        Self { ground, workflow, instances, runs: Vec::new(), claimed: HashMap::new(), started: HashMap::new() }
    }

    /// Walks until nothing can happen any more.
    ///
    /// # Errors
    /// The first difference between the model and the database, and the actions up to it.
    async fn follow(mut self, model: Execution, seed: u64) -> Result<Followed, String> {
        let (mut dice, mut path) = (Dice::new(seed), Vec::new());
        let mut state = model.init_states().remove(0);
        while let Some((action, mut next)) = take_step(&model, &state, &mut dice, weight) {
            path.push(action);
            self.do_action(action, &state, &next).await;
            // The real function advances the queues of the runs that it ended, in transactions of their own.
            let has_ended =
                state.runs.iter().zip(&next.runs).any(|(before, run)| !before.has_ended() && run.has_ended());
            if action == Action::RecoverLostRuns && has_ended {
                next = model.next_state(&next, Action::AdvanceWorkflow).unwrap();
            }
            let expected = (self.expected_times(&next), self.expected_runs(&next));
            let found = (self.times(&next).await, self.runs().await);
            if found != expected {
                return Err(format!("seed {seed}: {path:#?}: expected {expected:?}, found {found:?}"));
            }
            state = next;
        }
        let has_late_result = state.runs.iter().any(|run| run.has_late_result);
        Ok(Followed { steps: path.len(), has_late_result })
    }

    async fn do_action(&mut self, action: Action, before: &State, after: &State) {
        let now = self.now();
        match action {
            Action::DecideFire { fire } => {
                let decider = FireDecider::new(self.ground.pool.clone(), KEPT);
                self.decide_fire(decider, fire, after).await;
            }
            Action::DecideAndStart { instance, fire } => {
                let started = self.decide_and_start(instance, fire, after).await;
                self.started.insert((instance, Fence { run: after.runs.len() - 1, attempt: 1 }), started);
            }
            Action::LoseStartReply { instance, fire } => {
                self.decide_and_start(instance, fire, after).await;
            }
            Action::TakeOver { instance, fence } => self.take_over(instance, fence).await,
            Action::LoseTakeOver { .. } => {}
            Action::EndGrace => self.ground.set_clock("2026-03-02T12:10:00Z".parse().unwrap()).await,
            Action::DecideOverdueTimes => drop(decide_overdue_times(&self.ground.pool, KEPT, now).await.unwrap()),
            Action::ClaimDueRuns { instance, run } => {
                let one = self.claim_run(instance, run, before).await;
                self.claimed.insert((instance, Fence { run, attempt: u8::try_from(one.attempt).unwrap() }), one);
            }
            Action::LoseClaimReply { instance, run } => drop(self.claim_run(instance, run, before).await),
            Action::HandOverUnknown { instance } => {
                let known = self.fences(&before.instances[instance].known_attempts());
                let mut connection = self.ground.pool.acquire().await.unwrap();
                let instance = self.instances[instance];
                let unknown = claim::find_unknown(&mut connection, instance, &known).await.unwrap();
                let done = claim::hand_over_unknown(&mut connection, instance, &unknown, LEASE_SECS).await;
                assert_eq!(done.unwrap().locked, 0);
            }
            Action::RenewLeases { instance } => self.renew_leases(instance, before, after).await,
            Action::StopAttempt { .. } => {}
            Action::ReleaseAttempts { instance } => {
                let stopped = self.fences(&before.instances[instance].stopped);
                let mut connection = self.ground.pool.acquire().await.unwrap();
                let done = claim::release_attempts(&mut connection, self.instances[instance], &stopped).await;
                assert!(done.unwrap().is_empty(), "nothing is locked");
            }
            Action::FinishRun { instance, fence } | Action::LoseFinishReply { instance, fence } => {
                self.finish_run(instance, fence).await;
            }
            Action::HandOver { instance, fence, is_sent } => {
                let sent = if is_sent { Sent::Perhaps } else { Sent::Nothing };
                let mut tx = db::begin_transaction(&self.ground.pool).await.unwrap();
                let real = self.fences(&[fence])[0];
                hand_over(&mut tx, self.instances[instance], real, sent, LEASE_SECS, now).await.unwrap();
                tx.commit().await.unwrap();
            }
            Action::EndLease { run } => self.end_lease(run).await,
            Action::KillInstance { instance } => self.instances[instance] = Uuid::new_v4(),
            Action::RecoverLostRuns => {
                let settings = recovery::Settings { max_attempts: RECOVERIES.into(), max_age_secs: 86_400 };
                recover_lost_runs(&self.ground.pool, settings, now).await.unwrap();
            }
            Action::AdvanceWorkflow => drop(advance_workflow(&self.ground.pool, self.workflow, now).await.unwrap()),
            Action::ReadFire { .. } | Action::WriteFire { .. } => {
                unreachable!("only an ablation reads without the lock")
            }
        }
    }

    /// By a decider without a cache, as another instance.
    async fn decide_fire(&mut self, decider: FireDecider, fire: usize, after: &State) {
        let scheduled_time = time_of(fire);
        let fire = Fire {
            workflow_id: self.workflow,
            scheduled_time,
            raw_time: scheduled_time.to_rfc3339(),
            revision: None,
            execution_id: None,
            attempt: None,
            schedule_arn: None,
            template: None,
            traceparent: None,
        };
        decider.decide_fire(&fire).await.unwrap();
        if after.runs.len() > self.runs.len() {
            let of_time = "SELECT id FROM runs WHERE workflow_id = $1 AND scheduled_time = $2";
            let found = sqlx::query_scalar(of_time).bind(self.workflow.0).bind(scheduled_time);
            let mut connection = self.ground.pool.acquire().await.unwrap();
            self.runs.push(found.fetch_one(&mut *connection).await.expect("the model has a run of this fire"));
        }
    }

    /// By the decider of an instance that has a free slot.
    async fn decide_and_start(&mut self, instance: usize, fire: usize, after: &State) -> StartedRun {
        let offered = OfferedSlots::new(Capacity { slots: 8, slots_of_a_team: 8, bytes: 1 << 20 });
        let lease = self.lease(instance);
        let mut starts = offered.receive_starts();
        offered.end_claim(Some(SlotOffer { instance: lease.instance, lease_secs: lease.secs }));
        // It has the only slots, so there is an answer below even if the fire takes none.
        let decider = FireDecider::with_slots(self.ground.pool.clone(), KEPT, offered);
        self.decide_fire(decider, fire, after).await;
        let started = starts.recv().await.expect("the run starts in a slot");
        started.runs[0].clone()
    }

    async fn take_over(&mut self, instance: usize, fence: Fence) {
        let started = self.started[&(instance, fence)].clone();
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let read = claim::read_started_runs(&mut connection, &[started]).await.unwrap().pop().expect("it is read");
        assert_eq!(read.fence(), self.fences(&[fence])[0]);
        self.claimed.insert((instance, fence), read);
    }

    async fn claim_run(&self, instance: usize, run: usize, before: &State) -> Claimed {
        let executing: Vec<Uuid> =
            self.fences(&before.instances[instance].known_attempts()).iter().map(|fence| fence.id).collect();
        let slots = Slots::all_free(1);
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let claimed =
            claim::claim_due_runs(&mut connection, self.lease(instance), &slots, &executing, self.now()).await;
        let claimed = claimed.unwrap().pop().expect("a run is claimed");
        assert_eq!(claimed.id, self.runs[run]);
        claimed
    }

    /// What the instance learns must be what the model's instance learns.
    async fn renew_leases(&self, instance: usize, before: &State, after: &State) {
        let under_way = self.fences(&before.instances[instance].under_way);
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let mut kept: Vec<_> = claim::renew_leases(&mut connection, self.lease(instance), &under_way).await.unwrap();
        kept.sort_by_key(|beat| beat.id);
        let mut expected = self.fences(&after.instances[instance].under_way);
        expected.sort_by_key(|fence| fence.id);
        assert!(kept.iter().all(|beat| beat.is_renewed), "nothing is locked");
        assert_eq!(kept.iter().map(|beat| (beat.id, beat.attempt)).collect::<Vec<_>>(), ids(&expected));
    }

    /// As `executor::attempt` writes an outcome down.
    async fn finish_run(&self, instance: usize, fence: Fence) {
        let (now, real) = (self.now(), self.fences(&[fence])[0]);
        let finished = Finished { state: Real::Succeeded, result: None, error: None, failed_tries: 0 };
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let done = claim::finish_run(&mut connection, self.instances[instance], real, &finished, now).await.unwrap();
        if done == Ownership::Ours {
            return;
        }
        let found = claim::find_after_loss(&mut connection, real.id).await.unwrap().expect("the run exists");
        if found.attempt == real.attempt && found.state == Real::Succeeded {
            return;
        }
        let claimed = &self.claimed[&(instance, fence)];
        claim::keep_late_result(&mut connection, claimed, &json!({"attempt": real.attempt})).await.unwrap();
    }

    async fn end_lease(&self, run: usize) {
        let end = sqlx::query("UPDATE runs SET lease_until = cronbox_now() WHERE id = $1").bind(self.runs[run]);
        end.execute(&mut *self.ground.pool.acquire().await.unwrap()).await.unwrap();
    }

    fn now(&self) -> DateTime<Utc> {
        self.ground.clock.now()
    }

    fn lease(&self, instance: usize) -> Lease {
        Lease { instance: self.instances[instance], secs: LEASE_SECS }
    }

    fn fences(&self, of_model: &[Fence]) -> Vec<claim::Fence> {
        of_model.iter().map(|one| claim::Fence { id: self.runs[one.run], attempt: one.attempt.into() }).collect()
    }

    fn expected_times(&self, state: &State) -> Vec<TimeRow> {
        let said = |decision| match decision {
            Decision::Fired => "fired",
            Decision::SkippedOverlap => "skipped_overlap",
            Decision::Missed => "missed",
            Decision::Abandoned => "abandoned",
        };
        state.occurrences.iter().map(|time| (time.decision.map(said), time.run)).collect()
    }

    fn expected_runs(&self, state: &State) -> Vec<RunRow> {
        let row = |run: &model::execution::state::Run| {
            let said = match run.state {
                RunState::Queued => "queued",
                RunState::Accepted => "accepted",
                RunState::Running => "running",
                RunState::Succeeded => "succeeded",
                RunState::Cancelled => "cancelled",
                RunState::Abandoned => "abandoned",
            };
            let counts = (run.recoveries, run.handed_over, run.cut_off);
            (run.fire, said, run.attempt, run.owner, run.lease, counts.0, counts.1, counts.2, run.has_late_result)
        };
        state.runs.iter().map(row).collect()
    }

    async fn times(&self, state: &State) -> Vec<TimeRow> {
        let decided = "SELECT scheduled_time, decision, run_id FROM occurrences WHERE workflow_id = $1";
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let rows: Vec<(DateTime<Utc>, String, Option<Uuid>)> =
            sqlx::query_as(decided).bind(self.workflow.0).fetch_all(&mut *connection).await.unwrap();
        assert_eq!(rows.len(), state.occurrences.iter().map(|time| usize::from(time.rows)).sum::<usize>());
        let row_of = |fire| {
            let Some((_, decision, run)) = rows.iter().find(|(time, ..)| *time == time_of(fire)) else {
                return (None, None);
            };
            let known = ledger::occurrences::Decision::ALL.into_iter().find(|known| known.as_str() == decision);
            (known.map(ledger::occurrences::Decision::as_str), run.map(|id| self.nth_run(id)))
        };
        (0..FIRES).map(row_of).collect()
    }

    async fn runs(&self) -> Vec<RunRow> {
        let query = "SELECT id, scheduled_time, state, attempt, locked_by, lease_until > cronbox_now(), recoveries,
                            handed_over, cut_off, late_result IS NOT NULL
                       FROM runs WHERE workflow_id = $1";
        type Row = (Uuid, DateTime<Utc>, Real, i32, Option<Uuid>, Option<bool>, i32, i32, i32, bool);
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let rows: Vec<Row> = sqlx::query_as(query).bind(self.workflow.0).fetch_all(&mut *connection).await.unwrap();
        let small = |count: i32| u8::try_from(count).unwrap();
        let mut runs: Vec<(usize, RunRow)> = rows
            .into_iter()
            .map(|(id, time, state, attempt, owner, is_live, recoveries, handed_over, cut_off, is_late)| {
                let lease = match is_live {
                    None => ModelLease::None,
                    Some(true) => ModelLease::Live,
                    Some(false) => ModelLease::Ended,
                };
                let fire = (0..FIRES).find(|fire| time_of(*fire) == time).unwrap();
                let counts = (small(recoveries), small(handed_over), small(cut_off));
                let owner = self.owner(owner);
                let state = state_in_words(state);
                let row = (fire, state, small(attempt), owner, lease, counts.0, counts.1, counts.2, is_late);
                (self.nth_run(id), row)
            })
            .collect();
        runs.sort_by_key(|(nth, _)| *nth);
        runs.into_iter().map(|(_, row)| row).collect()
    }

    fn owner(&self, locked_by: Option<Uuid>) -> Owner {
        match locked_by {
            None => Owner::None,
            Some(id) if id.is_nil() => Owner::Released,
            Some(id) => {
                self.instances.iter().position(|instance| *instance == id).map_or(Owner::Killed, Owner::Instance)
            }
        }
    }

    fn nth_run(&self, id: Uuid) -> usize {
        self.runs.iter().position(|run| *run == id).expect("a run that the model does not have")
    }
}

fn ids(fences: &[claim::Fence]) -> Vec<(Uuid, i32)> {
    fences.iter().map(|fence| (fence.id, fence.attempt)).collect()
}

fn state_in_words(state: Real) -> &'static str {
    match state {
        Real::Queued => "queued",
        Real::Accepted => "accepted",
        Real::Running => "running",
        Real::Succeeded => "succeeded",
        Real::Cancelled => "cancelled",
        Real::Abandoned => "abandoned",
        Real::Failed | Real::TimedOut => "a state that the model does not have",
    }
}

fn time_of(fire: usize) -> DateTime<Utc> {
    format!("2026-03-02T12:0{fire}:00Z").parse().unwrap()
}
