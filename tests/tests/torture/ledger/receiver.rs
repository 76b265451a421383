//! Where the actions of the histories arrive: it counts each run's effects, and fails now and then.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;

use super::oracle::Heard;
use crate::dice::Dice;
use crate::turnstile::Turnstile;

/// Clones are the same receiver.
#[derive(Clone, Default)]
pub(crate) struct Receiver(Arc<Mutex<Option<Attending>>>);

/// Which history it attends to.
#[derive(Clone)]
pub(crate) struct Attending {
    pub(crate) turnstile: Turnstile,
    pub(crate) dice: Dice,
    pub(crate) heard: Arc<Mutex<Heard>>,
    pub(crate) fault_chance: f64,
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

    /// From now on every action succeeds.
    pub(crate) fn calm(&self) {
        if let Some(attending) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            attending.fault_chance = 0.0;
        }
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap) -> StatusCode {
    let attending = receiver.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(Attending { turnstile, dice, heard, fault_chance }) = attending else { return StatusCode::GONE };
    // The effect comes before the answer, which the caller may not live to see.
    if let Some(run) = headers.get("webhook-id").and_then(|id| id.to_str().ok()?.parse().ok()) {
        *heard.lock().unwrap_or_else(PoisonError::into_inner).effects.entry(run).or_default() += 1;
    }
    turnstile.wait("effect").await;
    if dice.chance(fault_chance) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
}
