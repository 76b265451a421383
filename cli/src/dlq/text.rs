//! A message as text for people.

use std::fmt::Write as _;

use dead_letters::{Content, DeadMessage, Origin};

use super::ledger::{Known, second};
use crate::print::{one_line, printable_lines};

/// A message in one line.
pub(super) fn message_line(message: &DeadMessage) -> String {
    format!("{}  {:<9} {:>9}  {:<20}", message.id, message.from.as_str(), workflow(message), time(message))
}

/// Why a redrive does not delete a message.
pub(super) fn why_it_stays(message: &DeadMessage) -> Option<String> {
    message.why_it_stays().as_deref().map(one_line)
}

/// A complete message.
pub(super) fn full_text(message: &DeadMessage, known: &Known) -> String {
    let gave_up = match message.from {
        Origin::Schedule => "the schedule: EventBridge could not invoke the runner",
        Origin::Runner => "the runner: it got no valid answer of the app",
        Origin::Publisher => "the publisher: an invocation failed",
        Origin::Unknown => "unknown",
    };
    let app = match known {
        Known::Decided { decision, run_id: Some(id), run_state: Some(state) } => {
            format!("{decision}: run {id} {state}")
        }
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
    let _ = writeln!(text, "error      {}\napp        {app}\nredrive    {redrive}", error_text(message));
    for (name, value) in &message.attributes {
        let _ = writeln!(text, "attribute  {} = {}", one_line(name), one_line(value));
    }
    let _ = writeln!(text, "body\n{}", printable_lines(&message.body));
    text
}

fn workflow(message: &DeadMessage) -> String {
    message.fire().map_or_else(|| "-".to_owned(), |fire| fire.workflow_id.to_string())
}

fn time(message: &DeadMessage) -> String {
    message.fire().map_or_else(|| "-".to_owned(), |fire| second(fire.scheduled_time))
}

/// The error of the service that gave up, or why the message cannot be read.
pub(super) fn error_text(message: &DeadMessage) -> String {
    match &message.content {
        Content::Unreadable(why) if message.error.is_empty() => format!("cannot be read: {}", one_line(why)),
        _ => one_line(&message.error),
    }
}
