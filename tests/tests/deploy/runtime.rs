//! Lambda's runtime API, which hands out one invocation at a time and hears what becomes of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Before a story that waits for an answer gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any invocation needs.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Lambda, for one function.
pub(crate) struct Runtime {
    /// `host:port`, as `AWS_LAMBDA_RUNTIME_API` has it.
    pub(crate) address: String,
    invocations: UnboundedSender<(Value, SystemTime)>,
    answers: UnboundedReceiver<Answer>,
}

/// What became of an invocation.
#[derive(Debug)]
pub(crate) enum Answer {
    /// What the function returned.
    Response(Value),
    /// Its error, with `errorType` and `errorMessage`.
    Error(Value),
}

struct Served {
    invocations: Mutex<UnboundedReceiver<(Value, SystemTime)>>,
    answers: UnboundedSender<Answer>,
}

impl Runtime {
    /// Serves on a port of its own.
    pub(crate) async fn start() -> Self {
        let (invocations, invoked) = unbounded_channel();
        let (answered, answers) = unbounded_channel();
        let served = Arc::new(Served { invocations: Mutex::new(invoked), answers: answered });
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answer))
            .with_state(served);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Runtime { address, invocations, answers }
    }

    /// What Lambda tells `function` of itself.
    pub(crate) fn environment(&self, function: &str) -> [(&'static str, String); 6] {
        [
            ("AWS_LAMBDA_RUNTIME_API", self.address.clone()),
            ("AWS_LAMBDA_FUNCTION_NAME", function.to_owned()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128".to_owned()),
            ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{function}")),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "s".to_owned()),
        ]
    }

    /// Invokes it with all the time that it needs.
    pub(crate) async fn invoke(&mut self, event: Value) -> Answer {
        #[expect(clippy::disallowed_methods, reason = "Lambda tells its deadline as a time of day")]
        let deadline = SystemTime::now() + TIMEOUT;
        self.invoke_until(event, deadline).await
    }

    /// Invokes it; Lambda would kill it at the deadline.
    pub(crate) async fn invoke_until(&mut self, event: Value, deadline: SystemTime) -> Answer {
        self.invocations.send((event, deadline)).unwrap();
        tokio::time::timeout(PATIENCE, self.answers.recv()).await.expect("an answer in time").unwrap()
    }
}

impl Answer {
    /// What it returned.
    #[track_caller]
    pub(crate) fn response(self) -> Value {
        match self {
            Answer::Response(value) => value,
            Answer::Error(error) => panic!("the invocation failed: {error}"),
        }
    }

    /// The message of its error.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        match self {
            Answer::Error(error) => error["errorMessage"].as_str().unwrap_or_default().to_owned(),
            Answer::Response(value) => panic!("the invocation did not fail: {value}"),
        }
    }
}

async fn next(State(served): State<Arc<Served>>) -> Response {
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
    let answer = if kind == "response" { Answer::Response(body) } else { Answer::Error(body) };
    // Nobody listens any more when the story has ended.
    drop(served.answers.send(answer));
    StatusCode::ACCEPTED
}
