//! A receiver of http actions in this process. It records when each due time arrived, and answers at once or later.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::any;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// A due time of a workflow, as the request names it.
pub(crate) type DueTime = (i64, String);

/// A receiver that stops with the bench.
#[derive(Clone)]
pub(crate) struct Receiver {
    url: String,
    arrivals: Arc<watch::Sender<HashMap<DueTime, Instant>>>,
    gate: Arc<Semaphore>,
    released: Arc<AtomicUsize>,
    answer: Bytes,
}

impl Receiver {
    /// A receiver that answers at once with this body.
    pub(crate) async fn answering(body: Vec<u8>) -> Receiver {
        Receiver::start(Semaphore::MAX_PERMITS, body).await
    }

    /// A receiver that answers a request only after [`Receiver::release_arrived`].
    pub(crate) async fn delayed() -> Receiver {
        Receiver::start(0, Vec::new()).await
    }

    async fn start(permits: usize, body: Vec<u8>) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Receiver {
            url: format!("http://{}", listener.local_addr().unwrap()),
            arrivals: Arc::new(watch::Sender::default()),
            gate: Arc::new(Semaphore::new(permits)),
            released: Arc::default(),
            answer: body.into(),
        };
        let router = Router::new().fallback(any(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    /// An action that calls this receiver.
    pub(crate) fn action(&self) -> Value {
        json!({"type": "http", "method": "POST", "url": self.url})
    }

    /// How many due times have arrived.
    pub(crate) fn arrived(&self) -> usize {
        self.arrivals.borrow().len()
    }

    /// Answers everything that has arrived.
    pub(crate) fn release_arrived(&self) {
        let arrived = self.arrived();
        let released = self.released.swap(arrived, Ordering::SeqCst);
        self.gate.add_permits(arrived - released);
    }

    /// Answers everything from now on.
    pub(crate) fn release_all(&self) {
        self.gate.add_permits(1_000_000);
    }

    /// When a due time arrived; `None` if it has not by `deadline`.
    pub(crate) async fn wait_for_arrival(&self, due: &DueTime, deadline: Instant) -> Option<Instant> {
        let mut arrivals = self.arrivals.subscribe();
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        tokio::time::timeout(left, arrivals.wait_for(|arrived| arrived.contains_key(due))).await.ok()?.ok()?;
        self.arrivals.borrow().get(due).copied()
    }
}

async fn receive(State(receiver): State<Receiver>, body: Bytes) -> Bytes {
    let at = Instant::now();
    let call: Value = serde_json::from_slice(&body).unwrap_or_default();
    // A manual run has no due time, so its id takes the place.
    let time = call["scheduled_time"].as_str().or(call["run_id"].as_str()).unwrap_or_default().to_owned();
    let due = (call["workflow_id"].as_i64().unwrap_or_default(), time);
    receiver.arrivals.send_modify(|arrivals| {
        arrivals.entry(due).or_insert(at);
    });
    if let Ok(permit) = receiver.gate.acquire().await {
        permit.forget();
    }
    receiver.answer.clone()
}
