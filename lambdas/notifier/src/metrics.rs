//! CloudWatch's embedded metric format: one line on stdout is a set of metrics, as the publisher writes it.

use chrono::{DateTime, Utc};
use schedule::Environment;
use serde_json::{Value, json};

use crate::report::Report;

const NAMESPACE: &str = "cronbox";

/// Returns the counters of one invocation, and how long the oldest message has waited; `None`: that is unknown, and left
/// out, because 0 would say that everything is fine.
pub(crate) fn render_emf_line(
    env: &Environment,
    report: Report,
    waited_secs: Option<f64>,
    now: DateTime<Utc>,
) -> Value {
    let counts = [
        ("NotificationsSent", "Count", Some(json!(report.sent))),
        ("NotificationsRetried", "Count", Some(json!(report.retried))),
        ("NotificationsFailed", "Count", Some(json!(report.failed))),
        ("NotificationsWaitingSeconds", "Seconds", waited_secs.map(|secs| json!(secs))),
    ];
    let known = counts.into_iter().filter_map(|(name, unit, value)| Some((name, unit, value?)));
    let (mut line, mut definitions) = (json!({"Env": env.to_string()}), Vec::new());
    for (name, unit, value) in known {
        definitions.push(json!({"Name": name, "Unit": unit}));
        line[name] = value;
    }
    let directive = json!({"Namespace": NAMESPACE, "Dimensions": [["Env"]], "Metrics": definitions});
    line["_aws"] = json!({"Timestamp": now.timestamp_millis(), "CloudWatchMetrics": [directive]});
    line
}
