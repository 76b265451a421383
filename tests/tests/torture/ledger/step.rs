//! One step of a history: somebody starts, goes on, waits, dies, or is not answered.

use std::time::{Duration, Instant};

use super::cast::Deed;
use super::history::{History, MOVES};
use super::judge;
use crate::actor::{Actor, Role, Stand};

/// Longer than Postgres takes to see that a transaction has ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

impl History<'_> {
    pub(super) async fn start(&mut self, deed: Deed) -> Result<(), String> {
        let Some(instance) = self.idle.pop() else { return Ok(()) };
        self.actors_ever += 1;
        let id = self.actors_ever;
        let Some(life) = self.life(deed, &instance).await else {
            self.idle.push(instance);
            return Ok(());
        };
        self.note(format!("actor {id} on {}: {}", instance.process.name, life.what));
        instance.tap.step(&self.turnstile, id);
        let actor = Actor::new(id, Role::Editor, instance.process.clone(), life.run);
        self.actors.push((actor, instance));
        self.go(self.actors.len() - 1).await
    }

    pub(super) async fn move_one(&mut self) -> Result<(), String> {
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

    pub(super) async fn finish_all(&mut self) -> Result<(), String> {
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
    pub(super) async fn kill_one(&mut self) -> Result<(), String> {
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
    pub(super) fn lose_one(&mut self) {
        let free: Vec<usize> = (0..self.actors.len()).filter(|n| self.actors[*n].0.stand == Stand::AtPoints).collect();
        if let Some(&place) = self.dice.pick(&free) {
            let (actor, instance) = &self.actors[place];
            instance.tap.lose_next_answer();
            let line = format!("actor {} will not hear of {:?}", actor.id, self.turnstile.points(actor.id));
            self.coverage.cut += 1;
            self.note(line);
        }
    }
}
