//! Step 7 of 7: the sentences of notifications: what happened, to which workflow, since when, and what to do.

use api_types::notifications::NotificationEvent as Event;
use chrono::{DateTime, Utc};
use serde_json::Value;
use workflows::aws_errors::{REFUSED, StoredError, error_for_team};
use workflows::reasons::Reason;

/// What a sentence says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    pub(crate) event: Event,
    pub(crate) workflow_name: Option<&'a str>,
    pub(crate) workflow_id: Option<i64>,
    pub(crate) scheduled_time: Option<DateTime<Utc>>,
    pub(crate) facts: &'a Value,
}

/// What happened, in a sentence.
#[must_use]
pub(crate) fn sentence(said: &Said<'_>) -> String {
    let facts = said.facts;
    let name = name_of(said);
    let number = |field: &str| facts[field].as_i64().unwrap_or_default();
    let time = said.scheduled_time.map(short_time).unwrap_or_default();
    match said.event {
        Event::RunFailed => format!("{name} {}{}", how_it_ended(facts), error_of(facts)),
        Event::FailuresInARow => {
            format!("{name} failed {} in a row, since {}{}", times(facts, "failures"), since(facts), error_of(facts))
        }
        Event::Recovered => {
            format!("{name} succeeded again: it had failed {} since {}", times(facts, "failures"), since(facts))
        }
        Event::Missed if number("times") > 1 => {
            let span = [short(&facts["first"]), short(&facts["last"])].join(" to ");
            format!("{name} did not run at {} due times, {span}{}", number("times"), reason_of(facts))
        }
        Event::Missed => format!("{name} did not run at {time}{}", reason_of(facts)),
        Event::Abandoned => format!("A run of {name} was abandoned{}", error_of(facts)),
        Event::SkippedOverlap => {
            format!("{name} was skipped {} in a row, because a run before had not ended", times(facts, "times"))
        }
        Event::AutoPaused => format!("cronbox paused {name}: it failed {} in a row", times(facts, "failures")),
        Event::SyncFailed => sync_failure(&name, facts),
        Event::DriftRepaired => {
            let class = facts["class"].as_str().unwrap_or("changed");
            format!("The schedule of {name} in EventBridge differed ({class}) and is repaired")
        }
        Event::RunLate => format!("A run of {name} has not started {} after its time {time}", lasting(facts)),
        Event::RunLong => format!("A run of {name} has not ended {} after its start", lasting(facts)),
        Event::NoSuccess => format!("{name} has had no successful run for {}", lasting(facts)),
        Event::VerifyDifference => {
            format!("The ledger of {name} differs at {time}: {}", facts["kind"].as_str().unwrap_or_default())
        }
        Event::FrozenLong => {
            let why = facts["reason"].as_str().unwrap_or_default();
            format!("The schedules have been frozen for more than {}: {why}", lasting(facts))
        }
        Event::PausedLong => format!("{name} has been paused for more than {}", lasting(facts)),
    }
}

/// The subject of a message about these notifications: of the first, and how many more there are.
#[must_use]
pub(crate) fn subject(first: &Said<'_>, items: i32) -> String {
    match items {
        ..=1 => sentence(first),
        items => format!("{items} workflows or runs: {}", event_in_words(first.event)),
    }
}

/// What to do about an event.
#[must_use]
pub(crate) fn advice(event: Event) -> &'static str {
    match event {
        Event::RunFailed | Event::FailuresInARow => {
            "Read the attempts of the run, correct the receiver or the workflow, then retry the run."
        }
        Event::Recovered => "Nothing needs to be done. A backfill runs the times that failed.",
        Event::Missed => "Check the dead letters and the alarms of the runner; a backfill runs these times.",
        Event::Abandoned => "Check whether the receiver got the request; if it did not, retry the run.",
        Event::SkippedOverlap => {
            "Make the runs shorter, or the schedule less frequent, or choose another overlap policy."
        }
        Event::AutoPaused => "Correct the cause of the failures, then resume the workflow: no time runs until then.",
        Event::SyncFailed => {
            "Correct the schedule, or retry its row of the outbox: EventBridge has the schedule of before."
        }
        Event::DriftRepaired => "Find the program or the person that changes the schedules of this group.",
        Event::RunLate => "Check the limits of the team, and whether the runs before have ended.",
        Event::RunLong => "Read the run; cancel it if it does not end.",
        Event::NoSuccess => "Read the last runs of the workflow, and whether it is paused or frozen.",
        Event::VerifyDifference => "Run `cronbox verify` for the day, and follow the runbook.",
        Event::FrozenLong => "Lift the freeze if it is not needed any more.",
        Event::PausedLong => "Resume the workflow, or archive it if it is not needed any more.",
    }
}

fn event_in_words(event: Event) -> &'static str {
    match event {
        Event::RunFailed => "failed",
        Event::FailuresInARow => "failed several times in a row",
        Event::Recovered => "succeeded again",
        Event::Missed => "did not run",
        Event::Abandoned => "were abandoned",
        Event::SkippedOverlap => "were skipped several times in a row",
        Event::AutoPaused => "were paused by cronbox",
        Event::SyncFailed => "have a schedule that EventBridge refuses",
        Event::DriftRepaired => "had another schedule in EventBridge, which is repaired",
        Event::RunLate => "have not started",
        Event::RunLong => "have not ended",
        Event::NoSuccess => "have had no successful run",
        Event::VerifyDifference => "differ from the ledger",
        Event::FrozenLong => "frozen for long",
        Event::PausedLong => "paused for long",
    }
}

fn name_of(said: &Said<'_>) -> String {
    match (said.workflow_name, said.workflow_id) {
        (Some(name), _) => name.to_owned(),
        (None, Some(id)) => format!("workflow {id} (deleted)"),
        (None, None) => "the team".to_owned(),
    }
}

fn times(facts: &Value, field: &str) -> String {
    match facts[field].as_i64().unwrap_or_default() {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    }
}

fn how_it_ended(facts: &Value) -> &'static str {
    if facts["state"] == "timed_out" { "timed out" } else { "failed" }
}

/// `EventBridge refuses the schedule of payroll: the error`, as its team may read it.
fn sync_failure(name: &str, facts: &Value) -> String {
    let error = sync_error_of(facts);
    // The sentence for teams has the same beginning.
    let rest = error.strip_prefix(REFUSED).map_or_else(|| format!(": {error}"), str::to_owned);
    format!("{REFUSED} of {name}{rest}")
}

/// The error of an edit that EventBridge refuses, without the words of AWS, which rows from before migration 144 have.
#[must_use]
pub(crate) fn sync_error_of(facts: &Value) -> String {
    // Only a permanent error is notified.
    let class = facts["error_class"].as_str().or(Some("permanent"));
    error_for_team(StoredError::Publication { class, error: facts["error"].as_str().unwrap_or_default() })
}

/// `: the error`, as a sentence if it is a code.
fn error_of(facts: &Value) -> String {
    in_words(&facts["error"])
}

fn reason_of(facts: &Value) -> String {
    in_words(&facts["reason"])
}

fn in_words(stored: &Value) -> String {
    match stored.as_str() {
        Some(text) if !text.is_empty() => {
            format!(": {}", Reason::parse(text).map_or_else(|| text.to_owned(), |reason| reason.sentence()))
        }
        _ => String::new(),
    }
}

fn since(facts: &Value) -> String {
    short(&facts["since"])
}

fn short(time: &Value) -> String {
    let parsed = time.as_str().and_then(|time| time.parse::<DateTime<Utc>>().ok());
    parsed.map(short_time).unwrap_or_default()
}

fn short_time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

fn lasting(facts: &Value) -> String {
    duration_in_words(facts["after_secs"].as_i64().unwrap_or_default())
}

fn duration_in_words(secs: i64) -> String {
    match secs {
        secs if secs % 86_400 == 0 && secs > 86_400 => format!("{} days", secs / 86_400),
        secs if secs % 3_600 == 0 && secs > 3_600 => format!("{} hours", secs / 3_600),
        secs if secs % 60 == 0 && secs > 60 => format!("{} minutes", secs / 60),
        secs => format!("{secs} seconds"),
    }
}
