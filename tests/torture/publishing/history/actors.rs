//! Starts the actors: shipped or ablated publishers, sweepers and editors.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use db::PgPool;
use local::postgres::Login;
use publisher::{Config, Hook, Publisher};

use super::{GROUP, History};
use crate::actor::{Actor, Role};
use crate::publishing::ablations::Variant;
use crate::publishing::ablations::row_publisher::RowPublisher;
use crate::publishing::editor::{Editor, Verb};

impl History<'_> {
    pub(super) async fn start_publisher(&mut self) -> Result<(), String> {
        if self.actors.iter().filter(|actor| actor.role == Role::Publisher).count() >= self.most_publishers {
            return Ok(());
        }
        let (id, process) = (self.next_id(), self.ground.process(self.publisher_login()));
        let pool = process.pool.clone();
        let (drains, secs) = (self.dice.between(1, 2), *self.dice.pick(&[45, 300]).unwrap_or(&45));
        self.note(format!("actor {id} is a publisher, {drains} drains"));
        let actor = if self.variant.is_shipped_code() {
            let (publisher, turnstile, stopwatch) =
                (self.publisher(pool), self.turnstile.clone(), self.stopwatch.clone());
            Actor::new(id, Role::Publisher, process, async move {
                for _ in 0..drains {
                    // A cut connection ends a drain, and another publisher takes over its claims.
                    publisher.drain_outbox(stopwatch.now() + Duration::from_secs(secs)).await.ok();
                    turnstile.wait("idle").await;
                }
            })
        } else {
            let publisher = RowPublisher { pool, client: self.client.clone(), turnstile: self.turnstile.clone() };
            let is_lease = self.variant == Variant::V2;
            Actor::new(id, Role::Publisher, process, async move {
                if is_lease { publisher.drain_leasing().await } else { publisher.drain_under_lock().await }.ok();
            })
        };
        self.start(actor).await
    }

    /// Starts a publisher that sweeps once, whether or not a sweep is due.
    pub(super) async fn start_sweeper(&mut self) -> Result<(), String> {
        if self.actors.iter().any(|actor| actor.role == Role::Sweeper) {
            return Ok(());
        }
        let (id, process) = (self.next_id(), self.ground.process(self.publisher_login()));
        let (publisher, stopwatch) = (self.publisher(process.pool.clone()), self.stopwatch.clone());
        self.note(format!("actor {id} sweeps"));
        let actor = Actor::new(id, Role::Sweeper, process, async move {
            if publisher.request_sweep("torture").await.is_ok() {
                publisher.sweep_schedules(stopwatch.now() + Duration::from_secs(300)).await.ok();
            }
        });
        self.start(actor).await
    }

    pub(super) async fn start_editor(&mut self) -> Result<(), String> {
        if self.actors.iter().filter(|actor| actor.role == Role::Editor).count() >= 3 {
            return Ok(());
        }
        let (id, process) = (self.next_id(), self.ground.process(Some(Login::App)));
        let pool = process.pool.clone();
        let workflows = self.oracle.lock().unwrap_or_else(PoisonError::into_inner).alive().len();
        let verb = if workflows < self.most_workflows && (workflows == 0 || self.dice.chance(0.4)) {
            Verb::Create
        } else {
            self.dice
                .weighted(&[
                    (12, Verb::Cron),
                    (4, Verb::Timezone),
                    (5, Verb::Pause),
                    (5, Verb::Resume),
                    (4, Verb::Clear),
                    (1, Verb::Archive),
                    (3, Verb::Delete),
                    (2, Verb::Nothing),
                    (4, Verb::Burst),
                    (2, Verb::CleanUp),
                    // The row-wise publishers do not support windows.
                    (if self.variant.is_shipped_code() { 4 } else { 0 }, Verb::Window),
                ])
                .unwrap_or(Verb::Cron)
        };
        self.note(format!("actor {id} is an editor: {verb:?}"));
        let editor = Editor {
            pool,
            team: self.ground.team,
            clock: self.clock.clone(),
            dice: self.dice.clone(),
            turnstile: self.turnstile.clone(),
            oracle: Arc::clone(&self.oracle),
            emission: self.variant.emission(),
        };
        self.start(Actor::new(id, Role::Editor, process, editor.edit(verb))).await
    }

    async fn start(&mut self, actor: Actor) -> Result<(), String> {
        self.actors.push(actor);
        self.go(self.actors.len() - 1, "start").await
    }

    fn next_id(&mut self) -> usize {
        self.actors_ever += 1;
        self.actors_ever
    }

    /// An ablation reads and writes what the shipped code does not, so it is the owner.
    fn publisher_login(&self) -> Option<Login> {
        self.variant.is_shipped_code().then_some(Login::Publisher)
    }

    fn publisher(&self, pool: PgPool) -> Publisher {
        let turnstile = self.turnstile.clone();
        let at = Arc::new(move |point| turnstile.wait(format!("{point:?}")));
        let hook = Hook { at, stopwatch: self.stopwatch.clone(), seed: self.dice.between(0, u64::MAX) };
        let config = Config {
            letters: publisher::DeadLetterSettings::default(),
            env: "dev".parse().unwrap(),
            runner_lambda_arn: "arn:aws:lambda:us-east-1:123456789012:function:runner".to_owned(),
            scheduler_role_arn: "arn:aws:iam::123456789012:role/scheduler".to_owned(),
            schedule_group: GROUP.to_owned(),
            schedule_dlq_arn: "arn:aws:sqs:us-east-1:123456789012:schedules-dlq".to_owned(),
            batch_size: u16::try_from(self.dice.between(1, 4)).unwrap(),
            max_attempts: *self.dice.pick(&[2, 10]).unwrap_or(&10),
            api_concurrency: u16::try_from(self.dice.between(1, 4)).unwrap(),
            api_tps: 1_000_000,
            config_generation: 0,
            fault: None,
        };
        Publisher::with_hook(config, pool, self.client.clone(), self.clock.clone(), hook)
    }
}
