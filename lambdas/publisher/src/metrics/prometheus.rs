//! Steps 3 and 4 of 7: `/metrics` of the daemon, in Prometheus' text format.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use db::PgPool;
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

use super::emf::DRIFT;
use super::{Metrics, Totals};
use crate::metrics::gauges::{Gauges, read_gauges};

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers scrapes with these counters, and with gauges from the database, until the future is dropped.
pub(crate) async fn serve_scrapes(pool: &PgPool, metrics: &Metrics, listener: TcpListener) -> Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Probably there are no file descriptors left; without a pause this loop would spin.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (pool, metrics) = (pool.clone(), metrics.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(&pool, &metrics, request));
            let connection =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), answer);
            // The log of the scraper shows a broken connection.
            let _ = connection.await;
        });
    }
}

async fn answer(
    pool: &PgPool,
    metrics: &Metrics,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, fmt::Error> {
    let (status, text) = match request.uri().path() {
        "/metrics" => {
            let gauges = read_gauges(pool, metrics.outbox_mark(), metrics.queues(), Duration::MAX).await;
            (StatusCode::OK, render(&metrics.so_far(), &gauges)?)
        }
        _ => (StatusCode::NOT_FOUND, "see /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT));
    Ok(response)
}

fn render(totals: &Totals, gauges: &Gauges) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("cronbox_publisher");
    let report = totals.report;
    for (name, help, count) in [
        ("processed", "Outbox rows settled as published", report.processed),
        ("coalesced", "Outbox rows published by the call of another row", report.coalesced),
        ("created", "Schedules created", report.created),
        ("updated", "Schedules replaced", report.updated),
        ("deleted", "Schedules deleted, or already deleted", report.deleted),
        ("unchanged", "Workflows whose schedule was already as required", report.unchanged),
        ("retried", "Workflows backed off", report.retried),
        ("failed", "Workflows that failed permanently, until their next edit", report.failed),
        ("drains_stopped", "Drains in which EventBridge refused every workflow", totals.stops),
        ("sweep_listed", "Schedules listed by finished sweeps", totals.sweep_listed),
        ("sweep_read", "Schedules read in full by finished sweeps", totals.sweep_read),
    ] {
        registry.register(name, help, ConstCounter::new(count));
    }
    let calls = Family::<[(&str, &str); 1], prometheus_client::metrics::counter::Counter>::default();
    for (answer, count) in totals.calls_by_answer() {
        calls.get_or_create(&[("answer", answer)]).inc_by(count);
    }
    registry.register("api_calls", "Calls of EventBridge's API, by how they ended", calls);
    let dropped = Family::<[(&str, &str); 1], prometheus_client::metrics::counter::Counter>::default();
    for (reason, spans) in traces::dropped_spans().by_reason() {
        dropped.get_or_create(&[("reason", reason)]).inc_by(spans);
    }
    registry.register("spans_dropped", "Spans that the collector did not get, by reason", dropped);
    let drift = Family::<[(&str, &str); 1], Gauge>::default();
    if let Some(found) = &gauges.drift {
        for class in DRIFT {
            let count = found.get(class).copied().unwrap_or_default();
            drift.get_or_create(&[("class", class)]).set(count);
        }
    }
    registry.register("drift", "Workflows whose schedule is not as published, by class", drift);
    if let Some(letters) = &gauges.dead_letters {
        let present = Family::<[(&str, &str); 1], Gauge>::default();
        for (queue, count) in &letters.present {
            present.get_or_create(&[("queue", *queue)]).set(*count);
        }
        registry.register("dead_letters", "Messages in the dead-letter queues, as last mirrored", present);
        let ages = Family::<[(&str, &str); 1], Gauge<f64, AtomicU64>>::default();
        for (queue, secs) in &letters.oldest_age_secs {
            ages.get_or_create(&[("queue", *queue)]).set(*secs);
        }
        registry.register("dead_letter_age_seconds", "Seconds since the oldest of these messages was sent", ages);
        let failed = ConstGauge::new(letters.redrives_failed);
        registry.register("dead_letter_redrives_failed", "Of these, messages whose last redrive failed", failed);
    }
    let remaining = i64::try_from(report.remaining).unwrap_or(i64::MAX);
    registry.register("remaining", "Workflows due or backed off after the last drain", ConstGauge::new(remaining));
    // A gauge that could not be read is left out, because 0 would say that everything is fine.
    for (name, help, secs) in [
        ("outbox_lag_seconds", "Age of the oldest open edit", gauges.lag_secs),
        (
            "ledger_lag_seconds",
            "Seconds by which the app's watchdog is behind its grace of 300 s; normally at most 60",
            gauges.ledger_lag_secs,
        ),
        (
            "runs_waiting_seconds",
            "Seconds for which the oldest run has waited for an executor",
            gauges.runs_waiting_secs,
        ),
        ("sweep_age_seconds", "Seconds since a sweep ended", gauges.sweeps.map(|sweeps| sweeps.age_secs)),
    ] {
        if let Some(secs) = secs {
            registry.register(name, help, ConstGauge::new(secs));
        }
    }
    let decisions = gauges.decisions;
    for (name, help, count) in [
        ("outbox_failed_rows", "Outbox rows of failed workflows", gauges.failed_rows),
        ("xmin_age", "Transactions since which vacuum removes no dead row", gauges.xmin_age),
        ("missed", "Times missed in the last hour that have not run since", decisions.map(|all| all.missed)),
        ("caught_up", "Times caught up in the last hour", decisions.map(|all| all.caught_up)),
        ("abandoned", "Times and runs abandoned in the last hour", gauges.count_abandoned()),
        ("runs_failed", "Runs of the last hour that failed or timed out", gauges.runs_failed),
        ("auto_paused", "Workflows that cronbox has paused because their runs failed", gauges.auto_paused),
        (
            "skipped_overlap",
            "Times of the last hour that did not run because of an earlier run of their workflow",
            gauges.skipped_overlap,
        ),
        ("fires_disagree", "Fires of the last hour that the published expression does not name", gauges.fires_disagree),
        ("messages_failed", "Messages of notifications that failed in the last hour", gauges.messages_failed),
        ("held", "1 while the database waits for the acceptance of its ledger", gauges.held),
        ("figures_unread", "Gauges that could not be read for this scrape", Some(gauges.unread)),
        ("orphans_refused", "Orphans that wait for force", gauges.sweeps.map(|sweeps| sweeps.orphans_refused)),
        ("changes_refused", "Changes that wait for force", gauges.sweeps.map(|sweeps| sweeps.changes_refused)),
        ("orphans_waiting", "Orphans that wait for a second check", gauges.sweeps.map(|sweeps| sweeps.orphans_waiting)),
    ] {
        if let Some(count) = count {
            registry.register(name, help, ConstGauge::new(count));
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
