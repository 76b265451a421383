//! Prints messages for people and for scripts.

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::ledger::Known;
use super::letter::{From, Holds, Letter};
use crate::print;

/// The width of an error in a line of the table.
const ERROR_WIDTH: usize = 80;

/// One line per message.
pub(super) fn table(letters: &[Letter], known: &[Known]) -> String {
    if letters.is_empty() {
        return "nothing\n".to_owned();
    }
    let mut table = format!(
        "{:<36}  {:<9} {:>9}  {:<20} {:>5}  {:<18} {}\n",
        "MESSAGE", "FROM", "WORKFLOW", "TIME", "TRIES", "APP", "ERROR"
    );
    for (letter, known) in letters.iter().zip(known) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "{:<36}  {:<9} {:>9}  {:<20} {:>5}  {:<18} {}",
            letter.id,
            letter.from.as_str(),
            workflow(letter),
            time(letter),
            letter.tries.map_or_else(|| "-".to_owned(), |tries| tries.to_string()),
            known.words(),
            error(letter).chars().take(ERROR_WIDTH).collect::<String>(),
        );
    }
    table
}

/// A message in one line.
pub(super) fn line(letter: &Letter) -> String {
    format!("{}  {:<9} {:>9}  {:<20}", letter.id, letter.from.as_str(), workflow(letter), time(letter))
}

/// A complete message.
pub(super) fn whole(letter: &Letter, known: &Known) -> String {
    let gave_up = match letter.from {
        From::Schedule => "the schedule: EventBridge could not invoke the runner",
        From::Runner => "the runner: it got no valid answer of the app",
        From::Publisher => "the publisher: an invocation failed",
        From::Unknown => "unknown",
    };
    let app = match known {
        Known::Decided { run: Some((id, state)), decision } => format!("{decision}: run {id} {state}"),
        Known::Nothing => "has no decision about this time".to_owned(),
        Known::Gone => "does not have this workflow any more".to_owned(),
        other => other.words(),
    };
    let redrive = why_it_stays(letter).unwrap_or_else(|| "posts it".to_owned());
    let written = letter.sent_on.map_or_else(|| "-".to_owned(), second);
    let tries = letter.tries.map_or_else(|| "-".to_owned(), |tries| tries.to_string());
    let mut text = format!("message    {}\nwritten    {written}\ngiven up   by {gave_up}\n", letter.id);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "workflow   {}\ntime       {}\ntries      {tries}", workflow(letter), time(letter));
    let _ = writeln!(text, "error      {}\napp        {app}\nredrive    {redrive}", error(letter));
    for (name, value) in &letter.attributes {
        let _ = writeln!(text, "attribute  {} = {}", harmless(name), harmless(value));
    }
    let _ = writeln!(text, "body\n{}", harmless(&letter.body));
    text
}

/// Why a redrive does not delete a message.
pub(super) fn why_it_stays(letter: &Letter) -> Option<String> {
    match &letter.holds {
        Holds::Fire(_) => None,
        Holds::Tick => Some("nothing to post: a later tick of the publisher did its work; discard it".to_owned()),
        Holds::Unreadable(why) => Some(format!("no fire that can be read: {}", harmless(why))),
    }
}

/// A message in the list for scripts.
pub(super) fn json(letter: &Letter, known: &Known) -> Value {
    let fire = letter.fire();
    json!({
        "message_id": letter.id,
        "from": letter.from.as_str(),
        "workflow_id": fire.map(|fire| fire.workflow_id),
        "scheduled_time": fire.map(|fire| second(fire.scheduled_time)),
        "error": letter.error,
        "tries": letter.tries,
        "sent_on": letter.sent_on.map(second),
        "stays": why_it_stays(letter),
        "app": known.json(),
    })
}

/// The same, with the complete message of the queue.
pub(super) fn whole_json(letter: &Letter, known: &Known) -> Value {
    let mut json = json(letter, known);
    json["attributes"] = json!(letter.attributes);
    json["body"] = json!(letter.body);
    json
}

/// One JSON object per line.
pub(super) fn lines(objects: impl Iterator<Item = Value>) -> anyhow::Result<ExitCode> {
    print::text(&objects.map(|object| format!("{object}\n")).collect::<String>())
}

fn workflow(letter: &Letter) -> String {
    letter.fire().map_or_else(|| "-".to_owned(), |fire| fire.workflow_id.to_string())
}

fn time(letter: &Letter) -> String {
    letter.fire().map_or_else(|| "-".to_owned(), |fire| second(fire.scheduled_time))
}

fn error(letter: &Letter) -> String {
    match &letter.holds {
        Holds::Unreadable(why) if letter.error.is_empty() => format!("cannot be read: {}", harmless(why)),
        _ => harmless(&letter.error).replace('\n', " "),
    }
}

fn second(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Replaces control characters, because a message's text must not control the terminal.
fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}
