//! Step 4 of 7: makes the schedule in EventBridge match one workflow.
//!
//! No transaction is open here, and no connection is in use. The last known state decides which call comes first;
//! EventBridge's answer decides what follows. `converge/decide.rs` decides what a refusal means.

pub(crate) mod backoff;
mod convergence;
mod decide;
pub(crate) mod desired;
pub(crate) mod evidence;

use std::sync::atomic::{AtomicBool, Ordering};

use schedule::{Revision, ScheduleName, WorkflowId};

use self::convergence::Convergence;
use self::desired::{Desired, NONE, Undecided, desired_schedule, wanted_hash};
use crate::claim::workflows::Workflow;
use crate::claim::{Claim, Verify};
use crate::publisher::Publisher;
use crate::scheduler::existing::Existing;
use crate::scheduler::fault::{Effect, Fault, Kind, Operation};
use crate::scheduler::identity::Identity;
use crate::scheduler::lease::Lease;
use crate::scheduler::spec::{Spec, State, TEMPLATE};
use crate::settle::settlement::{Applied, Change, ErrorClass, Outcome, Setback, Settlement};

/// The last known state of the schedule in EventBridge.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Belief {
    /// No schedule.
    Nothing,
    /// A schedule with this hash.
    Hash(String),
    /// A schedule of this database, with unknown content.
    Something,
    /// Nothing is known.
    Unknown,
}

/// Converges one claimed workflow; every result, also an error, is a settlement.
pub(crate) async fn converge_workflow(
    publisher: &Publisher,
    claim: Claim,
    workflow: &Workflow,
    lease: &Lease,
) -> Settlement {
    let config = publisher.config();
    let name = ScheduleName::new(claim.workflow_id, &config.env);
    let now = publisher.clock().now();
    let span = convergence::begin_span(&claim, workflow, &name);
    let wanted = desired_schedule(workflow, claim.traceparent.as_deref(), config, now);
    let convergence = Convergence {
        publisher,
        claim: &claim,
        span,
        revision: workflow.revision,
        name,
        wanted_hash: wanted_hash(&wanted),
        now,
        lease,
        is_in_doubt: AtomicBool::new(false),
    };
    tracing::info!(
        step = 3,
        workflow_id = claim.workflow_id.0,
        epoch = claim.epoch,
        "publisher: workflow {} at revision {}",
        claim.workflow_id,
        workflow.revision
    );
    let changes_on = workflow.row.as_ref().and_then(|row| row.changes_on(now));
    let (outcome, is_verified) = match &wanted {
        Ok(wanted) => convergence.reach(wanted, workflow).await,
        // The sweep's orphan guard decides. Until then a due verify pass stays due.
        Err(vanished @ Undecided::Vanished) => (convergence.leave(vanished), false),
        // There is nothing to compare with, so a due verify pass has no result either.
        Err(unreadable) => (Outcome::Failed { message: unreadable.to_string(), effect: Effect::None }, true),
    };
    convergence.log(&outcome, &wanted.ok());
    convergence::end_span(&convergence.span, &outcome);
    let is_in_doubt = convergence.is_in_doubt.load(Ordering::Relaxed);
    let refused_hash = matches!(outcome, Outcome::Failed { .. }).then_some(convergence.wanted_hash);
    let is_verified = is_verified && claim.verify == Verify::Due;
    Settlement { outcome, changes_on, is_verified, is_in_doubt, refused_hash, claim }
}

impl Convergence<'_> {
    /// Returns the outcome, and whether a due verify pass has read the schedule.
    async fn reach(&self, wanted: &Desired, workflow: &Workflow) -> (Outcome, bool) {
        let believed = match self.claim.verify {
            Verify::NotDue => Ok(believed(self.claim)),
            Verify::Due => self.read_existing(wanted).await,
        };
        match believed {
            Err(fault) => (self.decide_outcome(fault), false),
            Ok(believed) => match self.call(wanted, &believed, workflow.identity).await {
                Ok(Some(change)) => (Outcome::Applied(self.applied(change, wanted, workflow.revision)), true),
                Ok(None) => {
                    let message = format!("{} has the identity of another database: it is not deleted", self.name);
                    (Outcome::Failed { message, effect: Effect::None }, true)
                }
                Err(fault) => (self.decide_outcome(self.unless_outdated(fault, wanted)), true),
            },
        }
    }

    /// The verify pass: no earlier request can still arrive, so the schedule that this reads is final.
    async fn read_existing(&self, wanted: &Desired) -> Result<Belief, Fault> {
        let get = || self.publisher.schedules().get_schedule(&self.name, self.lease);
        let existing = self.make(Operation::Get, get).await?;
        if let (Some(existing), Desired::Schedule(spec)) = (&existing, wanted) {
            self.refuse_foreign(existing, spec.identity)?;
        }
        Ok(match (existing, wanted) {
            (None, _) => Belief::Nothing,
            (Some(existing), Desired::Schedule(spec)) if spec.matches_existing(&existing, self.now) => {
                Belief::Hash(self.wanted_hash.clone())
            }
            (Some(_), _) => {
                tracing::warn!(
                    workflow_id = self.claim.workflow_id.0,
                    "schedule {} differs from what was published",
                    self.name
                );
                Belief::Something
            }
        })
    }

    /// Makes the calls that are needed. `None` = the schedule belongs to another database, and is kept.
    async fn call(&self, wanted: &Desired, believed: &Belief, identity: Identity) -> Result<Option<Change>, Fault> {
        let done = match (wanted, believed) {
            (Desired::Nothing, Belief::Nothing) => Ok(Change::Unchanged),
            (Desired::Nothing, _) => return self.remove(identity).await,
            (Desired::Schedule(_), Belief::Hash(hash)) if *hash == self.wanted_hash => Ok(Change::Unchanged),
            (Desired::Schedule(spec), Belief::Hash(_) | Belief::Something) => self.update_or_create(spec).await,
            (Desired::Schedule(spec), Belief::Nothing | Belief::Unknown) => self.create_or_update(spec).await,
        };
        done.map(Some)
    }

    /// Tries again later without a call, because the row may be restored.
    fn leave(&self, undecided: &Undecided) -> Outcome {
        Outcome::Retry(Setback {
            class: ErrorClass::Environment,
            message: undecided.to_string(),
            effect: Effect::None,
            wait: self.publisher.backoff().wait_after(self.claim.failures),
        })
    }

    /// Deletes the schedule, unless it has another database's identity.
    ///
    /// EventBridge has no conditional delete, so the schedule is read first. The read may be outdated, so it is used
    /// only if it shows another identity; a read without a schedule proves nothing.
    async fn remove(&self, identity: Identity) -> Result<Option<Change>, Fault> {
        let get = || self.publisher.schedules().get_schedule(&self.name, self.lease);
        let existing = self.make(Operation::Get, get).await?;
        if let Some(other) = existing.and_then(|existing| identity.other_in(existing.description.as_deref())) {
            tracing::error!(
                workflow_id = self.claim.workflow_id.0,
                identity = %other.0,
                "schedule {} belongs to another database and is not deleted",
                self.name
            );
            return Ok(None);
        }
        let remove = || self.publisher.schedules().delete_schedule(&self.name, self.lease);
        match self.make(Operation::Delete, remove).await {
            Err(fault) if fault.kind != Kind::NotFound => Err(fault),
            _ => Ok(Some(Change::Deleted)),
        }
    }

    async fn create_or_update(&self, spec: &Spec) -> Result<Change, Fault> {
        match self.create(spec).await {
            Err(conflict) if conflict.kind == Kind::Conflict => self.update_existing(spec, conflict).await,
            created => created.map_err(group_missing),
        }
    }

    /// Updates the existing schedule that made a create fail, unless it has another database's identity.
    ///
    /// EventBridge has no conditional update, so the schedule is read first. If the read shows no schedule, it was
    /// deleted since the create, or the read is outdated; the next attempt decides.
    async fn update_existing(&self, spec: &Spec, conflict: Fault) -> Result<Change, Fault> {
        const GONE: &str = "another client created or deleted the schedule at the same time";
        let get = || self.publisher.schedules().get_schedule(&self.name, self.lease);
        let Some(existing) = self.make(Operation::Get, get).await? else {
            return Err(conflict.classified_as(Kind::Conflict, GONE));
        };
        self.refuse_foreign(&existing, spec.identity)?;
        self.update(spec).await.map_err(|fault| match fault.kind {
            Kind::NotFound => fault.classified_as(Kind::Conflict, GONE),
            _ => fault,
        })
    }

    /// Refuses to overwrite another database's schedule: the database, `CRONBOX_ENV` or the schedule group is wrong.
    fn refuse_foreign(&self, existing: &Existing, identity: Identity) -> Result<(), Fault> {
        let Some(Identity(other)) = identity.other_in(existing.description.as_deref()) else { return Ok(()) };
        tracing::error!(
            workflow_id = self.claim.workflow_id.0,
            identity = %other,
            "schedule {} belongs to another database and is not overwritten",
            self.name
        );
        let message = format!("{} has the identity {other} of another database: it is not overwritten", self.name);
        Err(Fault::new(Kind::Environment, Effect::None, message))
    }

    async fn update_or_create(&self, spec: &Spec) -> Result<Change, Fault> {
        match self.update(spec).await {
            Err(fault) if fault.kind == Kind::NotFound => self.create(spec).await.map_err(group_missing),
            updated => updated,
        }
    }

    async fn create(&self, spec: &Spec) -> Result<Change, Fault> {
        let create = || self.publisher.schedules().create_schedule(spec, self.now, self.lease);
        self.make(Operation::Create, create).await.map(|()| Change::Created)
    }

    async fn update(&self, spec: &Spec) -> Result<Change, Fault> {
        let update = || self.publisher.schedules().update_schedule(spec, self.now, self.lease);
        self.make(Operation::Update, update).await.map(|()| Change::Updated)
    }

    /// Makes a call within rate and lease, and records that its operation is allowed.
    ///
    /// A call whose connection broke is repeated once at once, because a Lambda that was frozen has connections in its
    /// pool that the server has closed. The verify pass later finds what the first request did.
    async fn make<T, C>(&self, operation: Operation, call: impl Fn() -> C) -> Result<T, Fault>
    where
        C: Future<Output = Result<T, Fault>>,
    {
        let began = self.publisher.evidence().begin_call();
        // Boxed, because the SDK's future is large, and most workflows of a batch wait, or need no call.
        let call = || self.call_in_span(operation, Box::pin(call()));
        let mut answer = self.publisher.call_when_allowed(self.lease, self.publisher.rate(), call()).await;
        if let Err(Fault { is_broken: true, effect, .. }) = &answer {
            self.is_in_doubt.fetch_or(*effect == Effect::Unknown, Ordering::Relaxed);
            answer = self.publisher.call_when_allowed(self.lease, self.publisher.rate(), call()).await;
        }
        let is_gone = matches!(&answer, Err(fault) if fault.kind == Kind::NotFound);
        if answer.is_ok() || operation == Operation::Delete && is_gone {
            self.publisher.evidence().record_success(operation, began);
        }
        answer.map_err(|fault| fault.with_operation(operation))
    }

    fn applied(&self, change: Change, wanted: &Desired, revision: Revision) -> Applied {
        self.publisher.evidence().record_settled(self.claim.workflow_id);
        let (schedule_name, template) = match wanted {
            Desired::Nothing => (None, None),
            Desired::Schedule(spec) => (Some(spec.name.to_string()), Some(TEMPLATE)),
        };
        Applied { change, revision, spec_hash: self.wanted_hash.clone(), schedule_name, template }
    }

    fn log(&self, outcome: &Outcome, wanted: &Option<Desired>) {
        let WorkflowId(workflow_id) = self.claim.workflow_id;
        let name = &self.name;
        match (outcome, wanted) {
            (Outcome::Applied(Applied { change: Change::Unchanged, .. }), _) => {
                tracing::info!(step = 4, workflow_id, "schedule {name} unchanged");
            }
            (Outcome::Applied(Applied { change, .. }), Some(Desired::Schedule(spec))) => {
                let Spec { expression, timezone, state, .. } = &**spec;
                tracing::info!(
                    step = 4,
                    workflow_id,
                    "schedule {name} {change}: {expression} {timezone}{}",
                    match state {
                        State::Enabled => "",
                        State::Disabled => " (disabled)",
                    }
                );
            }
            (Outcome::Applied(Applied { change, .. }), _) => {
                tracing::info!(step = 4, workflow_id, "schedule {name} {change}");
            }
            (Outcome::Retry(setback), _) => {
                let secs = setback.wait.as_secs_f64();
                tracing::warn!(
                    workflow_id,
                    class = setback.class.as_str(),
                    "schedule {name} not published: {}; next attempt in {secs:.1} s",
                    setback.message
                );
            }
            (Outcome::Failed { message, .. }, _) => {
                tracing::error!(
                    workflow_id,
                    "schedule {name} failed, and is not published until its next edit: {message}"
                );
            }
            (Outcome::NotCalled, _) => tracing::info!(workflow_id, "schedule {name} waits for the next drain"),
        }
    }
}

fn believed(claim: &Claim) -> Belief {
    match (&claim.spec_hash, &claim.schedule_name) {
        (Some(hash), _) if hash == NONE => Belief::Nothing,
        (Some(hash), _) => Belief::Hash(hash.clone()),
        (None, Some(_)) => Belief::Something,
        (None, None) => Belief::Unknown,
    }
}

/// If a create fails with AWS's "does not exist", the schedule group is missing.
fn group_missing(fault: Fault) -> Fault {
    match fault.kind {
        Kind::NotFound => fault.classified_as(
            Kind::Environment,
            "the schedule group is missing: create it, as terraform/modules/cron does",
        ),
        _ => fault,
    }
}
