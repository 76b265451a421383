//! EventBridge schedules and rules: JSON of the AWS command line.
//!
//! `cron(minute hour day month weekday year)` counts Sunday as 1, and has ? in one of its day fields; our dialect reads the complete
//! form `cron(..)` by those rules. A rate becomes a cron if it divides the hour or the day.

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::definition::{Definition, Imported};
use super::dialect::Dialect;
use crate::times::rfc3339;

/// How a text begins that EventBridge fills at each fire, for example `<aws.scheduler.scheduled-time>`.
const PLACEHOLDER: &str = "<aws.scheduler.";

/// Reads documents, each of them one schedule, or a list of schedules or rules.
pub(super) fn import_eventbridge(text: &str) -> anyhow::Result<Imported> {
    let documents = serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>();
    let documents = documents.context("the file is no JSON of the AWS command line")?;
    if documents.is_empty() {
        bail!("the file is empty: it must have what `aws scheduler get-schedule` or `aws events list-rules` prints");
    }
    let mut imported = Imported::default();
    for document in &documents {
        let list = ["Schedules", "Rules"].iter().find_map(|name| document[*name].as_array());
        match (list, document.as_array()) {
            (Some(items), _) | (None, Some(items)) => items.iter().for_each(|item| imported.add(definition(item))),
            (None, None) => imported.add(definition(document)),
        }
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
        expression => definition.take_cron(expression, Dialect::EventBridge),
    }
    match (text("ScheduleExpressionTimezone"), text("ScheduleExpression").starts_with("rate(")) {
        ("", _) => {}
        // A rate counts time that has passed. In a timezone its cron would lose the times of a gap.
        ("UTC", true) => {}
        (name, true) => definition.note(format!("its timezone {name} is left out: a rate has none")),
        (name, false) => definition.take_timezone(name),
    }
    for (field, ours) in [("StartDate", "starts_at"), ("EndDate", "ends_at")] {
        match (&item[field], read_time(&item[field])) {
            (Value::Null, _) => {}
            (_, Some(time)) => definition.set(ours, json!(rfc3339(time))),
            (written, None) => definition.refuse(format_args!("its {field} {written} is no time")),
        }
    }
    if let Some(minutes) = item["FlexibleTimeWindow"]["MaximumWindowInMinutes"].as_i64() {
        let seconds = (minutes * 60).min(3_600);
        definition.set("spread_secs", json!(seconds));
        definition.note(format!("its flexible window of {minutes} min is a spread of {seconds} s"));
    }
    if text("State") == "DISABLED" {
        definition.set("paused", json!(true));
        definition.note("it was DISABLED: `apply` creates it paused, and `cronbox workflow resume` starts it");
    }
    if let Some(attempts) = item["Target"]["RetryPolicy"]["MaximumRetryAttempts"].as_i64() {
        definition.note(format!("its {attempts} retries were those of the delivery; max_attempts is about the run"));
    }
    if !["", "default"].contains(&text("GroupName")) {
        definition.note(format!("it was in the group {}", text("GroupName")));
    }
    if let Some(arn) = item["Target"]["Arn"].as_str() {
        definition.note(format!("its target was {arn}"));
    }
    if let Some(input) = item["Target"]["Input"].as_str() {
        if input.contains(PLACEHOLDER) {
            definition.refuse(format_args!(
                "its input has {PLACEHOLDER}..>, which only EventBridge fills: {input}; remove it and import again, and let the receiver read x-cronbox-scheduled-time, -run-id or -attempt"
            ));
        }
        match serde_json::from_str::<Value>(input) {
            Ok(Value::Object(inputs)) => definition.set("starting_inputs", Value::Object(inputs)),
            _ => definition.note(format!("its input is no object: {input}")),
        }
    }
    definition
}

/// A time as the AWS command line prints it: a text, or the seconds since 1970 (version 1, or `cli_timestamp_format = wire`).
fn read_time(written: &Value) -> Option<DateTime<Utc>> {
    match written {
        Value::String(text) => DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc()),
        Value::Number(seconds) => DateTime::from_timestamp_millis((seconds.as_f64()? * 1_000.0).round() as i64),
        _ => None,
    }
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
            definition.take_cron(&cron, Dialect::EventBridge);
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

    /// At midnight in Santiago the clocks change, and a day would have no 00:00.
    #[test]
    fn rates_have_no_timezone() {
        let of = |expression: &str, timezone: &str| {
            let text = json!({"Name": "a", "ScheduleExpression": expression, "ScheduleExpressionTimezone": timezone});
            import_eventbridge(&text.to_string()).unwrap().definitions[0].clone()
        };
        let rate = of("rate(1 day)", "America/Santiago");
        assert_eq!(rate.timezone, None);
        assert!(rate.notes.iter().any(|note| note.contains("its timezone America/Santiago is left out")), "{rate:?}");
        assert_eq!(of("cron(0 9 * * ? *)", "America/Santiago").timezone.as_deref(), Some("America/Santiago"));
    }

    /// Without its end a workflow would run for ever.
    #[test]
    fn ends_are_read_in_each_form_or_refused() {
        let one = |end: Value| {
            let text = json!({"Name": "a", "ScheduleExpression": "rate(1 hour)", "StartDate": null, "EndDate": end})
                .to_string();
            import_eventbridge(&text).unwrap().definitions[0].clone()
        };
        for (end, expected) in [
            (json!("2030-12-31T01:00:00+01:00"), "2030-12-31T00:00:00Z"),
            (json!("2030-12-31T00:00:00.5Z"), "2030-12-31T00:00:00.500Z"),
            (json!(1_924_905_600), "2030-12-31T00:00:00Z"),
            (json!(1_924_905_600.5), "2030-12-31T00:00:00.500Z"),
        ] {
            let read = one(end.clone());
            assert!(read.is_taken() && read.fields["ends_at"] == expected, "{end}: {read:?}");
            assert!(!read.fields.contains_key("starts_at"), "{read:?}");
        }
        for wrong in [json!("31/12/2030"), json!({"seconds": 1}), json!(1e300)] {
            let read = one(wrong);
            assert!(!read.is_taken() && read.notes.iter().any(|note| note.contains("its EndDate ")), "{read:?}");
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
        assert!(
            first.notes.iter().any(|note| note.contains("DISABLED")) && first.fields["paused"] == true,
            "{first:?}"
        );
        assert_eq!(imported.refused(), 1);
    }

    /// As a constant it would be the same text at each time.
    #[test]
    fn placeholders_of_eventbridge_are_refused() {
        for (input, is_taken) in [
            (r#"{"day": "<aws.scheduler.scheduled-time>"}"#, false),
            ("<aws.scheduler.execution-id>", false),
            (r#"{"day": "<date>"}"#, true),
        ] {
            let text = json!({"Name": "a", "ScheduleExpression": "rate(1 hour)", "Target": {"Input": input}});
            let read = import_eventbridge(&text.to_string()).unwrap().definitions[0].clone();
            assert_eq!(read.is_taken(), is_taken, "{read:?}");
            let is_said = read.notes.iter().any(|note| note.starts_with("NOT TAKEN OVER") && note.contains(input));
            assert_eq!(is_said, !is_taken, "{read:?}");
        }
    }

    /// As a loop of `get-schedule` prints them.
    #[test]
    fn documents_follow_each_other() {
        let one = |name: &str| json!({"Name": name, "ScheduleExpression": "rate(1 hour)"});
        let imported = import_eventbridge(&format!("{:#}\n{}[{}]", one("a"), one("b"), one("c"))).unwrap();
        assert_eq!(imported.definitions.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(import_eventbridge(&format!("{}{{", one("a"))).is_err() && import_eventbridge(" \n").is_err());
    }
}
