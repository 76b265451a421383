//! The app's decision about the time of a message: whether redriving it will start a run.

use anyhow::Result;
use api_types::occurrences::OccurrenceView;
use api_types::page::Page;
use api_types::runs::RunDetailView;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::Fire;
use serde::Serialize;
use uuid::Uuid;

use crate::client::{Client, Refusal};
use crate::output::word;

/// What the app knows about a time. For programs `known` says which other fields are present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "known", rename_all = "snake_case")]
pub(super) enum Known {
    /// There is a decision, and a run if the time ran.
    Decided {
        /// `fired`, `missed`, ..
        decision: String,
        run_id: Option<Uuid>,
        run_state: Option<String>,
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
    let (from, to) = (second(fire.scheduled_time), second(fire.scheduled_time + TimeDelta::minutes(1)));
    let path = format!("/schedules/{}/occurrences", fire.workflow_id);
    let query = [("from", from), ("to", to), ("limit", "1".to_owned())];
    let page: Page<OccurrenceView> = match client.read(&path, &query).await {
        Ok(page) => page,
        Err(error) if error.downcast_ref().is_some_and(Refusal::is_not_found) => return Ok(Known::Gone),
        Err(error) => return Err(error),
    };
    let Some(occurrence) = page.items.first() else { return Ok(Known::Nothing) };
    let run_state = match occurrence.run_id {
        Some(id) => Some(client.read::<RunDetailView>(&format!("/runs/{id}"), &[]).await?.run.state),
        None => None,
    };
    Ok(Known::Decided {
        decision: word(&occurrence.decision),
        run_id: occurrence.run_id,
        run_state: run_state.map(|state| word(&state)),
    })
}

/// The time, as a fire has it: in whole seconds.
pub(super) fn second(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

impl Known {
    /// A short text for the table.
    pub(super) fn short_text(&self) -> String {
        match self {
            Known::Decided { decision, run_state: Some(state), .. } => format!("{decision}, {state}"),
            Known::Decided { decision, .. } => decision.clone(),
            Known::Nothing => "nothing".to_owned(),
            Known::Gone => "gone".to_owned(),
            Known::Unasked => "?".to_owned(),
        }
    }
}
