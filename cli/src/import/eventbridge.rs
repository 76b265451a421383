//! EventBridge schedules and rules: JSON of the AWS command line.
//!
//! `cron(minute hour day month weekday year)` counts Sunday as 1, and has ? in one of its day fields; our dialect reads the complete
//! form `cron(..)` by those rules. A rate becomes a cron if it divides the hour or the day.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::definition::{Definition, Imported};

/// Reads one schedule, or a list of schedules or rules.
pub(super) fn import_eventbridge(text: &str) -> anyhow::Result<Imported> {
    let document: Value = serde_json::from_str(text).context("the file is no JSON of the AWS command line")?;
    let mut imported = Imported::default();
    let list = ["Schedules", "Rules"].iter().find_map(|name| document[*name].as_array());
    match (list, document.as_array()) {
        (Some(items), _) | (None, Some(items)) => items.iter().for_each(|item| imported.add(definition(item))),
        (None, None) => imported.add(definition(&document)),
    }
    Ok(imported)
}

fn definition(item: &Value) -> Definition {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    let mut definition =
        Definition { name: text("Name").to_owned(), what: text("Description").to_owned(), ..Definition::default() };
    match text("ScheduleExpression") {
        "" if item["EventPattern"].is_string() => {
            definition.refuse("because a rule of an event pattern has no schedule");
        }
        "" => definition.refuse("because it has no ScheduleExpression; a list of schedules leaves it out: read each by `aws scheduler get-schedule`"),
        expression if expression.starts_with("rate(") => take_rate(&mut definition, expression),
        expression if expression.starts_with("at(") => {
            definition.refuse(format_args!("{expression}: it fires once; fire a workflow then"));
        }
        expression => definition.take_cron(expression),
    }
    match text("ScheduleExpressionTimezone") {
        "" => {}
        name => definition.take_timezone(name),
    }
    for (field, ours) in [("StartDate", "starts_at"), ("EndDate", "ends_at")] {
        if let Some(time) = item[field].as_str() {
            definition.set(ours, json!(time));
        }
    }
    if let Some(minutes) = item["FlexibleTimeWindow"]["MaximumWindowInMinutes"].as_i64() {
        let seconds = (minutes * 60).min(3_600);
        definition.set("spread_secs", json!(seconds));
        definition.note(format!("its flexible window of {minutes} min is a spread of {seconds} s"));
    }
    if text("State") == "DISABLED" {
        definition.note("it was DISABLED: pause the workflow after `apply`");
    }
    if let Some(attempts) = item["Target"]["RetryPolicy"]["MaximumRetryAttempts"].as_i64() {
        definition.note(format!("its {attempts} retries were those of the delivery; max_attempts is about the run"));
    }
    if let Some(arn) = item["Target"]["Arn"].as_str() {
        definition.note(format!("its target was {arn}"));
    }
    if let Some(input) = item["Target"]["Input"].as_str() {
        match serde_json::from_str::<Value>(input) {
            Ok(Value::Object(inputs)) => definition.set("starting_inputs", Value::Object(inputs)),
            _ => definition.note(format!("its input is no object: {input}")),
        }
    }
    definition
}

/// A rate that divides the hour or the day is a cron; it then counts from midnight, not from the creation.
fn take_rate(definition: &mut Definition, expression: &str) {
    let inside = expression.trim_start_matches("rate(").trim_end_matches(')');
    let mut words = inside.split_whitespace();
    let (number, unit) = (words.next().and_then(|word| word.parse::<u32>().ok()), words.next().unwrap_or_default());
    let cron = match (number, unit.trim_end_matches('s')) {
        (Some(1), "minute") => Some("* * * * *".to_owned()),
        (Some(n), "minute") if n > 0 && 60 % n == 0 && n < 60 => Some(format!("*/{n} * * * *")),
        (Some(60), "minute") | (Some(1), "hour") => Some("0 * * * *".to_owned()),
        (Some(n), "minute") if n % 60 == 0 && 24 % (n / 60) == 0 && n / 60 < 24 => {
            Some(format!("0 */{} * * *", n / 60))
        }
        (Some(n), "hour") if n > 0 && 24 % n == 0 && n < 24 => Some(format!("0 */{n} * * *")),
        (Some(24), "hour") | (Some(1), "day") => Some("0 0 * * *".to_owned()),
        _ => None,
    };
    match cron {
        Some(cron) => {
            definition.note(format!("{expression} counted from its creation; this cron counts from midnight in UTC"));
            definition.take_cron(&cron);
        }
        None => definition
            .refuse(format_args!("{expression}: it divides neither the hour nor the day, so no cron means it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(expression: &str) -> Definition {
        let text = json!({"Name": "a", "ScheduleExpression": expression}).to_string();
        import_eventbridge(&text).unwrap().definitions[0].clone()
    }

    #[test]
    fn expressions_keep_their_meaning() {
        for (expression, expected) in [
            ("cron(0 9 ? * 2-6 *)", Some("cron(0 9 ? * 2-6 *)")),
            ("cron(0/15 * * * ? *)", Some("cron(0/15 * * * ? *)")),
            ("rate(1 minute)", Some("* * * * *")),
            ("rate(15 minutes)", Some("*/15 * * * *")),
            ("rate(120 minutes)", Some("0 */2 * * *")),
            ("rate(1 day)", Some("0 0 * * *")),
            ("rate(7 minutes)", None),
            ("rate(2 days)", None),
            ("at(2026-03-02T09:00:00)", None),
            ("cron(0 9 * * * *)", None),
        ] {
            assert_eq!(one(expression).cron.as_deref(), expected, "{expression}");
        }
    }

    #[test]
    fn lists_and_windows_are_read() {
        let text = json!({"Schedules": [
            {"Name": "b", "ScheduleExpression": "cron(0 9 * * ? *)", "ScheduleExpressionTimezone": "Europe/Paris", "State": "DISABLED",
             "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15},
             "Target": {"Arn": "arn:aws:lambda:a", "Input": "{\"month\": \"May\"}"}},
            {"Name": "c"}]}).to_string();
        let imported = import_eventbridge(&text).unwrap();
        let first = &imported.definitions[0];
        assert_eq!(first.timezone.as_deref(), Some("Europe/Paris"));
        assert_eq!(first.fields["spread_secs"], 900);
        assert_eq!(first.fields["starting_inputs"], json!({"month": "May"}));
        assert!(first.notes.iter().any(|note| note.contains("DISABLED")), "{first:?}");
        assert_eq!(imported.refused(), 1);
    }
}
