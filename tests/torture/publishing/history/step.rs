//! One step: an actor moves, dies or loses its connection, time passes, or a late request arrives.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use chrono::TimeDelta;

use super::History;
use crate::actor::{Actor, Locks, Position, Role};

/// Longer than Postgres needs to see that a transaction has ended. Postgres would end a deadlock itself.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// The points that actors pass most rarely.
const RARE: [&str; 3] = ["P13", "C1", "C2"];

impl History<'_> {
    pub(super) async fn move_one(&mut self) -> Result<(), String> {
        // An edit that moves less often keeps its locks for longer, so that publishers meet them.
        let haste = |points: &[String]| if points.iter().any(|point| point == "E2") { 1 } else { 3 };
        let Some(place) = self.any_at_points(haste) else { return self.wait_for_a_lock().await };
        let id = self.actors[place].id;
        let nth = self.dice.below(self.turnstile.points(id).len());
        let point = self.turnstile.pass(id, nth).unwrap_or_default();
        self.note(format!("actor {id} passes {point}"));
        self.go(place, &point).await
    }

    /// One of the actors that can continue, weighted by the points at which it waits.
    fn any_at_points(&self, weight: impl Fn(&[String]) -> u32) -> Option<usize> {
        let free = (0..self.actors.len()).filter(|n| self.actors[*n].position == Position::AtPoints);
        let weighted: Vec<_> = free.map(|n| (weight(&self.turnstile.points(self.actors[n].id)), n)).collect();
        self.dice.weighted(&weighted)
    }

    /// All remaining actors wait for locks. The owners of these locks have ended, and Postgres releases them after some
    /// time.
    async fn wait_for_a_lock(&mut self) -> Result<(), String> {
        let waited = Instant::now();
        while !self.actors.is_empty() {
            for place in 0..self.actors.len() {
                if !self.ground.waits_for_lock(&self.actors[place].process.name).await {
                    return self.go(place, "lock").await;
                }
            }
            if waited.elapsed() > LOCK_PATIENCE {
                return Err(format!("all wait for locks: {:?}", self.points()));
            }
        }
        Ok(())
    }

    /// Lets one actor continue, and then those that it had blocked.
    pub(super) async fn go(&mut self, place: usize, from: &str) -> Result<(), String> {
        let mut movers = vec![self.actors[place].id];
        let locks = if self.actors.len() > 1 { Locks::Possible } else { Locks::Impossible };
        self.actors[place].go(&self.turnstile, self.ground, locks).await;
        for actor in &mut self.actors {
            if actor.position == Position::AtLock && !self.ground.waits_for_lock(&actor.process.name).await {
                actor.go(&self.turnstile, self.ground, Locks::Possible).await;
                movers.push(actor.id);
            }
        }
        self.check_step(movers, from).await
    }

    /// Checks the invariants after a step.
    async fn check_step(&mut self, mut movers: Vec<usize>, from: &str) -> Result<(), String> {
        let publishers = |actor: &&Actor| actor.role != Role::Editor;
        let of_publishers: BTreeSet<usize> = self.actors.iter().filter(publishers).map(|actor| actor.id).collect();
        // Between the points around a call, no publisher has a connection.
        let around_a_call = |point: &str| ["P6", "P7", "P8", "P11"].contains(&point);
        let is_call = matches!(*movers, [mover] if around_a_call(from) && {
            let points = self.turnstile.points(mover);
            !points.is_empty() && points.iter().all(|point| around_a_call(point))
        });
        movers.retain(|mover| of_publishers.contains(mover));
        let alive =
            self.actors.iter().filter(|actor| actor.position != Position::Ended).map(|actor| actor.id).collect();
        if self.variant.is_shipped_code() && !is_call {
            self.watch.check(&self.ground.admin, &movers, &alive).await?;
        }
        let signed = self.wire.take_signed();
        if self.variant.is_shipped_code() {
            for (actor, workflow) in signed {
                self.watch.signed(actor, workflow)?;
            }
            for actor in self.actors.iter().filter(|actor| movers.contains(&actor.id)) {
                let calls = self.turnstile.points(actor.id).iter().any(|point| point == "P7");
                if calls && self.ground.is_in_transaction(&actor.process.name).await {
                    return Err(format!("S9: actor {} calls with a transaction open", actor.id));
                }
            }
        }
        while let Some(place) = self.actors.iter().position(|actor| actor.position == Position::Ended) {
            let Actor { id, process, .. } = self.actors.remove(place);
            self.ground.ended(process);
            self.note(format!("actor {id} has ended"));
        }
        Ok(())
    }

    /// SIGKILL: the actor's code stops, its connections break, and its requests in flight may still arrive.
    pub(super) async fn kill_one(&mut self) -> Result<(), String> {
        // At rare points, an actor is killed more often.
        let danger = |points: &[String]| if points.iter().any(|point| RARE.contains(&point.as_str())) { 20 } else { 1 };
        let Some(place) = self.any_at_points(danger) else { return Ok(()) };
        let actor = self.actors.remove(place);
        let points = self.turnstile.points(actor.id);
        self.note(format!("actor {} is killed at {points:?}", actor.id));
        self.coverage.killed(&points);
        self.ground.cut(&actor.process.name).await;
        self.turnstile.forget(actor.id);
        let id = actor.id;
        drop(actor);
        self.wire.orphan(id).await;
        for place in 0..self.actors.len() {
            if self.actors[place].position == Position::AtLock {
                return self.go(place, "lock").await;
            }
        }
        Ok(())
    }

    /// The server closes an actor's connection, and the actor continues.
    pub(super) async fn cut_one(&mut self) {
        let Some(actor) = self.dice.pick(&(0..self.actors.len()).collect::<Vec<_>>()).map(|n| &self.actors[*n]) else {
            return;
        };
        if actor.position == Position::AtPoints {
            let (id, points) = (actor.id, self.turnstile.points(actor.id));
            self.ground.cut(&actor.process.name).await;
            self.coverage.cut += 1;
            self.note(format!("actor {id} at {points:?} loses its connection"));
        }
    }

    pub(super) async fn let_arrive(&mut self) {
        if let Some(arrived) = self.wire.arrive().await {
            self.coverage.arrived += 1;
            self.note(format!("a late request arrives: {arrived}"));
        }
    }

    pub(super) async fn advance(&mut self, by: Duration) {
        let now = self.clock.now() + TimeDelta::from_std(by).unwrap_or_default();
        self.clock.set(now);
        self.stopwatch.advance_by(by);
        self.ground.set_clock(now).await;
        self.watch.time_passes(&self.ground.admin).await;
        self.note(format!("it is {now}"));
    }

    pub(super) fn points(&self) -> Vec<(usize, Position, Vec<String>)> {
        self.actors.iter().map(|actor| (actor.id, actor.position, self.turnstile.points(actor.id))).collect()
    }
}
