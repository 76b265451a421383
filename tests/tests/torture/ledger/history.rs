//! One history of the ledger: a storm of callers, jobs, deaths and clock steps, then calm, then the verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use schedule::Clock;
use uuid::Uuid;

use super::cast::Deed;
use super::instance::{Instance, Stage};
use super::judge;
use super::oracle::Heard;
use super::receiver::Attending;
use crate::actor::Actor;
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
    pub(super) actors_ever: usize,
    pub(super) ended: BTreeMap<Uuid, String>,
    pub(super) coverage: Coverage,
    pub(super) trace: Vec<String>,
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
pub(super) const MOVES: u32 = 20_000;
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
