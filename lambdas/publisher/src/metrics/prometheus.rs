//! Steps 3 and 4 of 7: `/metrics` of the daemon, in Prometheus' text form.

use std::convert::Infallible;
use std::fmt;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::Totals;
use crate::Publisher;
use crate::levels::{self, Levels};

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers scrapes for as long as it is polled.
pub(crate) async fn serve(publisher: &Publisher, listener: TcpListener) -> Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely; without a pause this would spin.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let publisher = publisher.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(&publisher, request));
            let connection =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), answer);
            // A scraper that hangs up has its own log.
            let _ = connection.await;
        });
    }
}

async fn answer(publisher: &Publisher, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, fmt::Error> {
    let (status, text) = match request.uri().path() {
        "/metrics" => match levels::read(publisher.pool()).await {
            Ok(levels) => (StatusCode::OK, render(&publisher.metrics().so_far(), &levels)?),
            Err(error) => {
                tracing::warn!(%error, "the outbox cannot be measured");
                (StatusCode::SERVICE_UNAVAILABLE, "the database is away\n".to_owned())
            }
        },
        _ => (StatusCode::NOT_FOUND, "see /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT));
    Ok(response)
}

fn render(totals: &Totals, levels: &Levels) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("cronbox_publisher");
    let report = totals.report;
    for (name, help, count) in [
        ("processed", "Outbox rows settled as published", report.processed),
        ("coalesced", "Outbox rows that cost no call of their own", report.coalesced),
        ("created", "Schedules created", report.created),
        ("updated", "Schedules replaced", report.updated),
        ("deleted", "Schedules deleted, or found to be gone", report.deleted),
        ("unchanged", "Workflows whose schedule already stood as wanted", report.unchanged),
        ("retried", "Workflows backed off", report.retried),
        ("failed", "Workflows given up until their next edit", report.failed),
        ("drains_stopped", "Drains stopped because EventBridge refused everybody", totals.stops),
    ] {
        registry.register(name, help, ConstCounter::new(count));
    }
    let calls = Family::<[(&str, &str); 1], prometheus_client::metrics::counter::Counter>::default();
    for (answer, count) in totals.calls() {
        calls.get_or_create(&[("answer", answer)]).inc_by(count);
    }
    registry.register("api_calls", "Calls of EventBridge's API, by how they ended", calls);
    let drift = Family::<[(&str, String); 1], Gauge>::default();
    for (class, count) in &levels.drift {
        drift.get_or_create(&[("class", class.clone())]).set(*count);
    }
    registry.register("drift", "Workflows whose schedule is not as published, by class", drift);
    let remaining = i64::try_from(report.remaining).unwrap_or(i64::MAX);
    registry.register("remaining", "Workflows due or backed off after the last drain", ConstGauge::new(remaining));
    registry.register("outbox_lag_seconds", "Age of the oldest open edit", ConstGauge::new(levels.lag_secs));
    registry.register("outbox_failed_rows", "Rows of workflows that are given up", ConstGauge::new(levels.failed_rows));
    let ledger = levels.ledger;
    registry.register("ledger_lag_seconds", "How far the app's watchdog is behind", ConstGauge::new(ledger.lag_secs));
    for (name, help, count) in [
        ("missed", "Times missed in the last hour, that nobody has run since", ledger.missed),
        ("caught_up", "Times caught up in the last hour", ledger.caught_up),
        ("abandoned", "Times and runs given up in the last hour", ledger.abandoned),
    ] {
        registry.register(name, help, ConstGauge::new(count));
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
