//! A server on this machine, for actions, channels and pings: it answers what the story says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::any;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A server that stops with its test.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    status: Arc<AtomicU16>,
    calls: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Server {
    /// A server that answers this status at once.
    pub(crate) async fn answering(status: u16) -> Self {
        Self::start(status, Semaphore::MAX_PERMITS).await
    }

    /// A server that answers 200 once [`Server::answer_all`] was called.
    pub(crate) async fn silent() -> Self {
        Self::start(200, 0).await
    }

    async fn start(status: u16, permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gate = Arc::new(Semaphore::new(permits));
        let server = Self { url, status: Arc::new(status.into()), calls: Arc::default(), gate };
        let router = Router::new().fallback(any(answer)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// From now on it answers this status.
    pub(crate) fn set(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// From now on it answers, also the requests that wait.
    pub(crate) fn answer_all(&self) {
        self.gate.add_permits(10_000);
    }

    /// How many requests have come.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// An action that calls it.
    pub(crate) fn action(&self) -> Value {
        json!({"type": "http", "method": "POST", "url": self.url})
    }
}

async fn answer(State(server): State<Server>) -> StatusCode {
    server.calls.fetch_add(1, Ordering::SeqCst);
    server.gate.acquire().await.unwrap().forget();
    StatusCode::from_u16(server.status.load(Ordering::SeqCst)).unwrap()
}
