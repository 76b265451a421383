//! An OpenTelemetry collector: it decodes the spans that the programs send by OTLP over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;

use crate::PATIENCE;

/// What the collector does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collecting {
    /// It accepts the spans.
    Accepts,
    /// It reads the request and never answers.
    Hangs,
    /// It refuses the spans.
    Refuses,
    /// It answers 200 with bytes that are no answer.
    Lies,
}

/// A running collector.
#[derive(Clone)]
pub struct Collector {
    /// As in `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub url: String,
    collecting: Collecting,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    requests: usize,
    headers: Vec<HeaderMap>,
    spans: Vec<Collected>,
}

/// A span as a collector stores it.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The attributes of the program.
    pub resource: BTreeMap<String, String>,
    /// Its name.
    pub name: String,
    /// `SERVER`, `CLIENT`, `CONSUMER`, ..
    pub kind: String,
    /// 32 hexadecimal digits.
    pub trace: String,
    /// 16 hexadecimal digits.
    pub id: String,
    /// 16 hexadecimal digits; empty if it begins the trace.
    pub parent: String,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Whether its status is an error.
    pub is_error: bool,
}

impl Collector {
    /// Serves on a free port.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn start(collecting: Collecting) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let collector = Self { url, collecting, received: Arc::default() };
        let router = Router::new().route("/v1/traces", post(collect)).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    /// The spans so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Collected> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).spans.clone()
    }

    /// How many requests have come.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).requests
    }

    /// The headers of each request.
    #[must_use]
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).headers.clone()
    }

    /// Waits for the span of this service and name.
    ///
    /// # Panics
    /// It does not come.
    pub async fn span(&self, service: &str, name: &str) -> Collected {
        let began = Instant::now();
        loop {
            let spans = self.spans();
            let is_it = |span: &&Collected| span.resource["service.name"] == service && span.name == name;
            if let Some(span) = spans.iter().find(is_it) {
                return span.clone();
            }
            assert!(began.elapsed() < PATIENCE, "no span {name} of {service} comes: {spans:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl Collected {
    /// The attribute, empty if there is none.
    #[must_use]
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

async fn collect(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Response {
    let request = ExportTraceServiceRequest::decode(body).expect("a request of OTLP");
    {
        let mut received = collector.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.requests += 1;
        received.headers.push(headers);
        for of_resource in request.resource_spans {
            let resource = texts(of_resource.resource.unwrap_or_default().attributes);
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                received.spans.push(collected(resource.clone(), span));
            }
        }
    }
    match collector.collecting {
        Collecting::Accepts => StatusCode::OK.into_response(),
        Collecting::Hangs => std::future::pending().await,
        Collecting::Refuses => StatusCode::BAD_REQUEST.into_response(),
        Collecting::Lies => (StatusCode::OK, vec![0xff_u8; 64 * 1024]).into_response(),
    }
}

fn collected(resource: BTreeMap<String, String>, span: Span) -> Collected {
    Collected {
        resource,
        kind: span.kind().as_str_name().trim_start_matches("SPAN_KIND_").to_owned(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        is_error: span.status.as_ref().is_some_and(|status| status.code == 2),
        name: span.name,
        attributes: texts(span.attributes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|one| (one.key, text(one.value.unwrap_or_default()))).collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}
