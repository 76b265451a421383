//! Prints messages for people and for scripts.

use std::fmt::Write as _;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::ledger::Known;
use super::message::{Content, DeadMessage, From};
use crate::print::{one_line, printable_lines};

/// The width of an error in a line of the table.
const ERROR_WIDTH: usize = 80;

/// One line per message.
pub(super) fn list_messages(messages: &[DeadMessage], known: &[Known]) -> String {
    if messages.is_empty() {
        return "nothing\n".to_owned();
    }
    let mut table = format!(
        "{:<36}  {:<9} {:>9}  {:<20} {:>5}  {:<18} {}\n",
        "MESSAGE", "FROM", "WORKFLOW", "TIME", "TRIES", "APP", "ERROR"
    );
    for (message, known) in messages.iter().zip(known) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "{:<36}  {:<9} {:>9}  {:<20} {:>5}  {:<18} {}",
            message.id,
            message.from.as_str(),
            workflow(message),
            time(message),
            message.tries.map_or_else(|| "-".to_owned(), |tries| tries.to_string()),
            known.short_text(),
            error(message).chars().take(ERROR_WIDTH).collect::<String>(),
        );
    }
    table
}

/// A message in one line.
pub(super) fn message_line(message: &DeadMessage) -> String {
    format!("{}  {:<9} {:>9}  {:<20}", message.id, message.from.as_str(), workflow(message), time(message))
}

/// A complete message.
pub(super) fn full_text(message: &DeadMessage, known: &Known) -> String {
    let gave_up = match message.from {
        From::Schedule => "the schedule: EventBridge could not invoke the runner",
        From::Runner => "the runner: it got no valid answer of the app",
        From::Publisher => "the publisher: an invocation failed",
        From::Unknown => "unknown",
    };
    let app = match known {
        Known::Decided { run: Some((id, state)), decision } => format!("{decision}: run {id} {state}"),
        Known::Nothing => "has no decision about this time".to_owned(),
        Known::Gone => "does not have this workflow any more".to_owned(),
        other => other.short_text(),
    };
    let redrive = why_it_stays(message).unwrap_or_else(|| "posts it".to_owned());
    let written = message.sent_on.map_or_else(|| "-".to_owned(), second);
    let tries = message.tries.map_or_else(|| "-".to_owned(), |tries| tries.to_string());
    let mut text = format!("message    {}\nwritten    {written}\ngiven up   by {gave_up}\n", message.id);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "workflow   {}\ntime       {}\ntries      {tries}", workflow(message), time(message));
    let _ = writeln!(text, "error      {}\napp        {app}\nredrive    {redrive}", error(message));
    for (name, value) in &message.attributes {
        let _ = writeln!(text, "attribute  {} = {}", one_line(name), one_line(value));
    }
    let _ = writeln!(text, "body\n{}", printable_lines(&message.body));
    text
}

/// Why a redrive does not delete a message.
pub(super) fn why_it_stays(message: &DeadMessage) -> Option<String> {
    match &message.content {
        Content::Fire(_) => None,
        Content::Tick => Some("nothing to post: a later tick of the publisher did its work; discard it".to_owned()),
        Content::Unreadable(why) => Some(format!("contains no readable fire: {}", one_line(why))),
    }
}

/// A message in the list for scripts.
pub(super) fn message_json(message: &DeadMessage, known: &Known) -> Value {
    let fire = message.fire();
    json!({
        "message_id": message.id,
        "from": message.from.as_str(),
        "workflow_id": fire.map(|fire| fire.workflow_id),
        "scheduled_time": fire.map(|fire| second(fire.scheduled_time)),
        "error": message.error,
        "tries": message.tries,
        "sent_on": message.sent_on.map(second),
        "stays": why_it_stays(message),
        "app": known.to_json(),
    })
}

/// A message in the list for scripts, with its complete content.
pub(super) fn full_json(message: &DeadMessage, known: &Known) -> Value {
    let mut json = message_json(message, known);
    json["attributes"] = json!(message.attributes);
    json["body"] = json!(message.body);
    json
}

fn workflow(message: &DeadMessage) -> String {
    message.fire().map_or_else(|| "-".to_owned(), |fire| fire.workflow_id.to_string())
}

fn time(message: &DeadMessage) -> String {
    message.fire().map_or_else(|| "-".to_owned(), |fire| second(fire.scheduled_time))
}

fn error(message: &DeadMessage) -> String {
    match &message.content {
        Content::Unreadable(why) if message.error.is_empty() => format!("cannot be read: {}", one_line(why)),
        _ => one_line(&message.error),
    }
}

fn second(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}
