//! Steps 3 and 4 of 7: CloudWatch's embedded metric format: one line on stdout is a set of metrics.
//!
//! The line must not have a prefix, and `_aws` must be at its root, so it bypasses the log. It needs no permission and
//! no call.

use chrono::{DateTime, Utc};
use schedule::Environment;
use serde_json::{Map, Value, json};
use traces::Dropped;

use super::Totals;
use crate::metrics::gauges::Gauges;

const NAMESPACE: &str = "cronbox";
/// Classes of drift, so that a class without drift is reported as 0.
pub(super) const DRIFT: [&str; 5] = ["missing", "orphan", "changed", "stale_template", "disabled_out_of_band"];

/// Returns the counters of one invocation, with the spans that it or the last flush dropped, and the gauges of outbox and ledger after it.
pub(crate) fn render_emf_line(
    env: &Environment,
    totals: &Totals,
    dropped: Dropped,
    gauges: &Gauges,
    now: DateTime<Utc>,
) -> Value {
    let mut values = Map::new();
    let mut definitions = Vec::new();
    for (name, unit, value) in metrics(totals, dropped, gauges) {
        definitions.push(json!({"Name": name, "Unit": unit}));
        values.insert(name, value);
    }
    let directive = json!({"Namespace": NAMESPACE, "Dimensions": [["Env"]], "Metrics": definitions});
    values.insert("_aws".to_owned(), json!({"Timestamp": now.timestamp_millis(), "CloudWatchMetrics": [directive]}));
    values.insert("Env".to_owned(), json!(env.to_string()));
    Value::Object(values)
}

fn metrics(totals: &Totals, dropped: Dropped, gauges: &Gauges) -> Vec<(String, &'static str, Value)> {
    let report = totals.report;
    let counts = [
        ("processed", report.processed),
        ("coalesced", report.coalesced),
        ("created", report.created),
        ("updated", report.updated),
        ("deleted", report.deleted),
        ("unchanged", report.unchanged),
        ("retried", report.retried),
        ("failed", report.failed),
        ("remaining", report.remaining),
        ("DrainsStopped", totals.stops),
        ("SweepListed", totals.sweep_listed),
        ("SweepRead", totals.sweep_read),
        ("SpansDropped", dropped.queue_full + dropped.not_delivered),
    ];
    let mut metrics: Vec<_> =
        counts.into_iter().map(|(name, count)| (name.to_owned(), "Count", json!(count))).collect();
    metrics
        .extend(totals.calls_by_answer().map(|(answer, count)| (format!("ApiCalls_{answer}"), "Count", json!(count))));
    let seconds = [
        ("OutboxLagSeconds", gauges.lag_secs),
        ("LedgerLagSeconds", gauges.ledger_lag_secs),
        ("RunsWaitingSeconds", gauges.runs_waiting_secs),
        ("SweepAgeSeconds", gauges.sweeps.map(|sweeps| sweeps.age_secs)),
    ];
    let counts = [
        ("OutboxFailedRows", gauges.failed_rows),
        ("XminAge", gauges.xmin_age),
        ("Missed", gauges.decisions.map(|decisions| decisions.missed)),
        ("CaughtUp", gauges.decisions.map(|decisions| decisions.caught_up)),
        ("Abandoned", gauges.count_abandoned()),
        ("RunsFailed", gauges.runs_failed),
        ("AutoPaused", gauges.auto_paused),
        ("SkippedOverlap", gauges.skipped_overlap),
        ("FiresDisagree", gauges.fires_disagree),
        ("MessagesFailed", gauges.messages_failed),
        ("OrphansRefused", gauges.sweeps.map(|sweeps| sweeps.orphans_refused)),
        ("ChangesRefused", gauges.sweeps.map(|sweeps| sweeps.changes_refused)),
        ("OrphansWaiting", gauges.sweeps.map(|sweeps| sweeps.orphans_waiting)),
        ("Held", gauges.held),
        ("FiguresUnread", Some(gauges.unread)),
        ("DriftCount", gauges.drift.as_ref().map(|drift| drift.values().sum())),
    ];
    // A gauge that could not be read is left out, because 0 would say that everything is fine.
    let seconds = seconds.into_iter().filter_map(|(name, secs)| Some((name.to_owned(), "Seconds", json!(secs?))));
    metrics.extend(seconds);
    metrics.extend(counts.into_iter().filter_map(|(name, count)| Some((name.to_owned(), "Count", json!(count?)))));
    if let Some(drift) = &gauges.drift {
        metrics.extend(DRIFT.map(|class| {
            let count = drift.get(class).copied().unwrap_or_default();
            (format!("Drift_{class}"), "Count", json!(count))
        }));
    }
    if let Some(letters) = &gauges.dead_letters {
        let present =
            letters.present.iter().map(|(queue, count)| (format!("DeadLetters_{queue}"), "Count", json!(count)));
        metrics.extend(present);
        let ages = letters.oldest_age_secs.iter();
        metrics.extend(ages.map(|(queue, secs)| (format!("DeadLetterAgeSeconds_{queue}"), "Seconds", json!(secs))));
        metrics.push(("DeadLetterRedrivesFailed".to_owned(), "Count", json!(letters.redrives_failed)));
    }
    metrics
}
