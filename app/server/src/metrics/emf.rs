//! Steps 1 and 7 of 7: CloudWatch's embedded metric format: the metrics of `/metrics` as one line on stdout, once a minute.
//!
//! CloudWatch Logs makes metrics of such a line without a permission or a call of ours. A metric has the name that it has in
//! `/metrics`, without `cronbox_`, and the sum over its labels; of some gauges it has the highest value, which alarms read.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schedule::Environment;
use serde_json::{Map, Value, json};

/// Not the publisher's namespace, whose metrics are of all instances together.
const NAMESPACE: &str = "cronbox/app";
/// The number, or the sum over the labels, says nothing.
const LEFT_OUT: [&str; 4] = ["build_info", "job_turns", "zone_data", "zone_data_year"];
/// Gauges of which the highest value over the jobs counts, and the beginning of the names of jobs that are left out: other
/// alarms are about them. The alerts of Prometheus leave out the same.
const HIGHEST: [(&str, &str); 2] = [("job_failing", "heartbeat"), ("job_overdue_seconds", "watchdog")];

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
                Kind::Counter => family.value - self.counted.insert(name.clone(), family.value).unwrap_or_default(),
                Kind::Gauge | Kind::Highest { .. } => family.value,
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
    /// A gauge of which the highest value counts, without jobs whose names begin like this.
    Highest {
        without: &'static str,
    },
}

/// A metric with all of its labels.
struct Family {
    kind: Kind,
    value: f64,
}

impl Family {
    fn add_sample(&mut self, labels: &str, value: f64) {
        match self.kind {
            Kind::Counter | Kind::Gauge => self.value += value,
            Kind::Highest { without } if labels.contains(&format!("background_job=\"{without}")) => {}
            Kind::Highest { .. } => self.value = self.value.max(value),
        }
    }
}

/// The counters and gauges of a text as `/metrics` has it, by their names there without the prefix.
fn families(rendered: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::new();
    for line in rendered.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE cronbox_").and_then(|rest| rest.split_once(' ')) {
            let highest = HIGHEST.iter().copied().find(|(gauge, _)| *gauge == name);
            let kind = match (kind, highest) {
                ("counter", _) => Kind::Counter,
                ("gauge", Some((_, without))) => Kind::Highest { without },
                ("gauge", None) => Kind::Gauge,
                _ => continue,
            };
            if !LEFT_OUT.contains(&name) {
                families.insert(name.to_owned(), Family { kind, value: 0.0 });
            }
        } else if let Some((name, labels, value)) = sample(line)
            && let Some(family) = families.get_mut(name)
        {
            family.add_sample(labels, value);
        }
    }
    families
}

/// The family, the labels and the value of a sample: `cronbox_refusals_total{reason="full"} 3`.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (series, value) = line.strip_prefix("cronbox_")?.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    Some((name.strip_suffix("_total").unwrap_or(name), labels, value.parse().ok()?))
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
    /// A sum over the jobs would hide which value is one of them. The heartbeat and the watchdogs have alarms of their own.
    #[test]
    fn alarms_read_the_worst_job() {
        let rendered = "# TYPE cronbox_job_failing gauge\ncronbox_job_failing{background_job=\"recovery\"} 1\n\
                        cronbox_job_failing{background_job=\"queue\"} 1\n\
                        # TYPE cronbox_job_overdue_seconds gauge\ncronbox_job_overdue_seconds{background_job=\"audit\"} 7\n\
                        cronbox_job_overdue_seconds{background_job=\"watchdog\"} 2000\n\
                        cronbox_job_overdue_seconds{background_job=\"watchdog_2\"} 3000\n\
                        cronbox_job_overdue_seconds{background_job=\"prune\"} 1200\n# EOF\n";
        let worst = line(&mut EmfLines::default(), rendered);
        assert_eq!((&worst["job_failing"], &worst["job_overdue_seconds"]), (&json!(1.0), &json!(1200.0)));

        let well = rendered.replace("\"recovery\"} 1", "\"heartbeat\"} 1").replace("\"queue\"} 1", "\"queue\"} 0");
        let well = line(&mut EmfLines::default(), &well);
        assert_eq!(well["job_failing"], json!(0.0), "a ping that fails is the heartbeat's alarm");
    }
}
