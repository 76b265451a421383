//! One history: a storm of actors, faults, kills and clock steps, then a calm phase, then the verdict.

mod actors;
mod console_changes;
mod step;
mod vanished_rows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use local::clock_and_zones::stand_in_clock;
use publisher::Stopwatch;
use schedule::Clock;
use serde_json::{Value, json};
use stand_in::scheduler::groups::NewGroup;
use stand_in::scheduler::list::Filter;
use stand_in::scheduler::views::ScheduleView;
use stand_in::scheduler::{Options, Scheduler, api};

use crate::actor::Actor;
use crate::coverage::Coverage;
use crate::database::Ground;
use crate::publishing::ablations::Variant;
use crate::publishing::invariants::{Watch, outbox_is_complete, unrest};
use crate::publishing::oracle::{Oracle, plain};
use crate::publishing::wire::Wire;
use crate::random::Dice;
use crate::turnstile::Turnstile;

/// The result of a history.
pub(crate) struct Outcome {
    /// The first violation; `None` = no violation.
    pub(crate) bad: Option<String>,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Vec<String>,
}

/// A running history.
pub(crate) struct History<'a> {
    ground: &'a Ground,
    variant: Variant,
    dice: Dice,
    clock: Clock,
    stopwatch: Stopwatch,
    turnstile: Turnstile,
    wire: Wire,
    client: aws_sdk_scheduler::Client,
    scheduler: Scheduler,
    oracle: Arc<Mutex<Oracle>>,
    watch: Watch,
    actors: Vec<Actor>,
    actors_ever: usize,
    most_publishers: usize,
    most_workflows: usize,
    coverage: Coverage,
    trace: Vec<String>,
    sweeping: Sweeping,
    vanishing: Vanishing,
    /// Whether the rows of `workflows` are missing now.
    has_vanished: bool,
}

/// The kinds of events in the storm.
#[derive(Clone, Copy, Debug)]
enum Event {
    Move,
    Publisher,
    Editor,
    Clock,
    Arrival,
    Kill,
    Cut,
    Sweeper,
    Hand,
    Vanish,
}

/// Whether the history has sweeps, and changes that the sweeps must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweeping {
    /// No sweeps: drains must get it right without them.
    Off,
    On,
    /// Also manual changes in Scheduler.
    WithHands,
}

/// Whether rows of `workflows` vanish without the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vanishing {
    Off,
    On,
}

/// After this many drains in the calm phase, all publications must be at rest.
const ROUNDS: u32 = 60;
/// How often publishers drain in the calm phase before the vanished rows return.
const DRAINS_WITHOUT_ROWS: u32 = 3;
/// After this many sweeps in the calm phase, manual changes must be repaired.
const SWEEPS: u32 = 4;
/// After this many moves in the calm phase, every actor must have ended.
const MOVES: u32 = 5_000;

/// Runs the history of one seed.
pub(crate) async fn run(ground: &Ground, seed: u64, variant: Variant) -> Outcome {
    let mut history = History::begin(ground, seed, variant).await;
    let verdict = async {
        history.storm().await?;
        history.calm().await?;
        history.check_at_rest().await
    };
    let bad = verdict.await.err();
    history.end(bad).await
}

impl<'a> History<'a> {
    async fn begin(ground: &'a Ground, seed: u64, variant: Variant) -> Self {
        let start: DateTime<Utc> = "2026-03-02T10:00:00Z".parse().unwrap();
        let (dice, clock, turnstile) = (Dice::new(seed), Clock::fixed(start), Turnstile::default());
        ground.begin(variant.setup()).await;
        ground.start_clock(start).await;
        let scheduler = Scheduler::new(Options::default(), stand_in_clock(&clock));
        let group = NewGroup { name: GROUP.to_owned(), tags: Vec::new(), client_token: None };
        scheduler.lock_store().create_group(group, start).unwrap();
        let router = api::scheduler_router(scheduler.clone());
        let wire = Wire::new(router, turnstile.clone(), dice.clone(), clock.clone(), variant.window());
        let sweeping = match variant {
            Variant::Shipped => {
                *dice.pick(&[Sweeping::Off, Sweeping::On, Sweeping::WithHands]).unwrap_or(&Sweeping::Off)
            }
            _ => Sweeping::Off,
        };
        let vanishing = if variant.vanishes(&dice) { Vanishing::On } else { Vanishing::Off };
        wire.fault_chance(*dice.pick(variant.fault_chances()).unwrap_or(&0.0));
        History {
            client: wire.client().await,
            most_publishers: *dice.pick(&[1, 2, 2, 3, 4, 8]).unwrap_or(&2),
            most_workflows: *dice.pick(variant.workflows()).unwrap_or(&2),
            stopwatch: Stopwatch::new_stopped(),
            oracle: Arc::default(),
            watch: Watch::default(),
            actors: Vec::new(),
            actors_ever: 0,
            coverage: Coverage::default(),
            trace: Vec::new(),
            sweeping,
            vanishing,
            has_vanished: false,
            ground,
            variant,
            dice,
            clock,
            turnstile,
            wire,
            scheduler,
        }
    }

    /// The storm: all kinds of events.
    async fn storm(&mut self) -> Result<(), String> {
        let (sweepers, hands) = match self.sweeping {
            Sweeping::Off => (0, 0),
            Sweeping::On => (4, 0),
            Sweeping::WithHands => (4, 3),
        };
        for _ in 0..self.dice.between(150, 400) {
            // Not for long, because without rows the editors have nothing to edit.
            let vanishing = match (self.vanishing, self.has_vanished) {
                (Vanishing::Off, _) => 0,
                (Vanishing::On, false) => 2,
                (Vanishing::On, true) => self.variant.return_weight(),
            };
            let event = self.dice.weighted(&[
                (150, Event::Move),
                (12, Event::Publisher),
                (14, Event::Editor),
                (6, Event::Clock),
                (4, Event::Arrival),
                (4, Event::Kill),
                (1, Event::Cut),
                (sweepers, Event::Sweeper),
                (hands, Event::Hand),
                (vanishing, Event::Vanish),
            ]);
            match event.unwrap_or(Event::Move) {
                Event::Move => self.move_one().await?,
                // Idle publishers prove little.
                Event::Publisher if self.dice.chance(0.2) || !self.unrest().await.is_empty() => {
                    self.start_publisher().await?;
                }
                Event::Publisher => {}
                Event::Editor => self.start_editor().await?,
                Event::Clock => {
                    let secs = self.dice.weighted(&[(6, (1, 8)), (4, (20, 70)), (2, (300, 1300))]).unwrap_or((1, 8));
                    let secs = self.dice.between(secs.0, secs.1);
                    self.advance(Duration::from_secs(secs)).await;
                }
                Event::Arrival => self.let_arrive().await,
                Event::Kill => self.kill_one().await?,
                Event::Cut => self.cut_one().await,
                Event::Sweeper => self.start_sweeper().await?,
                Event::Hand => self.change_manually().await,
                Event::Vanish => self.vanish_or_return().await,
            }
        }
        Ok(())
    }

    /// The calm phase: no more faults. The remaining actors end, and then publishers drain until nothing is left to do.
    async fn calm(&mut self) -> Result<(), String> {
        self.note("calm".to_owned());
        self.wire.fault_chance(0.0);
        if self.has_vanished {
            self.drain_without_rows().await?;
        }
        self.return_rows().await;
        self.finish_all().await?;
        self.come_to_rest().await?;
        if self.sweeping == Sweeping::Off { Ok(()) } else { self.sweep_clean().await }
    }

    /// No edit follows that could repair what the publishers do now.
    async fn drain_without_rows(&mut self) -> Result<(), String> {
        self.finish_all().await?;
        for _ in 0..DRAINS_WITHOUT_ROWS {
            self.wait_for_work(false).await;
            self.start_publisher().await?;
            self.finish_all().await?;
        }
        Ok(())
    }

    async fn come_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            if self.dice.chance(0.3) {
                self.let_arrive().await;
            }
            let is_at_rest = self.unrest().await.is_empty();
            if is_at_rest && self.wire.late() == 0 {
                return Ok(());
            }
            self.wait_for_work(is_at_rest).await;
            self.start_publisher().await?;
            self.finish_all().await?;
        }
        Err(format!("L6: not at rest after {ROUNDS} drains: {:?}", self.unrest().await))
    }

    /// A few sweeps must repair any change; the first may be one that started long ago.
    async fn sweep_clean(&mut self) -> Result<(), String> {
        for _ in 0..SWEEPS {
            // An orphan is deleted after it was seen twice, ten minutes apart.
            self.advance(Duration::from_secs(11 * 60)).await;
            self.start_sweeper().await?;
            self.finish_all().await?;
            self.come_to_rest().await?;
            if self.differences().is_empty() {
                return Ok(());
            }
        }
        Err(format!("L1: not repaired after {SWEEPS} sweeps: {:?}", self.differences()))
    }

    fn differences(&self) -> Vec<String> {
        let oracle = self.oracle.lock().unwrap_or_else(PoisonError::into_inner);
        oracle.differences(&self.existing_schedules(), self.clock.now())
    }

    /// Checks L1, L2, L3 and S5.
    async fn check_at_rest(&mut self) -> Result<(), String> {
        let differences = self.differences();
        if !differences.is_empty() {
            return Err(format!("L1: {}", differences.join("; ")));
        }
        if self.variant.is_shipped_code() { outbox_is_complete(&self.ground.admin).await } else { Ok(()) }
    }

    async fn end(mut self, bad: Option<String>) -> Outcome {
        for actor in std::mem::take(&mut self.actors) {
            self.ground.cut(&actor.process.name).await;
        }
        self.coverage.met(&self.wire.met());
        self.coverage.takeovers_of_the_living += self.watch.takeovers_of_the_living;
        Outcome { bad, coverage: self.coverage, trace: self.trace }
    }

    async fn unrest(&self) -> Vec<String> {
        let unrest = unrest(&self.ground.admin).await;
        if self.variant.is_shipped_code() {
            return unrest;
        }
        unrest.into_iter().filter(|line| line.starts_with("outbox row")).collect()
    }

    /// Advances the clock to the next due publication, or to the time at which no late request can arrive.
    async fn wait_for_work(&mut self, is_at_rest: bool) {
        let next: Option<DateTime<Utc>> = sqlx::query_scalar(
            "SELECT MIN(CASE WHEN lease_until > cronbox_now() THEN lease_until ELSE due_at END)
               FROM publications WHERE due_at IS NOT NULL",
        )
        .fetch_one(&mut *self.ground.admin.connection().await)
        .await
        .unwrap();
        let until = match next {
            _ if is_at_rest => self.wire.last_death(),
            next if self.variant.is_shipped_code() => next,
            _ => Some(self.clock.now() + TimeDelta::seconds(61)),
        };
        let wait = until.map_or(TimeDelta::zero(), |until| until - self.clock.now()) + TimeDelta::seconds(1);
        if is_at_rest {
            // Some late requests arrive.
            while self.wire.late() > 0 && self.dice.chance(0.9) {
                self.let_arrive().await;
            }
        }
        self.advance(wait.to_std().unwrap_or(Duration::from_secs(1))).await;
    }

    /// Moves all actors until they have ended.
    async fn finish_all(&mut self) -> Result<(), String> {
        for _ in 0..MOVES {
            if self.actors.is_empty() {
                return Ok(());
            }
            self.move_one().await?;
        }
        Err(format!("L6: actors that never end: {:?}", self.points()))
    }

    fn existing_schedules(&self) -> BTreeMap<String, Value> {
        let all = Filter { group: Some(GROUP.to_owned()), ..Filter::default() };
        let page = self.scheduler.lock_store().list_schedules(&all, None, 1_000).unwrap();
        page.items.iter().map(|schedule| plain(json!(ScheduleView::from(&**schedule)), self.clock.now())).collect()
    }

    fn note(&mut self, what: String) {
        self.trace.push(what);
    }
}

const GROUP: &str = "cronbox-test";
