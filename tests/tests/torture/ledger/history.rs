//! One history of the ledger: a storm of callers, jobs, deaths and clock steps, then calm, then the verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use schedule::Clock;
use uuid::Uuid;

use super::cast::Deed;
use super::instance::{Instance, Stage};
use super::judge;
use super::oracle::Heard;
use super::receiver::Attending;
use crate::actor::{Actor, Stand};
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::history::Outcome;
use crate::turnstile::Turnstile;

/// A history under way.
pub(super) struct History<'a> {
    pub(super) stage: &'a Stage,
    pub(super) dice: Dice,
    pub(super) clock: Clock,
    pub(super) turnstile: Turnstile,
    pub(super) heard: Arc<Mutex<Heard>>,
    /// Those that are at no work.
    pub(super) idle: Vec<Instance>,
    pub(super) actors: Vec<(Actor, Instance)>,
    actors_ever: usize,
    ended: BTreeMap<Uuid, String>,
    pub(super) coverage: Coverage,
    trace: Vec<String>,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Event {
    Move,
    Start(Deed),
    Clock,
    Kill,
    Lose,
}

/// Not on a whole minute: what happens at the very moment that a time falls due is told elsewhere.
pub(super) const START: &str = "2026-03-02T10:00:00.5Z";
const INSTANCES: usize = 3;
/// After so many rounds in calm all must be at rest.
const ROUNDS: u32 = 40;
/// After so many passes only time can help.
const PASSES: u32 = 200;
/// After so many moves in calm every actor must have ended.
const MOVES: u32 = 20_000;
/// Longer than Postgres takes to see that a transaction has ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the history of one seed.
pub(crate) async fn run(stage: &Stage, seed: u64) -> Outcome {
    let mut history = History::begin(stage, seed).await;
    let verdict = async {
        history.storm().await?;
        history.calm().await?;
        history.judge().await
    };
    let bad = verdict.await.err();
    history.end(bad).await
}

impl<'a> History<'a> {
    async fn begin(stage: &'a Stage, seed: u64) -> Self {
        let start: DateTime<Utc> = START.parse().unwrap();
        let (dice, clock, turnstile) = (Dice::new(seed), Clock::fixed(start), Turnstile::default());
        stage.ground.begin("DELETE FROM jobs").await;
        stage.ground.set_clock(start).await;
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let fault_chance = *dice.pick(&[0.0, 0.1, 0.3]).unwrap_or(&0.0);
        stage.receiver.attend(Attending {
            turnstile: turnstile.clone(),
            dice: dice.clone(),
            heard: Arc::clone(&heard),
            fault_chance,
        });
        let mut idle = Vec::new();
        for _ in 0..INSTANCES {
            idle.push(stage.instance(&clock).await);
        }
        History {
            stage,
            dice,
            clock,
            turnstile,
            heard,
            idle,
            actors: Vec::new(),
            actors_ever: 0,
            ended: BTreeMap::new(),
            coverage: Coverage::default(),
            trace: Vec::new(),
        }
    }

    /// Everything may happen.
    async fn storm(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            self.start(Deed::Create).await?;
            self.finish_all().await?;
        }
        for _ in 0..self.dice.between(400, 900) {
            let event = self.dice.weighted(&[
                (150, Event::Move),
                (26, Event::Start(Deed::Fire)),
                (14, Event::Start(Deed::Execute)),
                (1, Event::Start(Deed::Create)),
                (5, Event::Start(Deed::Edit)),
                (5, Event::Start(Deed::ByHand)),
                (9, Event::Start(Deed::Job)),
                (8, Event::Clock),
                (4, Event::Kill),
                (2, Event::Lose),
            ]);
            match event.unwrap_or(Event::Move) {
                Event::Move => self.move_one().await?,
                Event::Start(deed) => self.start(deed).await?,
                Event::Clock => {
                    let span = self.dice.weighted(&[(8, (5, 65)), (3, (60, 250)), (1, (300, 900))]);
                    let (least, most) = span.unwrap_or((5, 65));
                    self.advance(self.dice.between(least, most)).await;
                }
                Event::Kill => self.kill_one().await?,
                Event::Lose => self.lose_one(),
            }
        }
        Ok(())
    }

    /// Faults end; then time goes on, and the jobs and executors with it, until nothing is left to do.
    async fn calm(&mut self) -> Result<(), String> {
        self.note("calm".to_owned());
        self.stage.receiver.calm();
        self.finish_all().await?;
        for _ in 0..ROUNDS {
            self.advance(200).await;
            if self.come_to_rest().await? {
                return Ok(());
            }
        }
        let unrest = judge::unrest(&self.stage.ground.admin, self.clock.now()).await;
        Err(format!("L4: not at rest after {ROUNDS} rounds: {unrest:?}"))
    }

    /// What one does another may have to take up: a run ends, and the next in the queue may start.
    async fn come_to_rest(&mut self) -> Result<bool, String> {
        let mut before = Vec::new();
        for _ in 0..PASSES {
            for deed in Deed::ROUND {
                self.start(deed).await?;
                self.finish_all().await?;
            }
            let unrest = judge::unrest(&self.stage.ground.admin, self.clock.now()).await;
            if unrest.is_empty() || unrest == before {
                return Ok(unrest.is_empty());
            }
            before = unrest;
        }
        Ok(false)
    }

    async fn judge(&self) -> Result<(), String> {
        let heard = self.heard.lock().unwrap().clone();
        judge::ledger(&self.stage.ground.admin, &heard, self.clock.now()).await?;
        let instance = self.stage.instance(&self.clock).await;
        let verified = judge::verified(&instance, &self.stage.ground.admin, self.clock.now()).await;
        instance.tap.free();
        self.stage.ground.cut(&instance.process.name).await;
        verified
    }

    async fn end(mut self, bad: Option<String>) -> Outcome {
        let said = judge::said(&self.stage.ground.admin).await;
        self.coverage.said(said.into_iter().map(|(what, count)| (what, u32::try_from(count).unwrap_or(u32::MAX))));
        let told_twice = self.heard.lock().unwrap().effects.values().filter(|effects| **effects > 1).count();
        self.coverage.said([("told twice".to_owned(), u32::try_from(told_twice).unwrap_or(u32::MAX))]);
        for (actor, instance) in std::mem::take(&mut self.actors) {
            self.stage.ground.cut(&actor.process.name).await;
            self.turnstile.forget(actor.id);
            self.idle.push(instance);
        }
        for instance in &self.idle {
            instance.tap.free();
            self.stage.ground.cut(&instance.process.name).await;
        }
        Outcome { bad, coverage: self.coverage, trace: self.trace }
    }

    async fn start(&mut self, deed: Deed) -> Result<(), String> {
        let Some(instance) = self.idle.pop() else { return Ok(()) };
        self.actors_ever += 1;
        let id = self.actors_ever;
        let Some(life) = self.life(deed, &instance).await else {
            self.idle.push(instance);
            return Ok(());
        };
        self.note(format!("actor {id} on {}: {}", instance.process.name, life.what));
        instance.tap.step(&self.turnstile, id);
        let actor = Actor::new(id, crate::actor::Role::Editor, instance.process.clone(), life.run);
        self.actors.push((actor, instance));
        self.go(self.actors.len() - 1).await
    }

    async fn move_one(&mut self) -> Result<(), String> {
        let free: Vec<usize> = (0..self.actors.len()).filter(|n| self.actors[*n].0.stand == Stand::AtPoints).collect();
        let Some(&place) = self.dice.pick(&free) else { return self.wait_for_a_lock().await };
        let id = self.actors[place].0.id;
        let nth = self.dice.below(self.turnstile.points(id).len());
        let point = self.turnstile.pass(id, nth).unwrap_or_default();
        self.note(format!("actor {id} passes {point}"));
        self.go(place).await
    }

    async fn wait_for_a_lock(&mut self) -> Result<(), String> {
        let waited = Instant::now();
        while !self.actors.is_empty() {
            for place in 0..self.actors.len() {
                if !self.stage.ground.waits_for_lock(&self.actors[place].0.process.name).await {
                    return self.go(place).await;
                }
            }
            if waited.elapsed() > LOCK_PATIENCE {
                return Err("all wait for locks".to_owned());
            }
        }
        Ok(())
    }

    /// Lets one actor go on, and those that it held up.
    async fn go(&mut self, place: usize) -> Result<(), String> {
        let began = Instant::now();
        self.actors[place].0.go(&self.turnstile, &self.stage.ground).await;
        if began.elapsed() > Duration::from_secs(1) {
            let (took, last) = (began.elapsed(), self.trace.last().cloned());
            tracing::info!(?took, last, "a step was slow");
        }
        for (actor, _) in &mut self.actors {
            if actor.stand == Stand::AtLock && !self.stage.ground.waits_for_lock(&actor.process.name).await {
                actor.go(&self.turnstile, &self.stage.ground).await;
            }
        }
        while let Some(place) = self.actors.iter().position(|(actor, _)| actor.stand == Stand::Ended) {
            let (actor, instance) = self.actors.remove(place);
            instance.tap.free();
            self.idle.push(instance);
            self.note(format!("actor {} has ended", actor.id));
        }
        judge::always(&self.stage.ground.admin, &mut self.ended).await
    }

    async fn finish_all(&mut self) -> Result<(), String> {
        for _ in 0..MOVES {
            if self.actors.is_empty() {
                return Ok(());
            }
            self.move_one().await?;
        }
        let stands: Vec<_> =
            self.actors.iter().map(|(actor, _)| (actor.stand, self.turnstile.points(actor.id))).collect();
        Err(format!("L6: actors never end: {stands:?}"))
    }

    /// kill -9 of an instance, and a new one in its place.
    async fn kill_one(&mut self) -> Result<(), String> {
        let free: Vec<usize> = (0..self.actors.len()).filter(|n| self.actors[*n].0.stand == Stand::AtPoints).collect();
        let Some(&place) = self.dice.pick(&free) else { return Ok(()) };
        let (actor, instance) = self.actors.remove(place);
        self.note(format!("actor {} is killed at {:?}", actor.id, self.turnstile.points(actor.id)));
        self.coverage.kills += 1;
        instance.tap.die();
        self.stage.ground.cut(&actor.process.name).await;
        self.turnstile.forget(actor.id);
        drop(actor);
        self.idle.push(self.stage.instance(&self.clock).await);
        match self.actors.iter().position(|(actor, _)| actor.stand == Stand::AtLock) {
            Some(place) => self.go(place).await,
            None => Ok(()),
        }
    }

    /// Somebody's next statement is done, and whoever sent it never hears of it.
    fn lose_one(&mut self) {
        let free: Vec<usize> = (0..self.actors.len()).filter(|n| self.actors[*n].0.stand == Stand::AtPoints).collect();
        if let Some(&place) = self.dice.pick(&free) {
            let (actor, instance) = &self.actors[place];
            instance.tap.lose_next_answer();
            let line = format!("actor {} will not hear of {:?}", actor.id, self.turnstile.points(actor.id));
            self.coverage.cut += 1;
            self.note(line);
        }
    }

    async fn advance(&mut self, secs: u64) {
        let now = self.clock.now() + TimeDelta::seconds(i64::try_from(secs).unwrap_or_default());
        self.clock.set(now);
        self.stage.ground.set_clock(now).await;
        self.note(format!("it is {now}"));
    }

    pub(super) fn note(&mut self, line: String) {
        self.trace.push(line);
    }
}
