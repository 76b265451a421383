//! Step 1 of 7: workflows and the edits of them.
//!
//! Every change goes through [`create`], [`save`] or [`erase`]: the row, its audit entry and, when
//! the timing or the state changes, its schedule version and its outbox row, in one transaction.

mod hold;
pub mod ledger;
mod table;
mod write;

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Cron, Revision, WorkflowId};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::actions;
use crate::audit::{self, Edit, Entry};
use crate::inject::{self, Point};
use crate::outbox::{self, Event, Op, Payload};
use crate::spec::Spec;
use crate::versions;

pub use hold::{lock, try_lock};
pub use table::{find, list};

/// Whether a workflow owes its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Active,
    /// It owes nothing until resumed.
    Paused,
    /// Final; history stays.
    Archived,
}

/// Whether EventBridge is in step with a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum SyncStatus {
    /// The publisher has work to do.
    Pending,
    /// EventBridge holds what the workflow wants.
    Synced,
    /// EventBridge refused for good; the next edit tries again.
    Failed,
    /// EventBridge was changed by hand; the repair is on its way.
    Drifted,
    /// There never was a schedule.
    None,
}

/// A workflow as it stands.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// Identity.
    pub id: WorkflowId,
    /// The owner.
    pub team_id: i64,
    /// What was written.
    pub spec: Spec,
    /// Whether it owes its times.
    pub state: State,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// When the pause ends by itself.
    pub pause_until: Option<DateTime<Utc>>,
    /// The file that owns it, none = the API.
    pub managed_by: Option<String>,
    /// The ETag.
    pub version: i64,
    /// Raised by each change of timing or state.
    pub revision: Revision,
    /// When it was made.
    pub created_on: DateTime<Utc>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
}

/// How far EventBridge follows a workflow.
#[derive(Clone, Debug)]
pub struct Sync {
    /// The judgement of `sync_status()`.
    pub status: SyncStatus,
    /// The newest revision asked for.
    pub desired_revision: Option<i64>,
    /// The revision that EventBridge has acknowledged.
    pub applied_revision: Option<i64>,
    /// For the workflow's owner.
    pub last_error: Option<String>,
    /// When EventBridge last acknowledged.
    pub applied_at: Option<DateTime<Utc>>,
}

/// Which workflows a caller may see and wants to.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// One team's.
    pub team_id: Option<i64>,
    /// In this state.
    pub state: Option<State>,
    /// In step like this.
    pub sync: Option<SyncStatus>,
    /// Whose name or description holds this, in any case.
    pub q: Option<String>,
    /// With a cron alone.
    pub scheduled: bool,
    /// After this id.
    pub after: Option<i64>,
    /// At most so many.
    pub limit: i64,
}

/// What an edit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The same stood there already; nothing is bumped.
    Unchanged,
    /// Changed, but not the timing.
    Changed,
    /// Timing or state changed: the publisher was asked to look.
    Enqueued,
}

impl Workflow {
    /// The next time that it will run by its schedule.
    #[must_use]
    pub fn next_fire_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let from = self.active_from(now)?;
        let (cron, timezone) = self.cron()?;
        cron.next_after(self.spec.timing.first_instant_after(from), timezone)
            .filter(|next| self.spec.timing.ends_at.is_none_or(|end| *next < end))
    }

    /// Since when, from `now` on, it owes its times: a pause that ends by itself owes again from its end.
    fn active_from(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match (self.state, self.pause_until) {
            (State::Active, _) => Some(now),
            (State::Paused, Some(until)) => Some(now.max(until - TimeDelta::microseconds(1))),
            (State::Paused, None) | (State::Archived, _) => None,
        }
    }

    /// The cron and its timezone; none without a cron, or if a newer timezone database dropped the name.
    #[must_use]
    pub fn cron(&self) -> Option<(Cron, chrono_tz::Tz)> {
        let cron = Cron::parse(self.spec.timing.cron.as_deref()?).ok()?;
        let timezone = match self.spec.timing.timezone.as_deref() {
            None => chrono_tz::Tz::UTC,
            Some(name) => schedule::parse_timezone(name).ok()?,
        };
        Some((cron, timezone))
    }

    fn subject(&self) -> String {
        format!("workflow:{}", self.id)
    }

    /// For the audit log: everything but header values.
    fn document(&self) -> Value {
        let mut document = serde_json::to_value(self.spec.to_body()).unwrap_or_default();
        document["action"] = actions::redacted(&self.spec.action);
        document["team_id"] = json!(self.team_id);
        document["state"] = json!(self.state);
        document["pause_reason"] = json!(self.pause_reason);
        document["pause_until"] = json!(self.pause_until);
        document["managed_by"] = json!(self.managed_by);
        document["version"] = json!(self.version);
        document["revision"] = json!(self.revision);
        document
    }

    fn event(&self, edit: &Edit) -> Event {
        let wanted = self.state != State::Archived && self.spec.timing.cron.is_some();
        self.event_of(if wanted { Op::Upsert } else { Op::Delete }, self.revision, edit)
    }

    fn event_of(&self, op: Op, revision: Revision, edit: &Edit) -> Event {
        Event {
            workflow: self.id,
            revision,
            op,
            payload: Payload {
                cron_schedule: self.spec.timing.cron.clone(),
                timezone: self.spec.timing.timezone.clone(),
                is_api: self.spec.is_api,
                team_id: self.team_id,
                revision,
                traceparent: edit.traceparent.clone(),
            },
        }
    }

    /// Whether `next` owes other times than this, or from another moment on.
    fn owes_otherwise(&self, next: &Self) -> bool {
        let never_had_a_cron = self.revision.0 == 0 && next.spec.timing.cron.is_none();
        !never_had_a_cron
            && (self.spec.timing != next.spec.timing
                || self.state != next.state
                || self.pause_until != next.pause_until)
    }

    /// Whether `next` begins anew: what was missed before is never caught up.
    fn is_activated_by(&self, next: &Self) -> bool {
        let timing = |workflow: &Self| (workflow.spec.timing.cron.clone(), workflow.spec.timing.timezone.clone());
        timing(self) != timing(next) || self.state == State::Paused && next.state == State::Active
    }
}

/// Makes a workflow.
///
/// # Errors
/// The database's; a taken name is `workflows_team_id_name_key`.
pub async fn create(
    tx: &mut PgConnection,
    team_id: i64,
    spec: Spec,
    managed_by: Option<&str>,
    edit: &Edit,
) -> sqlx::Result<Workflow> {
    let revision = i64::from(spec.timing.cron.is_some());
    let id = write::insert(tx, team_id, &spec, revision, managed_by, edit.now).await?;
    let made = Workflow {
        id,
        team_id,
        spec,
        state: State::Active,
        pause_reason: None,
        pause_until: None,
        managed_by: managed_by.map(str::to_owned),
        version: 1,
        revision: Revision(revision),
        created_on: edit.now,
        updated_on: edit.now,
    };
    tracing::info!(step = 1, workflow_id = id.0, "edit: workflow {id} created: {}", in_words(&made));
    if revision > 0 {
        let since = versions::record(tx, &made, edit.now).await?;
        write::watch(tx, made.id, since, true).await?;
        outbox::enqueue(tx, &made.event(edit), edit.now).await?;
    }
    let entry = Entry { verb: "create", subject: made.subject(), before: None, after: Some(made.document()) };
    audit::record(tx, edit, entry).await?;
    Ok(made)
}

/// Turns `before`, locked by [`lock`], into `next`; what changes decides what is bumped.
///
/// # Errors
/// The database's; a taken name is `workflows_team_id_name_key`.
pub async fn save(
    tx: &mut PgConnection,
    before: &Workflow,
    next: Workflow,
    verb: &str,
    edit: &Edit,
) -> sqlx::Result<Saved> {
    save_since(tx, before, next, verb, edit, edit.now).await
}

/// As [`save`], with the new timing in force since a moment that may have passed.
async fn save_since(
    tx: &mut PgConnection,
    before: &Workflow,
    mut next: Workflow,
    verb: &str,
    edit: &Edit,
    since: DateTime<Utc>,
) -> sqlx::Result<Saved> {
    let pause = |workflow: &Workflow| (workflow.pause_reason.clone(), workflow.pause_until);
    let stays = before.spec == next.spec && before.managed_by == next.managed_by;
    if stays && before.state == next.state && pause(before) == pause(&next) {
        return Ok(Saved::Unchanged);
    }
    let owes_otherwise = before.owes_otherwise(&next);
    next.version = before.version + 1;
    next.revision = Revision(before.revision.0 + i64::from(owes_otherwise));
    next.updated_on = edit.now;
    write::update(tx, &next).await?;
    inject::at(Point::A1);
    tracing::info!(step = 1, workflow_id = next.id.0, "edit: {verb} of workflow {}: {}", next.id, in_words(&next));
    if owes_otherwise {
        let since = versions::record(tx, &next, since).await?;
        write::watch(tx, next.id, since, before.is_activated_by(&next)).await?;
        outbox::enqueue(tx, &next.event(edit), edit.now).await?;
        inject::at(Point::A2);
    }
    let entry = Entry { verb, subject: next.subject(), before: Some(before.document()), after: Some(next.document()) };
    audit::record(tx, edit, entry).await?;
    Ok(if owes_otherwise { Saved::Enqueued } else { Saved::Changed })
}

/// Erases a workflow, locked by [`lock`], with its runs, occurrences and schedule versions.
///
/// # Errors
/// The database's.
pub async fn erase(tx: &mut PgConnection, before: &Workflow, edit: &Edit) -> sqlx::Result<()> {
    let event = before.event_of(Op::Delete, Revision(before.revision.0 + 1), edit);
    write::delete(tx, before.id).await?;
    tracing::info!(step = 1, workflow_id = before.id.0, "edit: workflow {} deleted", before.id);
    outbox::enqueue(tx, &event, edit.now).await?;
    let entry = Entry { verb: "delete", subject: before.subject(), before: Some(before.document()), after: None };
    audit::record(tx, edit, entry).await
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
