//! One step of a history: an actor starts, continues, waits, dies, panics, or loses an answer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::actions::{Action, BEAT, FIRE, STEP};
use super::history::{History, MOVES, Profile};
use super::instance::{Instance, LEASES};
use super::leases::Knowing;
use super::receiver::EFFECT;
use crate::actor::{Actor, Locks, Position, Role};
use crate::tap::{Delayed, Tap};

/// Longer than Postgres needs to see that a transaction has ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// Shorter than any wait of the app in real time.
const PAUSE: Duration = Duration::from_millis(4);
/// The labels of the statements that claim runs and that renew leases.
const CLAIM: &str = "claim runs";
const RENEW: &str = "renew leases";
/// The label of the statement that hands over the claims whose reply was lost.
const HAND_OVER: &str = "hand over unknown claims";
/// The label of the statement that decides fires in time and starts their runs.
const DECIDE: &str = "accept a batch";
/// How often a delayed statement is delivered in an event, if its sender executes runs again, and otherwise.
const DELIVERY: (f64, f64) = (0.1, 0.01);
/// Those whose lost answer leaves a started run without an attempt, or a batch of ends unknown.
const STARTS_AND_ENDS: [&str; 3] = ["COMMIT", "read started runs", "finish runs"];

impl History<'_> {
    pub(super) async fn start(&mut self, action: Action) -> Result<(), String> {
        if self.idle.is_empty() {
            return Ok(());
        }
        // In turn, because an instance may have to leave runs that it has not released to others.
        let instance = self.idle.remove(0);
        self.actors_ever += 1;
        let id = self.actors_ever;
        // A job first reads the database's time; a request uses the last sample.
        if matches!(action, Action::Job | Action::The(_)) || self.dice.chance(0.7) {
            instance.sample(self.clock.now());
        }
        let Some(life) = self.life(action, id, &instance).await else {
            self.idle.push(instance);
            return Ok(());
        };
        self.note(format!("actor {id} on {}: {}", instance.process.name, life.what));
        instance.tap.step(&self.turnstile, id);
        let role = if action == Action::Execute { Role::Executor } else { Role::Editor };
        if role == Role::Executor {
            self.callers.begin(id, instance.executor.clone());
        }
        let actor = Actor::new(id, role, instance.process.clone(), life.run).behind(instance.tap.clone());
        self.actors.push((actor, instance));
        self.go(self.actors.len() - 1, "start").await
    }

    pub(super) async fn move_one(&mut self) -> Result<(), String> {
        let Some(place) = self.any_at_points() else { return self.wait_for_a_lock().await };
        match self.any_point(place) {
            Some(nth) => self.pass(place, nth).await,
            // Its attempts take real time, for example the pause before a statement is tried again.
            None => {
                tokio::time::sleep(PAUSE).await;
                self.go(place, BEAT).await
            }
        }
    }

    /// One of the actors that can continue; a suspended one only if there is no other.
    fn any_at_points(&self) -> Option<usize> {
        let free: Vec<usize> =
            (0..self.actors.len()).filter(|n| self.actors[*n].0.position == Position::AtPoints).collect();
        let awake: Vec<usize> = free.iter().copied().filter(|n| !self.is_suspended(self.actors[*n].0.id)).collect();
        self.dice.pick(if awake.is_empty() { &free } else { &awake }).copied()
    }

    /// Whether an actor is suspended, which it is until the recovery that began after it has ended.
    fn is_suspended(&self, id: usize) -> bool {
        let is_acting = |recovery: usize| self.actors.iter().any(|(actor, _)| actor.id == recovery);
        self.suspended.iter().any(|(suspended, recovery)| *suspended == id && is_acting(*recovery))
    }

    /// A random point of an actor. An executor renews and claims less often than it does other steps, and never in the
    /// calm phase.
    fn any_point(&self, place: usize) -> Option<usize> {
        let (actor, instance) = &self.actors[place];
        let has_work = !instance.executor.under_way().is_empty();
        let weight = |point: &String| match point.as_str() {
            BEAT | STEP if self.is_calm || !has_work => 0,
            BEAT | STEP | FIRE => 2,
            EFFECT => self.profile.weight_of_answers(),
            _ => 6,
        };
        let points = self.turnstile.points(actor.id);
        let weighted: Vec<(u32, usize)> = points.iter().enumerate().map(|(nth, point)| (weight(point), nth)).collect();
        self.dice.weighted(&weighted)
    }

    /// Lets an actor pass the `nth` of its points.
    async fn pass(&mut self, place: usize, nth: usize) -> Result<(), String> {
        let id = self.actors[place].0.id;
        let next = self.turnstile.points(id).get(nth).cloned().unwrap_or_default();
        if next == BEAT {
            let under_way = self.actors[place].1.executor.under_way();
            self.leases.asks(id, under_way);
        }
        if next == RENEW {
            if self.profile == Profile::Leases && !self.is_calm {
                // A renewal is executed some time after the claim or the previous renewal, so it extends the leases.
                self.advance(self.dice.between(1, 10)).await;
            }
            let (admin, open) = (&self.stage.ground.admin, self.callers.open(id));
            self.leases.renews(admin, id, self.actors[place].1.app.instance, open).await;
        }
        if next == CLAIM {
            let Instance { app, executor, .. } = &self.actors[place].1;
            if app.offered_slots.count_used() <= executor.under_way().len() {
                self.leases.count_claim(app.instance);
            }
        }
        if next == HAND_OVER && self.happens_late() {
            self.note(format!("the hand-over of actor {id} is late"));
            self.actors[place].1.tap.delay(Delayed::Statement(HAND_OVER));
        }
        let point = self.turnstile.pass(id, nth).unwrap_or_default();
        self.note(format!("actor {id} passes {point}"));
        self.go(place, &point).await
    }

    async fn wait_for_a_lock(&mut self) -> Result<(), String> {
        // The transaction of a late commit holds its locks.
        for (instance, what) in self.delayed() {
            if matches!(what, Delayed::CommitOf(_)) {
                self.deliver(&instance, what).await?;
            }
        }
        let waited = Instant::now();
        while !self.actors.is_empty() {
            for place in 0..self.actors.len() {
                if !self.stage.ground.waits_for_lock(&self.actors[place].0.process.name).await {
                    return self.go(place, "lock").await;
                }
            }
            if waited.elapsed() > LOCK_PATIENCE {
                return Err("all wait for locks".to_owned());
            }
        }
        Ok(())
    }

    /// Lets one actor continue from a point, and then those that it had blocked.
    async fn go(&mut self, place: usize, from: &str) -> Result<(), String> {
        let (began, id) = (Instant::now(), self.actors[place].0.id);
        let locks = self.locks(id);
        self.actors[place].0.go(&self.turnstile, &self.stage.ground, locks).await;
        if from == CLAIM && self.actors[place].1.tap.has_lost_answer_to(CLAIM) {
            self.coverage.said([("claim unanswered".to_owned(), 1)]);
        }
        if began.elapsed() > Duration::from_secs(1) {
            let (took, last) = (began.elapsed(), self.trace.last().cloned());
            tracing::info!(?took, last, "a step was slow");
        }
        // Within a transaction it releases no lock.
        let keeps_locks =
            self.actors[place].0.position != Position::Ended && self.actors[place].1.tap.is_in_transaction();
        for (actor, _) in &mut self.actors {
            if !keeps_locks
                && actor.position == Position::AtLock
                && !self.stage.ground.waits_for_lock(&actor.process.name).await
            {
                actor.go(&self.turnstile, &self.stage.ground, Locks::Possible).await;
            }
        }
        while let Some(place) = self.actors.iter().position(|(actor, _)| actor.position == Position::Ended) {
            let (actor, instance) = self.actors.remove(place);
            instance.tap.free();
            self.forget(actor.id);
            self.idle.push(instance);
            self.note(format!("actor {} has ended", actor.id));
        }
        self.check_renewals().await?;
        if self.has_shown(id, from) { self.check_leases().await } else { Ok(()) }
    }

    /// Whether an actor may wait for another actor's lock.
    fn locks(&self, actor: usize) -> Locks {
        let has_locks = |other: &Actor, tap: &Tap| other.position == Position::AtLock || tap.is_in_transaction();
        let is_possible = self.actors.iter().any(|(other, at)| other.id != actor && has_locks(other, &at.tap));
        if is_possible { Locks::Possible } else { Locks::Impossible }
    }

    /// Whether an actor that continued from a point may have committed a change, or is about to claim.
    fn has_shown(&self, actor: usize, from: &str) -> bool {
        match from {
            "start" | EFFECT | BEAT | STEP | FIRE => self.turnstile.points(actor).iter().any(|point| point == CLAIM),
            "COMMIT" => true,
            _ => self.actors.iter().all(|(other, instance)| other.id != actor || !instance.tap.is_in_transaction()),
        }
    }

    /// Checks S13 after each renewal.
    async fn check_renewals(&mut self) -> Result<(), String> {
        for (actor, instance) in &self.actors {
            if !self.leases.is_renewing(actor.id) || !self.turnstile.points(actor.id).iter().any(|point| point == BEAT)
            {
                continue;
            }
            let has_learned = !instance.tap.has_lost_answer_to(RENEW);
            self.leases.renewed(actor.id, instance, &self.callers, has_learned).await?;
        }
        Ok(())
    }

    /// Checks the invariants of leases after each change.
    pub(super) async fn check_leases(&mut self) -> Result<(), String> {
        let calls = std::mem::take(&mut self.observed.lock().unwrap().calls);
        let is_claiming = |actor: usize| self.turnstile.points(actor).iter().any(|point| point == CLAIM);
        let acting = self.actors.iter().map(|(actor, instance)| Knowing::of(instance, is_claiming(actor.id)));
        let idle = self.idle.iter().map(|instance| Knowing::of(instance, false));
        let processes: Vec<Knowing> = acting.chain(idle).collect();
        self.leases.check(&self.stage.ground.admin, &processes, &calls).await
    }

    fn forget(&mut self, actor: usize) {
        self.callers.end(actor);
        self.leases.forget(actor);
        self.turnstile.forget(actor);
    }

    pub(super) async fn finish_all(&mut self) -> Result<(), String> {
        for _ in 0..MOVES {
            if self.actors.is_empty() {
                return Ok(());
            }
            self.move_one().await?;
        }
        let positions: Vec<_> =
            self.actors.iter().map(|(actor, _)| (actor.position, self.turnstile.points(actor.id))).collect();
        Err(format!("L6: actors never end: {positions:?}"))
    }

    /// Kills an instance with SIGKILL, and starts a new one.
    pub(super) async fn kill_one(&mut self) -> Result<(), String> {
        let Some(place) = self.any_at_points() else { return Ok(()) };
        let (actor, instance) = self.actors.remove(place);
        self.note(format!("actor {} is killed at {:?}", actor.id, self.turnstile.points(actor.id)));
        self.coverage.kills += 1;
        instance.tap.die();
        self.stage.ground.cut(&actor.process.name).await;
        let id = actor.id;
        drop(actor);
        self.forget(id);
        self.idle.push(self.stage.instance(&self.dice, self.clock.now()).await);
        match self.actors.iter().position(|(actor, _)| actor.position == Position::AtLock) {
            Some(place) => self.go(place, "lock").await,
            None => Ok(()),
        }
    }

    /// The answer to a statement of an actor gets lost after its execution: often one that starts or ends runs, or a
    /// claim's, otherwise the next statement's.
    pub(super) fn lose_one(&mut self) {
        if self.happens_late() {
            return self.delay_start();
        }
        if let Some(place) = self.any_that_starts_or_ends() {
            return self.lose_next_of(place);
        }
        let claims = |n: &usize| self.turnstile.points(self.actors[*n].0.id).iter().any(|point| point == CLAIM);
        // If a process claims while it executes attempts, it continues to renew leases.
        let executes = |n: &usize| !self.callers.open(self.actors[*n].0.id).is_empty();
        let claiming: Vec<usize> = (0..self.actors.len()).filter(claims).collect();
        let beside: Vec<usize> = (0..self.actors.len()).filter(executes).collect();
        let claiming: &[usize] = match (beside.is_empty(), self.dice.chance(0.3)) {
            (false, _) => &beside,
            // If this happened too often, no executor would have a run to execute.
            (true, true) => &claiming,
            (true, false) => &[],
        };
        let claiming = self.dice.pick(claiming).copied();
        let line = if let Some(place) = claiming.filter(|_| self.dice.chance(0.8)) {
            let (actor, instance) = &self.actors[place];
            instance.tap.lose_answer_to(CLAIM);
            format!("actor {} loses the answer of its next claim", actor.id)
        } else {
            let Some(place) = self.any_at_points() else { return };
            return self.lose_next_of(place);
        };
        self.coverage.cut += 1;
        self.note(line);
    }

    /// Whether Postgres executes a statement after its sender has gone on.
    fn happens_late(&self) -> bool {
        let chance = self.stage.ablation.delay_chance();
        // The dice of ablations without delays are left alone, so that these keep their known seeds.
        !self.is_calm && chance > 0.0 && self.dice.chance(chance)
    }

    /// Postgres executes the next claim of an executor late, or commits its next fires late.
    fn delay_start(&mut self) {
        let executes = |n: &usize| self.actors[*n].0.role == Role::Executor;
        let executing: Vec<usize> = (0..self.actors.len()).filter(executes).collect();
        let Some(&place) = self.dice.pick(&executing) else { return };
        let (actor, instance) = &self.actors[place];
        let starts_runs = instance.offers_slots && self.stage.ablation.delays_commits();
        let commits = starts_runs && self.dice.chance(0.7);
        let what = if commits { Delayed::CommitOf(DECIDE) } else { Delayed::Statement(CLAIM) };
        instance.tap.delay(what);
        let line = format!("actor {}: the next {what:?} is late", actor.id);
        self.note(line);
    }

    /// Sometimes Postgres executes a statement whose sender has gone on; in the calm phase it executes all.
    pub(super) async fn deliver_some(&mut self) -> Result<(), String> {
        for (instance, what) in self.delayed() {
            let chance = if instance.executor.under_way().is_empty() { DELIVERY.1 } else { DELIVERY.0 };
            if self.is_calm || self.dice.chance(chance) {
                self.deliver(&instance, what).await?;
            }
        }
        Ok(())
    }

    fn delayed(&self) -> Vec<(Instance, Delayed)> {
        let instances = self.idle.iter().chain(self.actors.iter().map(|(_, instance)| instance));
        instances.filter_map(|instance| Some((instance.clone(), instance.tap.delayed()?))).collect()
    }

    async fn deliver(&mut self, instance: &Instance, what: Delayed) -> Result<(), String> {
        self.note(format!("{what:?} of {} is executed late", instance.process.name));
        self.coverage.said([("late statements".to_owned(), 1)]);
        let begun = self.leases.deliver_late(&self.stage.ground.admin, instance).await;
        if begun > 0 && matches!(what, Delayed::CommitOf(_)) {
            self.coverage.said([("started by a late commit".to_owned(), 1)]);
        }
        self.check_leases().await
    }

    fn lose_next_of(&mut self, place: usize) {
        let (actor, instance) = &self.actors[place];
        instance.tap.lose_next_answer();
        let line = format!("actor {} loses the answer of {:?}", actor.id, self.turnstile.points(actor.id));
        self.coverage.cut += 1;
        self.note(line);
    }

    /// Sometimes one of the executors that offer slots and wait at such a statement.
    fn any_that_starts_or_ends(&self) -> Option<usize> {
        let is_there = |point: &String| STARTS_AND_ENDS.contains(&point.as_str());
        let waits = |n: &usize| {
            let (actor, instance) = &self.actors[*n];
            let is_offering = actor.role == Role::Executor && instance.offers_slots;
            is_offering && actor.position == Position::AtPoints && self.turnstile.points(actor.id).iter().any(is_there)
        };
        let waiting: Vec<usize> = (0..self.actors.len()).filter(waits).collect();
        self.dice.pick(&waiting).copied().filter(|_| self.dice.chance(0.6))
    }

    /// The next action of an executor panics at its end.
    pub(super) fn panic_one(&mut self) {
        let executes = |n: &usize| self.actors[*n].0.role == Role::Executor;
        let executing: Vec<usize> = (0..self.actors.len()).filter(executes).collect();
        let Some(&place) = self.dice.pick(&executing) else { return };
        let (actor, instance) = &self.actors[place];
        instance.panics.store(true, Ordering::SeqCst);
        let line = format!("the next action of actor {} panics", actor.id);
        self.coverage.said([("panic".to_owned(), 1)]);
        self.note(line);
    }

    /// The database pauses for at least the length of a lease. An executor that cannot renew in that time stops its
    /// work; an executor that paused with the database does not know of the pause.
    pub(super) async fn stall(&mut self) -> Result<(), String> {
        let waiting: Vec<usize> =
            self.actors.iter().filter(|(actor, _)| self.is_beating(actor)).map(|a| a.0.id).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        self.coverage.said([("standstill".to_owned(), 1)]);
        let secs = self.dice.between(60, 700);
        self.note(format!("the database stalls for {secs} s"));
        self.advance(secs).await;
        for id in waiting {
            let place = self.actors.iter().position(|(actor, _)| actor.id == id && self.is_beating(actor));
            let Some(place) = place.filter(|_| self.dice.chance(0.7)) else { continue };
            let nth = self.turnstile.points(id).iter().position(|point| point == BEAT).unwrap_or_default();
            self.actors[place].1.tap.refuse_next();
            self.pass(place, nth).await?;
        }
        Ok(())
    }

    /// An executor is suspended with unanswered requests, for longer than its own lease or another instance's. In the
    /// meantime, another instance runs the recovery.
    pub(super) async fn suspend_one(&mut self) -> Result<(), String> {
        let executes = |n: &usize| !self.callers.open(self.actors[*n].0.id).is_empty();
        let executing: Vec<usize> = (0..self.actors.len()).filter(executes).collect();
        let Some(&place) = self.dice.pick(&executing).filter(|_| !self.idle.is_empty()) else { return Ok(()) };
        let (actor, instance) = &self.actors[place];
        let (id, lease) = (actor.id, instance.app.config.lost_after_secs);
        self.coverage.said([("suspended".to_owned(), 1)]);
        self.note(format!("actor {id} is suspended"));
        let lease = if self.dice.chance(0.6) { lease } else { *self.dice.pick(&LEASES).unwrap_or(&lease) };
        self.advance(lease + 1).await;
        self.suspended.push((id, self.actors_ever + 1));
        self.start(Action::The("recovery")).await
    }

    /// Whether an executor waits for its next renewal and has unanswered requests.
    fn is_beating(&self, actor: &Actor) -> bool {
        let has_requests = !self.callers.open(actor.id).is_empty();
        has_requests
            && actor.position == Position::AtPoints
            && self.turnstile.points(actor.id).iter().any(|point| point == BEAT)
    }
}
