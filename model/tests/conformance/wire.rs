//! The wire between one publisher and EventBridge: each request stops here, and the walk decides what happens to it.

use std::fmt;

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::config::timeout::TimeoutConfig;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use axum::Router;
use axum::body::{Body, to_bytes};
use publisher::Point;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tower::ServiceExt as _;

/// Where a publisher has stopped.
pub(crate) enum Stop {
    /// At a point of its own.
    At(Point, oneshot::Sender<()>),
    /// Behind a request that it has signed.
    OnWire(Sent, oneshot::Sender<Option<Reply>>),
}

/// A signed request.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: String,
    uri: String,
    body: Vec<u8>,
}

/// An answer: its status and its body.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone)]
struct Wire(UnboundedSender<Stop>);

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let sent = Sent {
            method: request.method().to_owned(),
            uri: request.uri().to_owned(),
            body: request.body().bytes().unwrap_or_default().to_vec(),
        };
        let (answer, answered) = oneshot::channel();
        // The walk may have ended.
        self.0.send(Stop::OnWire(sent, answer)).ok();
        HttpConnectorFuture::new(async move {
            let reply = answered.await.ok().flatten();
            reply.map(Reply::into_response).ok_or_else(|| ConnectorError::timeout("no answer came".into()))
        })
    }
}

/// A client like the publisher's own, which uses this wire and has no timeouts.
pub(crate) async fn client(stops: UnboundedSender<Stop>) -> Client {
    let wire = SharedHttpConnector::new(Wire(stops));
    let config = publisher::scheduler_client(Some("http://wire")).await.config().to_builder();
    let config = config.http_client(http_client_fn(move |_, _| wire.clone())).timeout_config(TimeoutConfig::disabled());
    Client::from_conf(config.build())
}

impl Sent {
    /// A request of the walk itself.
    pub(crate) fn get(uri: String) -> Self {
        Self { method: "GET".to_owned(), uri, body: Vec::new() }
    }

    /// Lets EventBridge execute the request.
    pub(crate) async fn execute(&self, router: &Router) -> Reply {
        let request = axum::http::Request::builder().method(&*self.method).uri(&self.uri);
        let request = request.body(Body::from(self.body.clone())).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let typed = response.headers().get("x-amzn-errortype").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec();
        match typed {
            Some(typed) => Reply::refusal(status, &typed, &String::from_utf8_lossy(&body)),
            None => Reply { status, body },
        }
    }
}

impl Reply {
    /// A refusal in Scheduler's protocol.
    pub(crate) fn refusal(status: u16, typed: &str, message: &str) -> Self {
        let body = serde_json::json!({"__type": typed, "Message": message}).to_string().into_bytes();
        Self { status, body }
    }

    fn into_response(self) -> HttpResponse {
        HttpResponse::new(StatusCode::try_from(self.status).unwrap(), self.body.into())
    }
}
