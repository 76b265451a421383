//! Lambda's runtime API: it returns one invocation at a time, and receives the function's answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, watch};

use crate::PATIENCE;

/// Longer than any invocation needs.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Lambda's runtime for one function.
pub struct Runtime {
    /// `host:port`, as in `AWS_LAMBDA_RUNTIME_API`.
    pub address: String,
    invocations: UnboundedSender<(Value, SystemTime)>,
    answers: UnboundedReceiver<Ended>,
    polls: watch::Receiver<u32>,
}

/// How an invocation ended.
#[derive(Debug)]
pub enum Ended {
    /// What the function returned.
    Returned(Value),
    /// Its error, with `errorType` and `errorMessage`.
    Failed(Value),
}

struct Served {
    invocations: Mutex<UnboundedReceiver<(Value, SystemTime)>>,
    answers: UnboundedSender<Ended>,
    polls: watch::Sender<u32>,
}

impl Runtime {
    /// Serves on a free port.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn start() -> Self {
        let (invocations, invoked) = unbounded_channel();
        let (answered, answers) = unbounded_channel();
        let (polled, polls) = watch::channel(0);
        let served = Arc::new(Served { invocations: Mutex::new(invoked), answers: answered, polls: polled });
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answer))
            .with_state(served);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Runtime { address, invocations, answers, polls }
    }

    /// The environment variables that Lambda sets for `function`.
    pub fn environment(&self, function: &str) -> [(&'static str, String); 6] {
        [
            ("AWS_LAMBDA_RUNTIME_API", self.address.clone()),
            ("AWS_LAMBDA_FUNCTION_NAME", function.to_owned()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128".to_owned()),
            ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{function}")),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "s".to_owned()),
        ]
    }

    /// Returns when the function has polled for this many invocations. With the first poll, its start is complete.
    ///
    /// # Panics
    /// The function does not poll within [`PATIENCE`].
    pub async fn wait_for_polls(&mut self, times: u32) {
        let polled = tokio::time::timeout(PATIENCE, self.polls.wait_for(|polls| *polls >= times)).await;
        drop(polled.expect("a poll in time").expect("a server"));
    }

    /// Invokes the function with a deadline that it does not reach.
    ///
    /// # Panics
    /// The function does not answer.
    pub async fn invoke(&mut self, event: Value) -> Ended {
        #[expect(clippy::disallowed_methods, reason = "Lambda gives its deadline as a time of day")]
        let deadline = SystemTime::now() + TIMEOUT;
        self.invoke_until(event, deadline).await
    }

    /// Invokes the function with this deadline, at which Lambda would kill it. Here nothing does.
    ///
    /// # Panics
    /// The function does not answer.
    pub async fn invoke_until(&mut self, event: Value, deadline: SystemTime) -> Ended {
        self.invocations.send((event, deadline)).expect("a server");
        tokio::time::timeout(PATIENCE, self.answers.recv()).await.expect("an answer in time").expect("a server")
    }
}

impl Ended {
    /// The value that the function returned.
    ///
    /// # Panics
    /// The function failed.
    #[track_caller]
    pub fn returned(self) -> Value {
        match self {
            Ended::Returned(value) => value,
            Ended::Failed(error) => panic!("the invocation failed: {error}"),
        }
    }

    /// The message of the function's error.
    ///
    /// # Panics
    /// The function did not fail.
    #[track_caller]
    pub fn failed(self) -> String {
        match self {
            Ended::Failed(error) => error["errorMessage"].as_str().unwrap_or_default().to_owned(),
            Ended::Returned(value) => panic!("the invocation did not fail: {value}"),
        }
    }
}

async fn next(State(served): State<Arc<Served>>) -> Response {
    served.polls.send_modify(|polls| *polls += 1);
    let Some((event, deadline)) = served.invocations.lock().await.recv().await else {
        return StatusCode::GONE.into_response();
    };
    let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis().to_string();
    let headers = [
        ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd".to_owned()),
        ("lambda-runtime-deadline-ms", deadline),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:f".to_owned()),
    ];
    (headers, Json(event)).into_response()
}

async fn answer(
    State(served): State<Arc<Served>>,
    Path((_, kind)): Path<(String, String)>,
    body: String,
) -> StatusCode {
    // Lambda's client names no content type.
    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    let ended = if kind == "response" { Ended::Returned(body) } else { Ended::Failed(body) };
    // The story may have ended, and then the channel is closed.
    drop(served.answers.send(ended));
    StatusCode::ACCEPTED
}
