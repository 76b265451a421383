//! A small evaluator of CloudWatch's alarms, over recorded metrics.
//!
//! It knows what the modules use: one metric, a statistic, a comparison, M of N periods, and missing data that breach or do not.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::alarms::Alarm;

/// The state of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    Alarm,
}

/// CloudWatch retrieves more data points than the evaluation periods, and prefers one that exists to a missing one. AWS documents
/// five for three; a larger number only delays what missing data cause.
const MORE_POINTS: usize = 2;

type Dimensions = BTreeMap<String, String>;

/// The recorded values, by metric and minute.
#[derive(Default)]
pub(crate) struct Metrics(BTreeMap<(String, String, Dimensions), BTreeMap<usize, Vec<f64>>>);

impl Metrics {
    /// Records a value of a metric.
    pub(crate) fn add(&mut self, namespace: &str, metric: &str, dimensions: &Dimensions, minute: usize, value: f64) {
        let key = (namespace.to_owned(), metric.to_owned(), dimensions.clone());
        self.0.entry(key).or_default().entry(minute).or_default().push(value);
    }

    /// Records what CloudWatch reads from a line in the embedded metric format: only what `_aws` declares.
    pub(crate) fn add_line(&mut self, line: &Value, minute: usize) {
        for directive in line["_aws"]["CloudWatchMetrics"].as_array().into_iter().flatten() {
            let namespace = directive["Namespace"].as_str().unwrap_or_default();
            for set in directive["Dimensions"].as_array().into_iter().flatten() {
                let names = set.as_array().into_iter().flatten().filter_map(Value::as_str);
                let dimensions = names
                    .map(|name| (name.to_owned(), line[name].as_str().unwrap_or_default().to_owned()))
                    .collect::<Dimensions>();
                for metric in directive["Metrics"].as_array().into_iter().flatten() {
                    let name = metric["Name"].as_str().unwrap_or_default();
                    if let Some(value) = line[name].as_f64() {
                        self.add(namespace, name, &dimensions, minute, value);
                    }
                }
            }
        }
    }

    /// The state of an alarm at the end of the minute before `now`.
    pub(crate) fn state(&self, alarm: &Alarm, now: usize) -> State {
        let newest_first = self.points(alarm, now);
        let existing: Vec<f64> = newest_first.into_iter().flatten().take(alarm.evaluation_periods).collect();
        let missing = alarm.evaluation_periods - existing.len();
        let filled = match alarm.missing_data.as_str() {
            "breaching" => missing,
            "notBreaching" => 0,
            other => panic!("no alarm treats missing data as {other}"),
        };
        let breaching = existing.into_iter().filter(|value| breaches(alarm, *value)).count();
        if breaching + filled >= alarm.datapoints_to_alarm() { State::Alarm } else { State::Ok }
    }

    /// The data points of the periods before `now`, the newest first; `None` = nothing was recorded in that period.
    fn points(&self, alarm: &Alarm, now: usize) -> Vec<Option<f64>> {
        let key = (alarm.namespace.clone(), alarm.metric.clone(), alarm.dimensions.clone());
        let recorded = self.0.get(&key);
        let periods = 0..alarm.evaluation_periods + MORE_POINTS;
        let ends = periods.filter_map(|nth| now.checked_sub(nth * alarm.period));
        ends.map(|end| {
            let minutes = recorded?.range(end.saturating_sub(alarm.period)..end);
            let values: Vec<f64> = minutes.flat_map(|(_, values)| values.iter().copied()).collect();
            (!values.is_empty()).then(|| statistic(&alarm.statistic, values))
        })
        .collect()
    }
}

/// The statistic of the values of a period, of which there is one at least.
fn statistic(name: &str, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    match name {
        "Sum" => values.iter().sum(),
        "Minimum" => values[0],
        "Maximum" => values[count - 1],
        "Average" => values.iter().sum::<f64>() / count as f64,
        _ => {
            let percent: usize =
                name.strip_prefix('p').and_then(|rest| rest.parse().ok()).unwrap_or_else(|| panic!("{name}"));
            values[(count * percent).div_ceil(100).clamp(1, count) - 1]
        }
    }
}

fn breaches(alarm: &Alarm, value: f64) -> bool {
    match alarm.comparison.as_str() {
        "GreaterThanOrEqualToThreshold" => value >= alarm.threshold,
        "GreaterThanThreshold" => value > alarm.threshold,
        "LessThanThreshold" => value < alarm.threshold,
        "LessThanOrEqualToThreshold" => value <= alarm.threshold,
        other => panic!("no alarm compares by {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn alarm(fields: Value) -> Alarm {
        let mut whole = json!({"namespace": "n", "metric": "m", "where": {}, "statistic": "Maximum", "value": 5, "over": 1, "of": 1});
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    /// The values of one minute each; `None` = none.
    fn recorded(values: &[Option<f64>]) -> Metrics {
        let mut metrics = Metrics::default();
        for (minute, value) in values.iter().enumerate() {
            if let Some(value) = value {
                metrics.add("n", "m", &Dimensions::new(), minute, *value);
            }
        }
        metrics
    }

    #[test]
    fn each_comparison_has_its_side_of_the_threshold() {
        for (comparison, breaching) in [
            ("GreaterThanOrEqualToThreshold", [false, true, true]),
            ("GreaterThanThreshold", [false, false, true]),
            ("LessThanThreshold", [true, false, false]),
            ("LessThanOrEqualToThreshold", [true, true, false]),
        ] {
            for (value, expected) in [4.0, 5.0, 6.0].into_iter().zip(breaching) {
                let state = recorded(&[Some(value)]).state(&alarm(json!({ "is": comparison })), 1);
                assert_eq!(state == State::Alarm, expected, "{value} {comparison}");
            }
        }
    }

    #[test]
    fn each_statistic_is_of_its_period() {
        for (statistic, expected) in
            [("Sum", 10.0), ("Minimum", 1.0), ("Maximum", 4.0), ("Average", 2.5), ("p50", 2.0), ("p99", 4.0)]
        {
            let metrics = recorded(&[Some(100.0), Some(1.0), Some(2.0), Some(3.0), Some(4.0)]);
            let exactly = |is: &str| {
                metrics.state(&alarm(json!({"statistic": statistic, "value": expected, "over": 4, "is": is})), 5)
            };
            assert_eq!(exactly("GreaterThanOrEqualToThreshold"), State::Alarm, "{statistic}");
            assert_eq!(exactly("GreaterThanThreshold"), State::Ok, "{statistic}");
        }
    }

    /// The tables of AWS's guide, "Configuring how CloudWatch alarms treat missing data": five points were retrieved, the oldest
    /// first, for an evaluation of three. A point is 0 (good), X (breaching) or - (missing).
    #[test]
    fn missing_data_are_those_of_the_guide() {
        for (points, to_alarm, when_breaching, when_good) in [
            ("0-X-X", 3, State::Ok, State::Ok),
            ("----0", 3, State::Ok, State::Ok),
            ("-----", 3, State::Alarm, State::Ok),
            ("0XX-X", 3, State::Alarm, State::Alarm),
            ("--X--", 3, State::Alarm, State::Ok),
            ("0-X-X", 2, State::Alarm, State::Alarm),
            ("00X0X", 2, State::Alarm, State::Alarm),
            ("----0", 2, State::Alarm, State::Ok),
            ("----X", 2, State::Alarm, State::Ok),
        ] {
            let values: Vec<Option<f64>> = points
                .chars()
                .map(|point| match point {
                    'X' => Some(9.0),
                    '0' => Some(0.0),
                    _ => None,
                })
                .collect();
            for (missing, expected) in [("breaching", when_breaching), ("notBreaching", when_good)] {
                let alarm = alarm(json!({"of": 3, "at_least": to_alarm, "missing": missing}));
                assert_eq!(recorded(&values).state(&alarm, 5), expected, "{points} {to_alarm} of 3, {missing}");
            }
        }
    }

    #[test]
    fn m_of_n_periods_must_breach() {
        let three_of_five = alarm(json!({"of": 5, "at_least": 3}));
        let values = [9.0, 0.0, 9.0, 0.0, 9.0, 0.0, 0.0].map(Some);
        assert_eq!(recorded(&values).state(&three_of_five, 4), State::Ok, "two of four");
        assert_eq!(recorded(&values).state(&three_of_five, 5), State::Alarm);
        assert_eq!(recorded(&values).state(&three_of_five, 6), State::Ok, "two of the last five");
    }

    #[test]
    fn only_declared_metrics_of_a_line_count() {
        let declared = json!([{"Name": "m", "Unit": "Count"}, {"Name": "left_out", "Unit": "Count"}]);
        let directive = json!({"Namespace": "n", "Dimensions": [["Env"]], "Metrics": declared});
        let line = json!({"_aws": {"CloudWatchMetrics": [directive]}, "Env": "dev", "m": 7, "other": 7});
        let mut metrics = Metrics::default();
        metrics.add_line(&line, 0);
        let of = |metric: &str, env: &str| metrics.state(&alarm(json!({"metric": metric, "where": {"Env": env}})), 1);
        assert_eq!(of("m", "dev"), State::Alarm);
        assert_eq!([of("m", "prod"), of("other", "dev"), of("left_out", "dev")], [State::Ok; 3]);
    }
}
