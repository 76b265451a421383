//! The receiver of the histories' actions: it counts the effects of each run, and sometimes fails.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use executor::Executor;
use executor::claim::Fence;
use serde_json::Value;

use super::oracle::{Call, Observed};
use crate::random::Dice;
use crate::turnstile::Turnstile;

/// The point at which a request waits for its answer.
pub(crate) const EFFECT: &str = "effect";

/// Clones are the same receiver.
#[derive(Clone, Default)]
pub(crate) struct Receiver(Arc<Mutex<Option<Attending>>>);

/// The history that it serves.
#[derive(Clone)]
pub(crate) struct Attending {
    pub(crate) turnstile: Turnstile,
    pub(crate) dice: Dice,
    pub(crate) observed: Arc<Mutex<Observed>>,
    pub(crate) callers: Callers,
    pub(crate) fault_chance: f64,
}

/// The executing actors, and their unanswered requests; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Callers(Arc<Mutex<Calling>>);

#[derive(Default)]
struct Calling {
    executing: Vec<(usize, Executor)>,
    open: Vec<(usize, Fence)>,
}

impl Callers {
    /// Adds an executing actor.
    pub(crate) fn begin(&self, actor: usize, executor: Executor) {
        self.calling().executing.push((actor, executor));
    }

    /// Removes an executing actor.
    pub(crate) fn end(&self, actor: usize) {
        self.calling().executing.retain(|(executing, _)| *executing != actor);
    }

    /// The attempts of an actor whose requests are unanswered.
    pub(crate) fn open(&self, actor: usize) -> Vec<Fence> {
        self.calling().open.iter().filter(|(caller, _)| *caller == actor).map(|(_, fence)| *fence).collect()
    }

    /// The actor that executes an attempt; `None` if its process is dead.
    fn executing(&self, fence: Fence) -> Option<usize> {
        let calling = self.calling();
        calling.executing.iter().find(|(_, executor)| executor.under_way().contains(&fence)).map(|(actor, _)| *actor)
    }

    fn opened(&self, actor: usize, fence: Fence) -> Open {
        self.calling().open.push((actor, fence));
        Open { callers: self.clone(), call: (actor, fence) }
    }

    fn calling(&self) -> MutexGuard<'_, Calling> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An unanswered request; dropped when its caller disconnects.
struct Open {
    callers: Callers,
    call: (usize, Fence),
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut calling = self.callers.calling();
        if let Some(place) = calling.open.iter().position(|open| *open == self.call) {
            calling.open.swap_remove(place);
        }
    }
}

impl Receiver {
    /// Listens on this thread's runtime.
    pub(crate) async fn listen() -> (Receiver, SocketAddr) {
        let receiver = Receiver::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", post(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, address)
    }

    pub(crate) fn attend(&self, attending: Attending) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(attending);
    }

    /// From now on, every action succeeds.
    pub(crate) fn calm(&self) {
        if let Some(attending) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            attending.fault_chance = 0.0;
        }
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap) -> StatusCode {
    let attending = receiver.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(Attending { turnstile, dice, observed, callers, fault_chance }) = attending else {
        return StatusCode::GONE;
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let run = header("webhook-id").and_then(|id| id.parse().ok());
    let attempt = header("x-cronbox-attempt").and_then(|attempt| attempt.parse().ok());
    let (Some(id), Some(attempt)) = (run, attempt) else { return StatusCode::BAD_REQUEST };
    let context: Value =
        header("x-cronbox-context").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let fence = Fence { id, attempt };
    // The effect comes before the answer, because the caller may die before it gets the answer.
    {
        let mut observed = observed.lock().unwrap_or_else(PoisonError::into_inner);
        let effects = observed.effects.entry(id).or_default();
        let before = std::mem::replace(effects, *effects + 1);
        observed.calls.push(Call { fence, before, is_recovery: context["is_recovery"] == true });
    }
    // The request of a dead process arrives nevertheless.
    let Some(actor) = callers.executing(fence) else { return StatusCode::GONE };
    let _open = callers.opened(actor, fence);
    turnstile.wait_as(actor, EFFECT).await;
    if dice.chance(fault_chance) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
}
