//! Step 1 of 7: the transaction of every edit by the API, and the wait for EventBridge after its commit.

use std::time::Duration;

use access::limits::Growth;
use chrono::{DateTime, Utc};
use db::PgConnection;
use db::failpoint::pass_point;
use schedule::WorkflowId;
use serde_json::Value;
use workflows::audit::Edit;
use workflows::definition::field::FieldError;
use workflows::definition::redaction::Audience;
use workflows::definition::spec::{Bounds, Spec};
use workflows::failpoint::Point;
use workflows::outbox::{self, Progress};
use workflows::secrets::team_secrets::find_unresolved;
use workflows::{Saved, Sync, Workflow, erase_workflow, find_workflow, lock_for_edit, lock_workflow, save_workflow};

use super::quota::check_quota;
use super::view::{WorkflowAnswer, sync_for, view_workflow};
use crate::App;
use crate::api::request::auth::Caller;
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::Error;
use crate::api::request::extract::{EditHead, EditRequest};
use crate::api::request::limits::EditPlace;

/// A workflow with its synchronization.
pub(super) type Read = (Workflow, Sync);

/// An edit in progress: the workflow is locked until the commit.
pub(super) struct LockedEdit {
    tx: EditTransaction,
    pub(super) before: Workflow,
    /// The bounds that its fields are validated against.
    pub(super) bounds: Bounds,
    edit: Edit,
    wait: Option<Duration>,
    place: EditPlace,
    caller: Caller,
}

impl LockedEdit {
    /// Locks a workflow that the caller may see, and refuses the edit if the client saw another version.
    pub(super) async fn begin(app: &App, caller: &Caller, request: EditRequest) -> Result<Self, Error> {
        let EditRequest { id, head: EditHead { trace, if_match, wait, place } } = request;
        let wait = parse_wait(wait)?;
        let mut tx = EditTransaction::begin(app, caller, id).await?;
        let locked = lock_for_edit(&mut tx, id, caller.team_id, &app.clock).await?;
        let (before, now) = locked.ok_or_else(Error::not_found)?;
        let edit = caller.edit_at(now, trace);
        if_match.check_version("workflow", before.version)?;
        let bounds = Bounds { now: edit.now, retention: app.ledger_kept };
        Ok(Self { tx, before, bounds, edit, wait, place, caller: caller.clone() })
    }

    /// As [`Self::begin`], and refuses an archived workflow, which is final, and a workflow that a file manages.
    ///
    /// The verbs do not check this: an operator must be able to pause a workflow of a file, and to archive it after the
    /// file no longer contains it.
    pub(super) async fn begin_writable(app: &App, caller: &Caller, request: EditRequest) -> Result<Self, Error> {
        let locked = Self::begin(app, caller, request).await?;
        refuse_archived(&locked.before)?;
        match &locked.before.managed_by {
            None => Ok(locked),
            Some(file) => {
                let detail = format!("the workflow is managed by the file {file}: edit the file, then restart the app");
                Err(Error::conflict("managed", &detail))
            }
        }
    }

    /// The connection of the edit.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// As [`seal_new_action`], with the existing action.
    pub(super) async fn seal_action(&mut self, app: &App, action: &mut Value) -> Result<(), Error> {
        let (team, before) = (self.before.team_id, Some(&self.before.spec.action));
        seal_new_action(app, &mut self.tx, team, action, before, self.edit.now).await
    }

    /// Saves the workflow with these fields, as [`Self::save_and_commit`].
    pub(super) async fn save_spec(self, app: &App, spec: Spec, verb: &str) -> Result<Read, Error> {
        let next = Workflow { spec, ..self.before.clone() };
        self.save_and_commit(app, next, verb).await
    }

    /// Saves the workflow, commits, notifies the publisher, and waits for EventBridge if the client requested it.
    ///
    /// Returns it as this edit has left it, which is known before the commit: after a change of due times without a read. After
    /// a wait it is read again.
    pub(super) async fn save_and_commit(mut self, app: &App, next: Workflow, verb: &str) -> Result<Read, Error> {
        let growth = Growth::of_edit(&self.before.spec, &next.spec);
        let saved = save_workflow(&mut self.tx, &self.before, next, verb, &self.edit).await?;
        check_quota(app, &mut self.tx, self.before.team_id, growth).await?;
        let is_enqueued = matches!(saved, Saved::Enqueued(_));
        let (workflow, sync) = match saved {
            Saved::Enqueued(read) => *read,
            Saved::Unchanged | Saved::Changed => {
                find_workflow(&mut self.tx, self.before.id, None).await?.ok_or_else(Error::not_found)?
            }
        };
        self.tx.commit().await?;
        pass_point(Point::A3);
        self.place.release();
        if is_enqueued {
            app.notifier.request_notification();
            if self.wait.is_some() {
                awaited(app, workflow.id, workflow.revision.0, self.wait).await?;
                return read_saved(app, &self.caller, workflow.id).await;
            }
        }
        Ok((workflow, sync_for(&self.caller, sync)))
    }

    /// Deletes the workflow, commits, notifies the publisher, and waits for EventBridge if the client requested it.
    pub(super) async fn erase_and_commit(mut self, app: &App) -> Result<(), Error> {
        erase_workflow(&mut self.tx, &self.before, &self.edit).await?;
        self.tx.commit().await?;
        self.place.release();
        app.decider.forget_workflows([self.before.id].into());
        app.notifier.request_notification();
        awaited(app, self.before.id, self.before.revision.0 + 1, self.wait).await
    }
}

/// Encrypts the header values that an edit writes, and refuses a reference to a secret that cannot be resolved.
pub(super) async fn seal_new_action(
    app: &App,
    tx: &mut PgConnection,
    team: i64,
    action: &mut Value,
    before: Option<&Value>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    if let Some(refused) = find_unresolved(tx, team, action).await? {
        return Err(refused.into());
    }
    app.secrets.seal_action(tx, team, action, before, now).await?;
    Ok(())
}

/// Locks a workflow that the team may see, for a change of its runs, and refuses an archived one.
pub(crate) async fn lock_alive(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Workflow, Error> {
    let workflow = lock_workflow(tx, id, team_id, now).await?.ok_or_else(Error::not_found)?;
    refuse_archived(&workflow)?;
    Ok(workflow)
}

/// Refuses a change of an archived workflow, which is final.
pub(super) fn refuse_archived(workflow: &Workflow) -> Result<(), Error> {
    match workflow.state {
        workflows::State::Archived => {
            Err(Error::conflict("archived", "the workflow is archived and cannot be changed"))
        }
        workflows::State::Active | workflows::State::Paused => Ok(()),
    }
}

/// Validates how many seconds a client waits for EventBridge.
pub(super) fn parse_wait(seconds: Option<u64>) -> Result<Option<Duration>, FieldError> {
    match seconds {
        Some(26..) => Err(FieldError::invalid("wait", "wait must be from 0 to 25 seconds")),
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

/// Returns the workflow after EventBridge has applied `revision` or refused it, or after `wait`.
pub(super) async fn read_when_applied(
    app: &App,
    caller: &Caller,
    id: WorkflowId,
    revision: i64,
    wait: Option<Duration>,
) -> Result<WorkflowAnswer, Error> {
    awaited(app, id, revision, wait).await?;
    Ok(answer(app, read_saved(app, caller, id).await?))
}

/// Returns the answer to an edit, of which only editors are callers.
pub(super) fn answer(app: &App, read: Read) -> WorkflowAnswer {
    WorkflowAnswer(view_workflow(read, Audience::Editor, app.clock.now()))
}

async fn read_saved(app: &App, caller: &Caller, id: WorkflowId) -> Result<Read, Error> {
    let mut connection = app.pools.edits.acquire().await?;
    let (workflow, sync) = find_workflow(&mut connection, id, None).await?.ok_or_else(Error::not_found)?;
    Ok((workflow, sync_for(caller, sync)))
}

/// Waits until EventBridge has applied `revision` or refused it, or until `wait` has passed.
///
/// Each check takes a connection and returns it: a hundred waiting clients must not exhaust the pool.
async fn awaited(app: &App, id: WorkflowId, revision: i64, wait: Option<Duration>) -> Result<(), Error> {
    let Some(wait) = wait else { return Ok(()) };
    let until = tokio::time::Instant::now() + wait;
    let mut pause = Duration::from_millis(5);
    loop {
        let mut connection = app.pools.edits.acquire().await?;
        let progress = outbox::read_progress(&mut connection, id, revision).await?;
        drop(connection);
        if progress == Progress::Settled || tokio::time::Instant::now() >= until {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
