//! One history of the ledger: a storm of callers, jobs, deaths and clock steps, then a calm phase, then the verdict.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use schedule::Clock;

use super::actions::Action;
use super::final_checks;
use super::instance::{Instance, Stage};
use super::leases::Leases;
use super::oracle::Observed;
use super::proof_faults;
use super::receiver::{Attending, Callers};
use crate::actor::Actor;
use crate::coverage::Coverage;
use crate::publishing::history::Outcome;
use crate::random::Dice;
use crate::turnstile::Turnstile;

/// A running history.
pub(super) struct History<'a> {
    pub(super) stage: &'a Stage,
    pub(super) dice: Dice,
    /// The database's clock.
    pub(super) clock: Clock,
    /// The seconds that have passed, without the steps of the clock.
    pub(super) passed: Arc<AtomicU64>,
    pub(super) turnstile: Turnstile,
    pub(super) observed: Arc<Mutex<Observed>>,
    pub(super) callers: Callers,
    /// The idle instances.
    pub(super) idle: Vec<Instance>,
    pub(super) actors: Vec<(Actor, Instance)>,
    pub(super) actors_ever: usize,
    /// Suspended actors, each with the recovery that must end before it continues.
    pub(super) suspended: Vec<(usize, usize)>,
    pub(super) leases: Leases,
    pub(super) profile: Profile,
    /// Whether the history is in its calm phase.
    pub(super) is_calm: bool,
    pub(super) coverage: Coverage,
    pub(super) trace: Vec<String>,
}

/// The focus of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// Fires, edits and jobs, which decide times.
    Decisions,
    /// Executors, which claim, renew, lose and hand over runs.
    Leases,
}

impl Profile {
    /// The number of instances. Executors that keep their runs must leave others free for fires and recovery.
    fn instances(self) -> usize {
        match self {
            Profile::Decisions => 3,
            Profile::Leases => 5,
        }
    }

    /// How often an executor hands over what it executes, instead of claiming more.
    pub(super) fn hand_over_chance(self) -> f64 {
        match self {
            Profile::Decisions => 0.4,
            Profile::Leases => 0.2,
        }
    }

    /// How soon a request is answered; the points of other statements have the weight 6.
    pub(super) fn weight_of_answers(self) -> u32 {
        match self {
            Profile::Decisions => 6,
            // Leases are renewed and lost, and more runs claimed, only during long calls.
            Profile::Leases => 1,
        }
    }
}

/// The kinds of events in the storm.
#[derive(Clone, Copy, Debug)]
enum Event {
    Move,
    Start(Action),
    Clock,
    /// The database's clock steps back or ahead, as after a failover; each instance learns of it later.
    ClockStep,
    Kill,
    Lose,
    Panic,
    Stall,
    Suspend,
}

/// The weights of the events in a history about decisions.
const DECISIONS: [(u32, Event); 15] = [
    (150, Event::Move),
    (26, Event::Start(Action::Fire)),
    (14, Event::Start(Action::Execute)),
    (1, Event::Start(Action::Create)),
    (5, Event::Start(Action::Edit)),
    (5, Event::Start(Action::Manual)),
    (9, Event::Start(Action::Job)),
    (2, Event::Start(Action::The("recovery"))),
    (8, Event::Clock),
    (1, Event::ClockStep),
    (4, Event::Kill),
    (2, Event::Lose),
    (1, Event::Panic),
    (1, Event::Stall),
    (1, Event::Suspend),
];

/// The weights of the events in a history about leases.
const LEASES: [(u32, Event); 15] = [
    (150, Event::Move),
    (6, Event::Start(Action::Fire)),
    (25, Event::Start(Action::Execute)),
    (1, Event::Start(Action::Create)),
    (1, Event::Start(Action::Edit)),
    (40, Event::Start(Action::FireManually)),
    (3, Event::Start(Action::Job)),
    (8, Event::Start(Action::The("recovery"))),
    (3, Event::Clock),
    (1, Event::ClockStep),
    (3, Event::Kill),
    (8, Event::Lose),
    (4, Event::Panic),
    (3, Event::Stall),
    (4, Event::Suspend),
];

/// Not a whole minute, because other tests cover what happens exactly when a time becomes due.
pub(super) const START: &str = "2026-03-02T10:00:00.5Z";
/// After this many rounds in the calm phase, everything must be at rest.
const ROUNDS: u32 = 40;
/// After this many passes, only a later time can help.
const PASSES: u32 = 200;
/// After this many moves in the calm phase, every actor must have ended.
pub(super) const MOVES: u32 = 20_000;
/// Empties the tables that are only of the ledger.
const BEFORE: &str = "
    DELETE FROM jobs;
    DELETE FROM torture_findings;
    DELETE FROM torture_started;
    DELETE FROM torture_batches;
";

/// Runs the history of one seed.
pub(crate) async fn run(stage: &Stage, seed: u64) -> Outcome {
    let mut history = History::begin(stage, seed).await;
    let verdict = async {
        history.storm().await?;
        history.calm().await?;
        history.check_leases().await?;
        history.check_at_rest().await
    };
    let bad = verdict.await.err();
    history.end(bad).await
}

impl<'a> History<'a> {
    async fn begin(stage: &'a Stage, seed: u64) -> Self {
        let start: DateTime<Utc> = START.parse().unwrap();
        let (dice, clock, turnstile) = (Dice::new(seed), Clock::fixed(start), Turnstile::default());
        stage.ground.begin(BEFORE).await;
        stage.ground.start_clock(start).await;
        let (observed, callers): (Arc<Mutex<Observed>>, _) = (Arc::default(), Callers::default());
        let profile = stage.ablation.profile(&dice);
        let fault_chance = *dice.pick(&[0.0, 0.1, 0.3]).unwrap_or(&0.0);
        stage.receiver.attend(Attending {
            turnstile: turnstile.clone(),
            dice: dice.clone(),
            observed: Arc::clone(&observed),
            callers: callers.clone(),
            fault_chance,
        });
        let mut idle = Vec::new();
        for _ in 0..profile.instances() {
            idle.push(stage.instance(&dice, start).await);
        }
        History {
            stage,
            dice,
            clock,
            passed: Arc::default(),
            turnstile,
            observed,
            callers,
            idle,
            actors: Vec::new(),
            actors_ever: 0,
            suspended: Vec::new(),
            leases: Leases::default(),
            profile,
            is_calm: false,
            coverage: Coverage::default(),
            trace: Vec::new(),
        }
    }

    /// The storm: all kinds of events.
    async fn storm(&mut self) -> Result<(), String> {
        for _ in 0..if self.profile == Profile::Leases { 4 } else { 2 } {
            self.start(Action::Create).await?;
            self.finish_all().await?;
        }
        for _ in 0..self.dice.between(400, 900) {
            self.deliver_some().await?;
            let event = match self.profile {
                Profile::Decisions => self.dice.weighted(&DECISIONS),
                Profile::Leases => self.dice.weighted(&LEASES),
            };
            match event.unwrap_or(Event::Move) {
                Event::Move => self.move_one().await?,
                Event::Start(action) => self.start(action).await?,
                Event::Clock => {
                    let span = self.dice.weighted(&[(8, (5, 65)), (3, (60, 250)), (1, (300, 900))]);
                    let (least, most) = span.unwrap_or((5, 65));
                    self.advance(self.dice.between(least, most)).await;
                }
                Event::ClockStep => self.step_clock().await,
                Event::Kill => self.kill_one().await?,
                Event::Lose => self.lose_one(),
                Event::Panic => self.panic_one(),
                Event::Stall => self.stall().await?,
                Event::Suspend => self.suspend_one().await?,
            }
        }
        Ok(())
    }

    /// The calm phase: no more faults. The clock advances, and jobs and executors run, until nothing is left to do.
    async fn calm(&mut self) -> Result<(), String> {
        self.note("calm".to_owned());
        self.is_calm = true;
        self.stage.receiver.calm();
        for instance in self.idle.iter().chain(self.actors.iter().map(|(_, instance)| instance)) {
            instance.tap.delay_nothing();
        }
        self.deliver_some().await?;
        self.finish_all().await?;
        for _ in 0..ROUNDS {
            self.advance(200).await;
            if self.come_to_rest().await? {
                return Ok(());
            }
        }
        let unrest = final_checks::unrest(&self.stage.ground.admin, self.clock.now()).await;
        Err(format!("L4: not at rest after {ROUNDS} rounds: {unrest:?}"))
    }

    /// Repeats the actions, because one can cause another: for example, a run ends and the next in the queue
    /// starts.
    async fn come_to_rest(&mut self) -> Result<bool, String> {
        let mut before = Vec::new();
        for _ in 0..PASSES {
            for action in Action::ROUND {
                self.start(action).await?;
                self.finish_all().await?;
            }
            let unrest = final_checks::unrest(&self.stage.ground.admin, self.clock.now()).await;
            if unrest.is_empty() || unrest == before {
                return Ok(unrest.is_empty());
            }
            before = unrest;
        }
        Ok(false)
    }

    async fn check_at_rest(&self) -> Result<(), String> {
        let observed = self.observed.lock().unwrap().clone();
        final_checks::ledger(&self.stage.ground.admin, &observed, self.clock.now()).await?;
        let instance = self.stage.instance(&self.dice, self.clock.now()).await;
        let (admin, now) = (&self.stage.ground.admin, self.clock.now());
        let verified = match final_checks::verified(&instance, admin, now).await {
            Ok(()) => proof_faults::found(&instance, admin, &self.dice, now).await,
            bad => bad,
        };
        self.stage.ended(instance).await;
        verified
    }

    async fn end(mut self, bad: Option<String>) -> Outcome {
        let said = final_checks::said(&self.stage.ground.admin).await;
        self.coverage.said(said.into_iter().map(|(what, count)| (what, u32::try_from(count).unwrap_or(u32::MAX))));
        let called_twice = self.observed.lock().unwrap().effects.values().filter(|effects| **effects > 1).count();
        self.coverage.said([("called twice".to_owned(), u32::try_from(called_twice).unwrap_or(u32::MAX))]);
        self.coverage.said([("started and lost".to_owned(), self.leases.lost_starts)]);
        for (actor, instance) in std::mem::take(&mut self.actors) {
            instance.tap.die();
            self.stage.ground.cut(&actor.process.name).await;
            self.turnstile.forget(actor.id);
        }
        for instance in std::mem::take(&mut self.idle) {
            self.stage.ended(instance).await;
        }
        Outcome { bad, coverage: self.coverage, trace: self.trace }
    }

    /// Advances the clock; every instance reads it.
    pub(super) async fn advance(&mut self, secs: u64) {
        self.passed.fetch_add(secs, Ordering::Relaxed);
        self.set_clock(i64::try_from(secs).unwrap_or_default()).await;
        for instance in self.idle.iter().chain(self.actors.iter().map(|(_, instance)| instance)) {
            instance.sample(self.clock.now());
        }
    }

    async fn step_clock(&mut self) {
        self.coverage.said([("clock steps".to_owned(), 1)]);
        let secs = self.dice.pick(&[-60, -20, -3, 3, 20, 60]).copied().unwrap_or_default();
        self.set_clock(secs).await;
    }

    async fn set_clock(&mut self, by_secs: i64) {
        let now = self.clock.now() + TimeDelta::seconds(by_secs);
        self.clock.set(now);
        self.stage.ground.set_clock(now).await;
        self.note(format!("it is {now}"));
    }

    pub(super) fn note(&mut self, line: String) {
        self.trace.push(line);
    }
}
