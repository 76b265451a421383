//! The app's decision about the time of a message: whether redriving it will start a run.

use anyhow::Result;
use chrono::{SecondsFormat, TimeDelta};
use schedule::Fire;
use serde_json::{Value, json};

use crate::client::{Client, Refusal};

/// What the app knows about a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// There is a decision, and a run if the time ran.
    Decided {
        /// `fired`, `missed`, ..
        decision: String,
        /// The run's id and state.
        run: Option<(String, String)>,
    },
    /// Nothing is decided: the app has not received this time.
    Nothing,
    /// The workflow does not exist any more.
    Gone,
    /// The app was not called, or did not answer.
    Unasked,
}

/// Reads what the app knows about the time of a fire.
///
/// # Errors
/// Fails if the app does not answer or refuses the request.
pub(super) async fn read_decision(client: &Client, fire: &Fire) -> Result<Known> {
    let time = |time: chrono::DateTime<chrono::Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let (from, to) = (time(fire.scheduled_time), time(fire.scheduled_time + TimeDelta::minutes(1)));
    let path = format!("/schedules/{}/occurrences", fire.workflow_id);
    let page = match client.get(&path, &[("from", from), ("to", to), ("limit", "1".to_owned())]).await {
        Ok(page) => page,
        Err(error) if error.downcast_ref().is_some_and(Refusal::is_not_found) => return Ok(Known::Gone),
        Err(error) => return Err(error),
    };
    let occurrence = &page["items"][0];
    let Some(decision) = occurrence["decision"].as_str() else { return Ok(Known::Nothing) };
    let run = match occurrence["run_id"].as_str() {
        Some(id) => Some((id.to_owned(), state(client, id).await?)),
        None => None,
    };
    Ok(Known::Decided { decision: decision.to_owned(), run })
}

async fn state(client: &Client, run: &str) -> Result<String> {
    Ok(client.get(&format!("/runs/{run}"), &[]).await?["state"].as_str().unwrap_or("unknown").to_owned())
}

impl Known {
    /// A short text for the table.
    pub(super) fn short_text(&self) -> String {
        match self {
            Known::Decided { decision, run: Some((_, state)) } => format!("{decision}, {state}"),
            Known::Decided { decision, run: None } => decision.clone(),
            Known::Nothing => "nothing".to_owned(),
            Known::Gone => "gone".to_owned(),
            Known::Unasked => "?".to_owned(),
        }
    }

    /// For scripts: `known` says which other fields are present.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Known::Decided { decision, run } => {
                let (id, state) = run.as_ref().map_or((None, None), |(id, state)| (Some(id), Some(state)));
                json!({"known": "decided", "decision": decision, "run_id": id, "run_state": state})
            }
            Known::Nothing => json!({"known": "nothing"}),
            Known::Gone => json!({"known": "gone"}),
            Known::Unasked => json!({"known": "unasked"}),
        }
    }
}
