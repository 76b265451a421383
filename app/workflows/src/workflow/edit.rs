//! Step 1 of 7: creates, changes and deletes a workflow.
//!
//! The row, its audit entry and, when the timing or the state changes, its schedule version and its outbox row
//! are written in one transaction.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use db::failpoint::pass_point;
use schedule::Revision;

use super::write::{self, Change};
use super::{Saved, State, Workflow, live_runs};
use crate::audit::{self, Edit};
use crate::definition::spec::Spec;
use crate::failpoint::Point;
use crate::outbox::{self, Op};
use crate::reasons::ReasonCode;
use crate::trigger::Trigger;

/// How long before its time a fire may be decided: twice as long as a clock that is accepted may be wrong.
const EARLIEST_FIRE: TimeDelta = TimeDelta::minutes(10);

/// Creates a workflow.
///
/// # Errors
/// Fails if the database refuses the statement; a name that is taken violates `workflows_team_id_name_key`.
pub async fn create_workflow(
    tx: &mut PgConnection,
    team_id: i64,
    spec: Spec,
    managed_by: Option<&str>,
    edit: &Edit,
) -> sqlx::Result<Workflow> {
    let revision = i64::from(spec.timing.cron.is_some());
    let id = write::insert_workflow(tx, team_id, &spec, revision, managed_by, edit.now).await?;
    let made = Workflow {
        id,
        team_id,
        spec,
        state: State::Active,
        pause_reason: None,
        paused_by: None,
        pause_until: None,
        managed_by: managed_by.map(str::to_owned),
        version: 1,
        revision: Revision(revision),
        created_on: edit.now,
        updated_on: edit.now,
    };
    tracing::info!(step = 1, workflow_id = id.0, "edit: workflow {id} created: {}", in_words(&made));
    let entry = made.audit_entry("create", None, Some(made.audit_document()));
    if revision > 0 {
        write::begin_versions(tx, &made, edit.now).await?;
        write::watch_workflow(tx, made.id, edit.now).await?;
        outbox::enqueue_event(tx, &made.outbox_event(edit), edit, entry).await?;
    } else {
        audit::record_entry(tx, edit, entry).await?;
    }
    Ok(made)
}

/// Changes `before`, which [`super::lock_workflow`] has locked, to `next`. Raises the version, and the revision if due
/// times change.
///
/// A new pause whose end has passed changes nothing: its request waited too long, and it would only end the version of the
/// times that are due and not decided yet.
///
/// # Errors
/// Fails if the database refuses the statement; a name that is taken violates `workflows_team_id_name_key`.
pub async fn save_workflow(
    tx: &mut PgConnection,
    before: &Workflow,
    next: Workflow,
    verb: &str,
    edit: &Edit,
) -> sqlx::Result<Saved> {
    let is_new = next.state == State::Paused && next.pause_until != before.pause_until;
    if is_new && next.pause_until.is_some_and(|until| until <= edit.now) {
        return Ok(Saved::Unchanged);
    }
    save_since(tx, before, next, verb, edit, None).await
}

/// As [`save_workflow`]. If the change was foreseen, the new timing is in force since that past moment.
pub(super) async fn save_since(
    tx: &mut PgConnection,
    before: &Workflow,
    mut next: Workflow,
    verb: &str,
    edit: &Edit,
    foreseen: Option<DateTime<Utc>>,
) -> sqlx::Result<Saved> {
    if next.state != State::Paused {
        next.paused_by = None;
    }
    let pause = |workflow: &Workflow| (workflow.pause_reason.clone(), workflow.paused_by, workflow.pause_until);
    let stays = before.spec == next.spec && before.managed_by == next.managed_by;
    if stays && before.state == next.state && pause(before) == pause(&next) {
        return Ok(Saved::Unchanged);
    }
    let planned = before.plan_edit(&mut next, verb, edit);
    let since = foreseen.unwrap_or(edit.now);
    pass_point(Point::A1);
    if next.state == State::Archived && before.state != State::Archived {
        live_runs::cancel_live_runs(tx, next.id, &Trigger::ALL, ReasonCode::WorkflowArchived, edit.now).await?;
    }
    tracing::info!(step = 1, workflow_id = next.id.0, "edit: {verb} of workflow {}: {}", next.id, in_words(&next));
    let Some(event) = &planned.event else {
        write::update_workflow(tx, &next).await?;
        if next.pause_until.is_some() {
            write::watch_pause(tx, next.id).await?;
        }
        audit::record_entry(tx, edit, planned.entry).await?;
        return Ok(Saved::Changed);
    };
    let change = Change {
        since,
        is_activated: planned.is_activated,
        is_foreseen: foreseen.is_some(),
        may_be_decided: before.spec.timing.is_due_within(since, EARLIEST_FIRE),
    };
    let sync = write::update_and_enqueue(tx, &next, change, event, edit, planned.entry).await?;
    pass_point(Point::A2);
    Ok(Saved::Enqueued(Box::new((next, sync))))
}

/// Deletes a workflow, which [`super::lock_workflow`] has locked, with its schedule versions. Its runs are cancelled; a job
/// removes them and the occurrences later, because they may be millions.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn erase_workflow(tx: &mut PgConnection, before: &Workflow, edit: &Edit) -> sqlx::Result<()> {
    let event = before.outbox_event_of(Op::Delete, Revision(before.revision.0 + 1), edit);
    live_runs::cancel_live_runs(tx, before.id, &Trigger::ALL, ReasonCode::WorkflowArchived, edit.now).await?;
    write::delete_workflow(tx, before.id).await?;
    tracing::info!(step = 1, workflow_id = before.id.0, "edit: workflow {} deleted", before.id);
    let entry = before.audit_entry("delete", Some(before.audit_document()), None);
    outbox::enqueue_event(tx, &event, edit, entry).await.map(drop)
}

fn in_words(workflow: &Workflow) -> String {
    match (workflow.state, &workflow.spec.timing.cron) {
        (State::Archived, _) => "archived".to_owned(),
        (_, None) => "no cron".to_owned(),
        (State::Paused, Some(cron)) => format!("paused, cron {cron}"),
        (State::Active, Some(cron)) => {
            format!("cron {cron} in {}", workflow.spec.timing.timezone.as_deref().unwrap_or("UTC"))
        }
    }
}
