//! Step 1 of 7: archive, pause and resume: changes of a workflow's state.

use axum::extract::State;
use chrono::{DateTime, Utc};
use ledger::admission::queue;
use schedule::WorkflowId;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use workflows::definition::field::{self, FieldError};
use workflows::{PausedBy, Workflow};

use super::edit::{LockedEdit, answer, parse_wait, refuse_archived};
use super::view::WorkflowAnswer;
use crate::App;
use crate::api::request::auth::{Caller, Editor};
use crate::api::request::edit_transaction::wait_team_turn;
use crate::api::request::error::Error;
use crate::api::request::extract::{EditHead, EditRequest, EmptyBody, OptionalBody, Verb, or_empty};

/// Reason and end of a pause.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseBody {
    /// For people, at most 500 characters.
    #[serde(default)]
    reason: Option<String>,
    /// When the pause ends automatically; absent = it lasts until the workflow is resumed.
    #[serde(default)]
    until: Option<DateTime<Utc>>,
}

/// Archive, pause or resume a workflow.
pub(crate) async fn change_state(
    State(app): State<App>,
    Editor(caller): Editor,
    Verb(id, verb): Verb<WorkflowId>,
    head: EditHead,
    OptionalBody(body): OptionalBody<Value>,
) -> Result<WorkflowAnswer, Error> {
    parse_wait(head.wait)?;
    let change = Change::read(&verb, body, app.clock.now())?;
    let edit = LockedEdit::begin(&app, &caller, EditRequest { id, head }).await?;
    let next = change.of(&edit.before, edit.bounds.now)?;
    let saved = edit.save_and_commit(&app, next, &verb).await?;
    if matches!(change, Change::Resume) {
        start_waiting_runs(&app, &caller, id).await;
    }
    Ok(answer(&app, saved))
}

/// Gives the slots of a resumed workflow to the runs that waited, without waiting for the job `queue`.
async fn start_waiting_runs(app: &App, caller: &Caller, id: WorkflowId) {
    let Ok(_turn) = wait_team_turn(app, caller.team_id).await else { return };
    match queue::advance_workflow(&app.pools.edits, id, app.clock.now()).await {
        Ok(advanced) if advanced.promoted > 0 => app.wake.notify(),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(workflow_id = id.0, %error, "waiting runs not started after a resume; the job `queue` starts them at its next turn");
        }
    }
}

/// The change that a verb makes.
enum Change {
    Archive,
    Pause { reason: Option<String>, until: Option<DateTime<Utc>> },
    Resume,
}

impl Change {
    fn read(verb: &str, body: Value, now: DateTime<Utc>) -> Result<Self, Error> {
        let body = or_empty(body);
        match verb {
            "pause" => {
                let PauseBody { reason, until } = field::parse_document("", body)?;
                reason.as_deref().map_or(Ok(()), |reason| field::check_text("reason", reason, 0, 500))?;
                let until = until.map(|until| field::check_instant("until", until)).transpose()?;
                check_until(until, now)?;
                Ok(Self::Pause { reason, until })
            }
            "archive" => field::parse_document::<EmptyBody>("", body).map(|_| Self::Archive).map_err(Error::from),
            "resume" => field::parse_document::<EmptyBody>("", body).map(|_| Self::Resume).map_err(Error::from),
            _ => Err(Error::not_found()),
        }
    }

    /// Returns the changed workflow; `now` was read under its lock.
    fn of(&self, before: &Workflow, now: DateTime<Utc>) -> Result<Workflow, Error> {
        let next = before.clone();
        match self {
            Self::Archive => {
                Ok(Workflow { state: workflows::State::Archived, pause_reason: None, pause_until: None, ..next })
            }
            Self::Pause { reason, until } => {
                refuse_archived(before)?;
                // The request may have waited until its pause was over.
                check_until(*until, now)?;
                let state = workflows::State::Paused;
                let paused_by = Some(PausedBy::Client);
                Ok(Workflow { state, pause_reason: reason.clone(), paused_by, pause_until: *until, ..next })
            }
            Self::Resume => {
                refuse_archived(before)?;
                Ok(before.resumed())
            }
        }
    }
}

fn check_until(until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<(), FieldError> {
    match until {
        Some(until) if until <= now => Err(FieldError::invalid("until", "until must be in the future")),
        Some(_) | None => Ok(()),
    }
}
