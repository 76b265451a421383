//! Steps 1 and 7 of 7: CloudWatch's embedded metric format: the metrics of `/metrics` as one line on stdout, once a minute.
//!
//! CloudWatch Logs makes metrics of such a line without a permission or a call of ours. A metric has the name that it has in
//! `/metrics`, without `cronbox_`, and the sum over its labels.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schedule::Environment;
use serde_json::{Map, Value, json};

/// Not the publisher's namespace, whose metrics are of all instances together.
const NAMESPACE: &str = "cronbox/app";
/// The number, or the sum over the labels, says nothing.
const LEFT_OUT: [&str; 5] = ["build_info", "job_overdue_seconds", "job_turns", "zone_data", "zone_data_year"];

/// What the last line said, because a counter becomes what it has counted since then.
#[derive(Default)]
pub(crate) struct EmfLines {
    counted: BTreeMap<String, f64>,
}

impl EmfLines {
    /// The line for the metrics that were rendered for `/metrics` at this time.
    pub(crate) fn next_line(&mut self, env: &Environment, rendered: &str, now: DateTime<Utc>) -> Value {
        let mut values = Map::new();
        let mut definitions = Vec::new();
        for (name, family) in families(rendered) {
            let value = match family.kind {
                Kind::Counter => family.sum - self.counted.insert(name.clone(), family.sum).unwrap_or_default(),
                Kind::Gauge => family.sum,
            };
            let unit = if name.ends_with("_seconds") { "Seconds" } else { "Count" };
            definitions.push(json!({"Name": name, "Unit": unit}));
            values.insert(name, json!(value));
        }
        let directive = json!({"Namespace": NAMESPACE, "Dimensions": [["Env"]], "Metrics": definitions});
        let about = json!({"Timestamp": now.timestamp_millis(), "CloudWatchMetrics": [directive]});
        values.insert("_aws".to_owned(), about);
        values.insert("Env".to_owned(), json!(env.to_string()));
        Value::Object(values)
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A metric with all of its labels.
struct Family {
    kind: Kind,
    sum: f64,
}

/// The counters and gauges of a text as `/metrics` has it, by their names there without the prefix.
fn families(rendered: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::new();
    for line in rendered.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE cronbox_").and_then(|rest| rest.split_once(' ')) {
            let kind = match kind {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                _ => continue,
            };
            if !LEFT_OUT.contains(&name) {
                families.insert(name.to_owned(), Family { kind, sum: 0.0 });
            }
        } else if let Some((name, value)) = sample(line)
            && let Some(family) = families.get_mut(name)
        {
            family.sum += value;
        }
    }
    families
}

/// The family and the value of a sample: `cronbox_refusals_total{reason="full"} 3`.
fn sample(line: &str) -> Option<(&str, f64)> {
    let (series, value) = line.strip_prefix("cronbox_")?.rsplit_once(' ')?;
    let name = series.split('{').next()?;
    Some((name.strip_suffix("_total").unwrap_or(name), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "# HELP cronbox_refusals Refused requests.\n# TYPE cronbox_refusals counter\n\
                            cronbox_refusals_total{reason=\"full\"} 3\ncronbox_refusals_total{reason=\"a b\"} 2\n\
                            # HELP cronbox_clock_skew_seconds Skew.\n# TYPE cronbox_clock_skew_seconds gauge\n\
                            cronbox_clock_skew_seconds 0.5\n# TYPE cronbox_zone_data gauge\n\
                            cronbox_zone_data{version=\"2026a\"} 1\n# EOF\n";

    fn line(lines: &mut EmfLines, rendered: &str) -> Value {
        lines.next_line(&"dev".parse().unwrap(), rendered, "2026-03-02T09:00:00Z".parse().unwrap())
    }

    #[test]
    fn counters_become_what_was_counted_since() {
        let mut lines = EmfLines::default();
        let first = line(&mut lines, RENDERED);
        assert_eq!((&first["refusals"], &first["clock_skew_seconds"]), (&json!(5.0), &json!(0.5)));
        let second = line(&mut lines, &RENDERED.replace("} 3", "} 4"));
        assert_eq!((&second["refusals"], &second["clock_skew_seconds"]), (&json!(1.0), &json!(0.5)));
    }

    /// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>
    #[test]
    fn the_line_names_its_metrics_with_units() {
        let line = line(&mut EmfLines::default(), RENDERED);
        let metrics =
            [json!({"Name": "clock_skew_seconds", "Unit": "Seconds"}), json!({"Name": "refusals", "Unit": "Count"})];
        assert_eq!(
            line["_aws"],
            json!({"Timestamp": 1_772_442_000_000_i64, "CloudWatchMetrics": [
                {"Namespace": "cronbox/app", "Dimensions": [["Env"]], "Metrics": metrics},
            ]})
        );
        assert_eq!((&line["Env"], &line["zone_data"]), (&json!("dev"), &Value::Null));
    }
}
