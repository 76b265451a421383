//! The turnstile: at each injection point, an actor waits here until the history lets it pass.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, oneshot};

/// Which actor waits at which point; clones are the same turnstile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turnstile(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The moving actor, to which the next arrival belongs, because exactly one actor moves at a time.
    moving: usize,
    waiting: Vec<Waiting>,
    /// How often each actor has arrived at a point.
    arrivals: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Waiting {
    actor: usize,
    point: String,
    pass: oneshot::Sender<()>,
}

impl Turnstile {
    /// From now on, `actor` moves.
    pub(crate) fn moves(&self, actor: usize) {
        self.state().moving = actor;
    }

    pub(crate) fn moving(&self) -> usize {
        self.state().moving
    }

    /// Waits at `point` until the history lets the moving actor pass.
    pub(crate) fn wait(&self, point: impl Into<String>) -> BoxFuture<'static, ()> {
        self.wait_as(self.moving(), point)
    }

    /// The same for a given actor.
    pub(crate) fn wait_as(&self, actor: usize, point: impl Into<String>) -> BoxFuture<'static, ()> {
        *self.state().arrivals.entry(actor).or_default() += 1;
        self.wait_beside(actor, point)
    }

    /// The same, but waiting here does not count as a move of the actor.
    pub(crate) fn wait_beside(&self, actor: usize, point: impl Into<String>) -> BoxFuture<'static, ()> {
        let (pass, passed) = oneshot::channel();
        self.state().waiting.push(Waiting { actor, point: point.into(), pass });
        self.0.arrived.notify_one();
        // If the turnstile is dropped, all actors pass.
        passed.map(|_| ()).boxed()
    }

    /// Returns when an actor has arrived at a point since the last call.
    pub(crate) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    /// The points at which an actor waits; several if it processes several workflows.
    pub(crate) fn points(&self, actor: usize) -> Vec<String> {
        let mut state = self.state();
        state.waiting.retain(|waiting| !waiting.pass.is_closed());
        state.waiting.iter().filter(|waiting| waiting.actor == actor).map(|waiting| waiting.point.clone()).collect()
    }

    /// How often an actor has arrived at a point so far.
    pub(crate) fn arrivals(&self, actor: usize) -> u64 {
        self.state().arrivals.get(&actor).copied().unwrap_or_default()
    }

    /// Lets an actor pass the `nth` of its points; returns the point.
    pub(crate) fn pass(&self, actor: usize, nth: usize) -> Option<String> {
        let mut state = self.state();
        let place = state.waiting.iter().enumerate().filter(|(_, waiting)| waiting.actor == actor).nth(nth)?.0;
        let Waiting { point, pass, .. } = state.waiting.remove(place);
        pass.send(()).ok().map(|()| point)
    }

    /// Forgets a dead actor.
    pub(crate) fn forget(&self, actor: usize) {
        let mut state = self.state();
        state.waiting.retain(|waiting| waiting.actor != actor);
        state.arrivals.remove(&actor);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
