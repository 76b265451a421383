//! Step 1 of 7: what all edits by the API share: who may write, and the wait for EventBridge after the commit.

use std::time::Duration;

use schedule::WorkflowId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::Error;
use super::view::{Read, view};
use crate::App;
use crate::field::FieldError;
use crate::inject::{self, Point};
use crate::outbox::{self, Progress};
use crate::workflows::{self, Saved, Workflow};

/// How long a write waits for EventBridge.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WriteParams {
    /// Seconds, at most 25, to wait until EventBridge follows; `sync.status` tells how it went.
    pub(super) wait: Option<u64>,
}

/// Whether the API may write what a workflow is: an archived one is final, one of a file is the file's.
///
/// Not asked by the verbs: whoever operates a workflow of a file must be able to pause it, and to
/// archive it once the file says nothing of it any more.
pub(super) fn writable(workflow: &Workflow) -> Result<(), Error> {
    alive(workflow)?;
    match &workflow.managed_by {
        None => Ok(()),
        Some(file) => {
            let detail = format!("the workflow belongs to the file {file}: edit that, and start the app again");
            Err(Error::conflict("managed", &detail))
        }
    }
}

/// An archived workflow is final.
pub(super) fn alive(workflow: &Workflow) -> Result<(), Error> {
    match workflow.state {
        workflows::State::Archived => Err(Error::conflict("archived", "an archived workflow is final")),
        workflows::State::Active | workflows::State::Paused => Ok(()),
    }
}

/// After the commit of an edit.
pub(super) fn nudge(app: &App, saved: Saved) {
    inject::at(Point::A3);
    match saved {
        Saved::Enqueued => app.nudge.poke(),
        Saved::Changed | Saved::Unchanged => {}
    }
}

pub(super) fn wait(seconds: Option<u64>) -> Result<Option<Duration>, FieldError> {
    match seconds {
        Some(26..) => Err(FieldError::invalid("wait", "wait must be from 0 to 25 seconds")),
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

/// Reads the workflow back, when EventBridge follows `revision`, refused it, or the time is up.
pub(super) async fn applied(app: &App, id: WorkflowId, revision: i64, wait: Option<Duration>) -> Result<Read, Error> {
    awaited(app, id, revision, wait).await?;
    let mut connection = app.pool.acquire().await?;
    let found = workflows::find(&mut connection, id, None).await?.ok_or_else(Error::not_found)?;
    Ok(Read(view(found, app.clock.now())))
}

/// Waits until EventBridge follows `revision`, refused it, or the time is up.
///
/// A connection is held for each look only: a hundred waiting clients must not exhaust the pool.
pub(super) async fn awaited(app: &App, id: WorkflowId, revision: i64, wait: Option<Duration>) -> Result<(), Error> {
    let Some(wait) = wait else { return Ok(()) };
    let until = tokio::time::Instant::now() + wait;
    let mut pause = Duration::from_millis(5);
    loop {
        let mut connection = app.pool.acquire().await?;
        let progress = outbox::progress(&mut connection, id, revision).await?;
        drop(connection);
        if progress == Progress::Settled || tokio::time::Instant::now() >= until {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
