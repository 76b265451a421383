//! The export of spans: whether it is on, which program it names, and how it ends.

use std::env;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as _};
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::queue::{Flush, create_queue};

/// How long a connection to the collector may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long one try of a request may take.
const TRY_LIMIT: Duration = Duration::from_secs(5);

/// Set once, at the start of the program; never set while traces are off.
static EXPORT: OnceLock<Export> = OnceLock::new();

struct Export {
    tracer: SdkTracer,
    flushes: mpsc::UnboundedSender<Flush>,
}

/// Starts the export of this program's spans, if the environment names a collector. Call it once, within the runtime.
///
/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` replace the name and the environment. If the settings are wrong, it logs
/// why and the program continues without traces: they matter less than what the program does.
pub fn start_export(service: &'static str, environment: Option<&str>) {
    if !names_collector() {
        return;
    }
    match new_exporter() {
        Ok(exporter) => start_with(exporter, resource(service, environment)),
        Err(error) => tracing::error!(error, "traces are off, because their settings are wrong"),
    }
}

/// Sends the spans that have ended so far, but waits no longer than this.
pub async fn flush(limit: Duration) {
    let Some(export) = EXPORT.get() else { return };
    let (flush, flushed) = oneshot::channel();
    if export.flushes.send(flush).is_err() || timeout(limit, flushed).await.is_err() {
        tracing::debug!("traces not flushed in time");
    }
}

/// The tracer of this program; `None` while traces are off.
pub(crate) fn tracer() -> Option<&'static SdkTracer> {
    EXPORT.get().map(|export| &export.tracer)
}

#[expect(clippy::disallowed_methods, reason = "the variables are of no program, but of the library")]
fn names_collector() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_disabled = env::var_os("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    !is_disabled && (is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
}

fn start_with(mut exporter: SpanExporter, resource: Resource) {
    exporter.set_resource(&resource);
    let (queue, sending, flushes) = create_queue(exporter);
    // The library reads the sampler of the environment here.
    let provider = SdkTracerProvider::builder().with_resource(resource).with_span_processor(queue).build();
    if EXPORT.set(Export { tracer: provider.tracer("cronbox"), flushes }).is_ok() {
        tokio::spawn(sending.send_repeatedly());
        tracing::info!("traces are sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT");
    }
}

/// The exporter by the settings of the environment, with the TLS of every other connection. An error is one sentence.
fn new_exporter() -> Result<SpanExporter, String> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    // It follows no redirect, so that its headers reach no other server.
    let client = HyperClient::new(connector, TRY_LIMIT, None);
    SpanExporter::builder().with_http().with_http_client(client).build().map_err(|error| error.to_string())
}

/// What the program is. The environment of the process overrides it.
fn resource(service: &'static str, environment: Option<&str>) -> Resource {
    let ours = [
        ("service.name", Some(service)),
        ("service.version", Some(env!("CARGO_PKG_VERSION"))),
        ("deployment.environment.name", environment),
    ];
    let detected = Resource::builder().build();
    let is_named = |key: &'static str| {
        let named = detected.get(&Key::new(key)).map(|value| value.to_string());
        named.is_some_and(|value| !value.starts_with("unknown_service"))
    };
    let missing = ours.into_iter().filter(|(key, _)| !is_named(key));
    let missing = missing.filter_map(|(key, value)| Some(KeyValue::new(key, value?.to_owned())));
    Resource::builder().with_attributes(missing).build()
}
