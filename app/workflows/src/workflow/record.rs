//! Step 1 of 7: a workflow, and what an edit of it changes.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Revision, WorkflowId, WorkflowState};
use serde_json::{Value, json};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres};

use crate::audit::{Edit, Entry};
use crate::definition::body::WorkflowBody;
use crate::definition::hidden_changes::list_hidden_changes;
use crate::definition::redaction;
use crate::definition::spec::{Spec, Timing};
use crate::outbox::{Event, Op, Payload};
use crate::sync::Sync;

/// Whether the times of a workflow are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// They are due.
    Active,
    /// No time is due until the workflow is resumed.
    Paused,
    /// Final; the history remains.
    Archived,
}

impl From<State> for WorkflowState {
    fn from(state: State) -> Self {
        match state {
            State::Active => WorkflowState::Active,
            State::Paused => WorkflowState::Paused,
            State::Archived => WorkflowState::Archived,
        }
    }
}

impl From<WorkflowState> for State {
    fn from(state: WorkflowState) -> Self {
        match state {
            WorkflowState::Active => State::Active,
            WorkflowState::Paused => State::Paused,
            WorkflowState::Archived => State::Archived,
        }
    }
}

// The publisher uses the column's text, too, so it is defined once, in `schedule::WorkflowState`.
impl sqlx::Type<Postgres> for State {
    fn type_info() -> PgTypeInfo {
        <&str as sqlx::Type<Postgres>>::type_info()
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        <&str as sqlx::Type<Postgres>>::compatible(ty)
    }
}

impl Encode<'_, Postgres> for State {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <&str as Encode<'_, Postgres>>::encode_by_ref(&WorkflowState::from(*self).as_str(), buffer)
    }
}

impl<'r> Decode<'r, Postgres> for State {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(<&str as Decode<'r, Postgres>>::decode(value)?.parse::<WorkflowState>()?.into())
    }
}

/// What became of the newest run of a workflow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LastResult {
    /// Its action succeeded.
    Succeeded,
    /// Its action failed.
    Failed,
    /// It exceeded its timeout.
    TimedOut,
    /// It was cancelled on request.
    Cancelled,
    /// It was abandoned.
    Abandoned,
}

impl LastResult {
    /// As the database stores it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Who paused a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum PausedBy {
    /// A client of the API.
    Client,
    /// cronbox, after failures in a row.
    Cronbox,
}

/// A workflow.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// The id.
    pub id: WorkflowId,
    /// The owner.
    pub team_id: i64,
    /// The fields that a client writes.
    pub spec: Spec,
    /// Whether its times are due.
    pub state: State,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// Who paused it.
    pub paused_by: Option<PausedBy>,
    /// When the pause ends automatically.
    pub pause_until: Option<DateTime<Utc>>,
    /// The file that manages it; `None` = the API.
    pub managed_by: Option<String>,
    /// The ETag.
    pub version: i64,
    /// Raised by each change of timing or state.
    pub revision: Revision,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
}

/// The next time that a workflow with this timing and state will run by its schedule.
pub(super) fn next_fire_of(
    timing: &Timing,
    state: State,
    pause_until: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let from = active_from(state, pause_until, now)?;
    let (cron, timezone) = timing.parsed_now()?;
    cron.next_after(timing.first_instant_after(from), timezone).filter(|next| timing.is_before_end(*next))
}

/// Since when, from `now` on, its times are due: after a pause with an end, from that end on.
fn active_from(state: State, pause_until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    match (state, pause_until) {
        (State::Active, _) => Some(now),
        (State::Paused, Some(until)) => Some(now.max(until - TimeDelta::microseconds(1))),
        (State::Paused, None) | (State::Archived, _) => None,
    }
}

/// The outcome of an edit.
#[derive(Debug)]
pub enum Saved {
    /// Nothing changed, so version and revision are not raised.
    Unchanged,
    /// Changed, but not the timing.
    Changed,
    /// Timing or state changed, and the publisher has an outbox row to process: the workflow and its synchronization as the
    /// transaction has left them.
    Enqueued(Box<(Workflow, Sync)>),
}

/// What an edit writes besides the row of the workflow.
pub(super) struct PlannedEdit<'a> {
    /// The row of the outbox; `None` = the same times are due as before.
    pub(super) event: Option<Event>,
    /// Whether times missed before are never caught up.
    pub(super) is_activated: bool,
    /// The entry of the audit log.
    pub(super) entry: Entry<'a>,
}

impl Workflow {
    /// The next time that it will run by its schedule.
    #[must_use]
    pub fn next_fire_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        next_fire_of(&self.spec.timing, self.state, self.pause_until, now)
    }

    /// Returns the workflow after a resume.
    #[must_use]
    pub fn resumed(&self) -> Self {
        Self { state: State::Active, pause_reason: None, pause_until: None, ..self.clone() }
    }

    /// Gives `next` its version, revision and time, and returns what the edit writes besides its row.
    pub(super) fn plan_edit<'a>(&self, next: &mut Self, verb: &'a str, edit: &Edit) -> PlannedEdit<'a> {
        let changes_due_times = self.changes_due_times(next);
        next.version = self.version + 1;
        next.revision = Revision(self.revision.0 + i64::from(changes_due_times));
        next.updated_on = edit.now;
        let (before, after) = self.audit_difference(next);
        PlannedEdit {
            event: changes_due_times.then(|| next.outbox_event(edit)),
            is_activated: self.is_activated_by(next),
            entry: next.audit_entry(verb, Some(before), Some(after)),
        }
    }

    /// Returns both documents for the audit log. The one after the edit names the changed values that neither shows.
    fn audit_difference(&self, next: &Self) -> (Value, Value) {
        let (before, after) = (WorkflowBody::from_spec(&self.spec), WorkflowBody::from_spec(&next.spec));
        let complete = |body: &WorkflowBody| json!({"action": body.action, "starting_inputs": body.starting_inputs});
        let hidden = list_hidden_changes(&complete(&before), &complete(&after));
        let (before, mut after) = (self.redact_body(before), next.redact_body(after));
        if !hidden.is_empty() {
            after["hidden_changes"] = json!(hidden);
        }
        (before, after)
    }

    pub(super) fn audit_entry<'a>(&self, verb: &'a str, before: Option<Value>, after: Option<Value>) -> Entry<'a> {
        Entry { verb, subject: format!("workflow:{}", self.id), team_id: Some(self.team_id), before, after }
    }

    /// Returns the document for the audit log: everything except secrets and the paths of URLs.
    pub(super) fn audit_document(&self) -> Value {
        self.redact_body(WorkflowBody::from_spec(&self.spec))
    }

    fn redact_body(&self, body: WorkflowBody) -> Value {
        let action = redaction::audit_action(&body.action);
        let mut document = serde_json::to_value(WorkflowBody { action, ..body }).unwrap_or_default();
        redaction::redact_marked(&mut document["starting_inputs"]);
        document["team_id"] = json!(self.team_id);
        document["state"] = json!(self.state);
        document["pause_reason"] = json!(self.pause_reason);
        document["pause_until"] = json!(self.pause_until);
        document["managed_by"] = json!(self.managed_by);
        document["version"] = json!(self.version);
        document["revision"] = json!(self.revision);
        document
    }

    pub(super) fn outbox_event(&self, edit: &Edit) -> Event {
        let wanted = self.state != State::Archived && self.spec.timing.cron.is_some();
        self.outbox_event_of(if wanted { Op::Upsert } else { Op::Delete }, self.revision, edit)
    }

    pub(super) fn outbox_event_of(&self, op: Op, revision: Revision, edit: &Edit) -> Event {
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

    /// Whether other times are due by `next`, or from another moment on.
    fn changes_due_times(&self, next: &Self) -> bool {
        let never_had_a_cron = self.revision.0 == 0 && next.spec.timing.cron.is_none();
        !never_had_a_cron
            && (self.spec.timing != next.spec.timing
                || self.state != next.state
                || self.pause_until != next.pause_until)
    }

    /// Whether `next` is activated anew, so that times missed before are never caught up.
    fn is_activated_by(&self, next: &Self) -> bool {
        let (timing, next_timing) = (&self.spec.timing, &next.spec.timing);
        timing.cron != next_timing.cron
            || timing.timezone != next_timing.timezone
            || self.state == State::Paused && next.state == State::Active
    }
}
