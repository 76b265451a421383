//! A receiver of http actions on this machine: it records the requests, and answers as the story says.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::Value;
use tests::{PATIENCE, Story};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The time of these stories.
pub(crate) const NOON: &str = "2026-03-02T12:00:00Z";

/// A recorded request.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// How the receiver answers.
#[derive(Clone)]
enum Manner {
    /// With these answers in turn, then with 200.
    Answers(Vec<(u16, &'static str)>),
    /// With 200, as soon as the gate has a permit.
    Gate(Arc<Semaphore>),
}

/// A receiver that stops with its test.
#[derive(Clone)]
pub(crate) struct Receiver {
    received: Arc<Mutex<Vec<Received>>>,
    manner: Manner,
    pub(crate) url: String,
}

impl Receiver {
    /// A receiver that always answers 200.
    pub(crate) async fn kind() -> Self {
        Self::answering(&[]).await
    }

    /// A receiver that answers these statuses (and `retry-after`, if it is not empty) in turn, then 200.
    pub(crate) async fn answering(answers: &[(u16, &'static str)]) -> Self {
        Self::start(Manner::Answers(answers.to_vec())).await
    }

    /// A receiver that answers only after [`Receiver::let_answer`].
    pub(crate) async fn slow() -> Self {
        Self::start(Manner::Gate(Arc::new(Semaphore::new(0)))).await
    }

    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let receiver = Receiver { received: Arc::default(), manner, url };
        let router = Router::new().fallback(any(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    /// Lets a slow receiver answer this many requests.
    pub(crate) fn let_answer(&self, requests: usize) {
        if let Manner::Gate(gate) = &self.manner {
            gate.add_permits(requests);
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The bodies of the requests.
    pub(crate) fn calls(&self) -> Vec<Value> {
        self.received().iter().map(|received| serde_json::from_slice(&received.body).unwrap()).collect()
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn until(&self, requests: usize) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if self.received.lock().unwrap().len() >= requests {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {} of {requests} requests come", self.received().len());
    }

    /// An action that calls this receiver.
    pub(crate) fn action(&self) -> Value {
        serde_json::json!({"type": "http", "method": "POST", "url": self.url})
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Response {
    let nth = {
        let mut received = receiver.received.lock().unwrap();
        received.push(Received { headers, body });
        received.len() - 1
    };
    match &receiver.manner {
        Manner::Gate(gate) => {
            gate.acquire().await.unwrap().forget();
            "done".into_response()
        }
        Manner::Answers(answers) => {
            let (status, retry_after) = answers.get(nth).copied().unwrap_or((200, ""));
            let status = StatusCode::from_u16(status).unwrap();
            match retry_after {
                "" => status.into_response(),
                secs => (status, [("retry-after", secs)]).into_response(),
            }
        }
    }
}

/// Inserts an accepted manual run of a workflow, due now.
pub(crate) async fn accept(s: &Story, workflow: schedule::WorkflowId) -> uuid::Uuid {
    let (secs, nanos) = (s.clock.now().timestamp(), s.clock.now().timestamp_subsec_nanos());
    let at = uuid::Timestamp::from_unix(uuid::NoContext, u64::try_from(secs).unwrap(), nanos);
    let run = uuid::Uuid::new_v7(at);
    let accepted = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
                    VALUES ($1, $2, 'manual', 'accepted', $3, $3)";
    sqlx::query(accepted).bind(run).bind(workflow.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    run
}

/// A run, as the API returns it.
pub(crate) async fn run(s: &Story, id: uuid::Uuid) -> Value {
    s.editor().get(&format!("/api/v1/runs/{id}")).await.expect(200).json
}

/// Waits until a run has this state.
pub(crate) async fn until_state(s: &Story, id: uuid::Uuid, state: &str) -> Value {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let run = run(s, id).await;
        if run["state"] == state {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never {state}: {}", run(s, id).await);
}
