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
    /// Seconds, at most 25, to wait until EventBridge has applied the edit; `sync.status` is the result.
    pub(super) wait: Option<u64>,
}

/// Refuses an edit of an archived workflow, which is final, and of a workflow that a file manages.
///
/// The verbs do not check this: an operator must be able to pause a workflow of a file, and to archive it after the
/// file no longer contains it.
pub(super) fn writable(workflow: &Workflow) -> Result<(), Error> {
    alive(workflow)?;
    match &workflow.managed_by {
        None => Ok(()),
        Some(file) => {
            let detail = format!("the workflow is managed by the file {file}: edit the file, then restart the app");
            Err(Error::conflict("managed", &detail))
        }
    }
}

/// Refuses a change of an archived workflow, which is final.
pub(super) fn alive(workflow: &Workflow) -> Result<(), Error> {
    match workflow.state {
        workflows::State::Archived => {
            Err(Error::conflict("archived", "the workflow is archived and cannot be changed"))
        }
        workflows::State::Active | workflows::State::Paused => Ok(()),
    }
}

/// Notifies the publisher after the commit of an edit.
pub(super) fn notify_publisher(app: &App, saved: Saved) {
    inject::at(Point::A3);
    match saved {
        Saved::Enqueued => app.notifier.notify(),
        Saved::Changed | Saved::Unchanged => {}
    }
}

pub(super) fn wait(seconds: Option<u64>) -> Result<Option<Duration>, FieldError> {
    match seconds {
        Some(26..) => Err(FieldError::invalid("wait", "wait must be from 0 to 25 seconds")),
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

/// Returns the workflow after EventBridge has applied `revision` or refused it, or after `wait`.
pub(super) async fn applied(app: &App, id: WorkflowId, revision: i64, wait: Option<Duration>) -> Result<Read, Error> {
    awaited(app, id, revision, wait).await?;
    let mut connection = app.pool.acquire().await?;
    let found = workflows::find(&mut connection, id, None).await?.ok_or_else(Error::not_found)?;
    Ok(Read(view(found, app.clock.now())))
}

/// Waits until EventBridge has applied `revision` or refused it, or until `wait` has passed.
///
/// Each check takes a connection and returns it: a hundred waiting clients must not exhaust the pool.
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
