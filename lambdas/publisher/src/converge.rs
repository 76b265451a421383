//! Step 4 of 7: makes EventBridge show what one workflow asks for.
//!
//! No transaction and no connection is held here. What is believed to stand decides which call is
//! made first; what EventBridge answers decides what follows; what a refusal means says `converge/judge.rs`.

mod judge;

use chrono::{DateTime, Utc};
use schedule::{Revision, ScheduleName, WorkflowId};
use tokio::time::Instant;

use crate::Publisher;
use crate::desired::{Desired, Spec, State, TEMPLATE, desired};
use crate::evidence::Beginning;
use crate::fault::{Effect, Fault, Kind};
use crate::inject::Point;
use crate::lease::Lease;
use crate::outbox::{Claim, Verify};
use crate::settlement::{Applied, Deed, Outcome, Settlement};
use crate::workflows::Workflow;

/// The hash of "no schedule stands".
pub(crate) const NONE: &str = "none";

/// What stands in EventBridge, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Belief {
    /// No schedule.
    Nothing,
    /// The one with this hash.
    Hash(String),
    /// Some schedule of ours.
    Something,
    /// Nobody knows.
    Unknown,
}

/// Who is being converged, and until when.
struct Work<'a> {
    publisher: &'a Publisher,
    claim: &'a Claim,
    name: ScheduleName,
    now: DateTime<Utc>,
    lease: &'a Lease,
}

/// Converges one claimed workflow; whatever happens ends in a settlement.
pub(crate) async fn converge(publisher: &Publisher, claim: Claim, workflow: &Workflow, lease: &Lease) -> Settlement {
    let config = publisher.config();
    let work = Work {
        publisher,
        claim: &claim,
        name: ScheduleName::new(claim.workflow_id, &config.env),
        now: publisher.clock().now(),
        lease,
    };
    tracing::info!(
        step = 3,
        workflow_id = claim.workflow_id.0,
        epoch = claim.epoch,
        "publisher: workflow {} at revision {}",
        claim.workflow_id,
        workflow.revision
    );
    let wanted = desired(workflow, claim.traceparent.as_deref(), config, work.now);
    let changes_on = workflow.row.as_ref().and_then(|row| row.changes_on(work.now));
    let (outcome, is_verified) = match &wanted {
        Ok(wanted) => work.reach(wanted, workflow.revision).await,
        // Nothing can be compared with it, so a verify pass that is due has nothing to say either.
        Err(unreadable) => (Outcome::Failed { message: unreadable.to_string(), effect: Effect::None }, true),
    };
    work.log(&outcome, &wanted.ok());
    Settlement { outcome, changes_on, is_verified: is_verified && claim.verify == Verify::Due, claim }
}

impl Work<'_> {
    /// The outcome, and whether what stands has been looked at where that was due.
    async fn reach(&self, wanted: &Desired, revision: Revision) -> (Outcome, bool) {
        let believed = match self.claim.verify {
            Verify::NotDue => Ok(believed(self.claim)),
            Verify::Due => self.look(wanted).await,
        };
        match believed {
            Err(fault) => (self.judge(fault), false),
            Ok(believed) => {
                let began = self.publisher.evidence().begin();
                match self.call(wanted, &believed).await {
                    Ok(deed) => (Outcome::Applied(self.applied(deed, began, wanted, revision)), true),
                    Err(fault) => (self.judge(self.unless_outdated(fault, wanted)), true),
                }
            }
        }
    }

    /// The verify pass: no request signed before can still arrive, so what stands now is what stands.
    async fn look(&self, wanted: &Desired) -> Result<Belief, Fault> {
        let standing =
            self.publisher.allowed(self.lease, self.publisher.schedules().get(&self.name, self.lease)).await?;
        Ok(match (standing, wanted) {
            (None, _) => Belief::Nothing,
            (Some(standing), Desired::Schedule(spec)) if spec.is(&standing, self.now) => Belief::Hash(spec.hash()),
            (Some(_), _) => {
                tracing::warn!(workflow_id = self.claim.workflow_id.0, "{} is not what was published", self.name);
                Belief::Something
            }
        })
    }

    async fn call(&self, wanted: &Desired, believed: &Belief) -> Result<Deed, Fault> {
        match (wanted, believed) {
            (Desired::Nothing, Belief::Nothing) => Ok(Deed::Unchanged),
            (Desired::Nothing, _) => self.remove().await,
            (Desired::Schedule(spec), Belief::Hash(hash)) if *hash == spec.hash() => Ok(Deed::Unchanged),
            (Desired::Schedule(spec), Belief::Hash(_) | Belief::Something) => self.update_or_create(spec).await,
            (Desired::Schedule(spec), Belief::Nothing | Belief::Unknown) => self.create_or_update(spec).await,
        }
    }

    async fn remove(&self) -> Result<Deed, Fault> {
        match self.publisher.allowed(self.lease, self.publisher.schedules().remove(&self.name, self.lease)).await {
            Err(fault) if fault.kind != Kind::NotFound => Err(fault),
            _ => Ok(Deed::Deleted),
        }
    }

    async fn create_or_update(&self, spec: &Spec) -> Result<Deed, Fault> {
        match self.create(spec).await {
            Err(fault) if fault.kind == Kind::Conflict => self.update(spec).await.map_err(|fault| match fault.kind {
                // There a moment ago, gone now: somebody's late request. The next try finds out.
                Kind::NotFound => fault.judged_as(Kind::Conflict, "the schedule came and went meanwhile"),
                _ => fault,
            }),
            created => created.map_err(group_missing),
        }
    }

    async fn update_or_create(&self, spec: &Spec) -> Result<Deed, Fault> {
        match self.update(spec).await {
            Err(fault) if fault.kind == Kind::NotFound => self.create(spec).await.map_err(group_missing),
            updated => updated,
        }
    }

    async fn create(&self, spec: &Spec) -> Result<Deed, Fault> {
        let call = self.publisher.schedules().create(spec, self.now, self.lease);
        self.publisher.allowed(self.lease, call).await.map(|()| Deed::Created)
    }

    async fn update(&self, spec: &Spec) -> Result<Deed, Fault> {
        let call = self.publisher.schedules().update(spec, self.now, self.lease);
        self.publisher.allowed(self.lease, call).await.map(|()| Deed::Updated)
    }

    fn applied(&self, deed: Deed, began: Beginning, wanted: &Desired, revision: Revision) -> Applied {
        self.publisher.backoff().reset(self.claim.workflow_id);
        if deed != Deed::Unchanged {
            self.publisher.evidence().succeeded(self.claim.workflow_id, began);
        }
        match wanted {
            Desired::Nothing => {
                Applied { deed, revision, spec_hash: NONE.to_owned(), schedule_name: None, template: None }
            }
            Desired::Schedule(spec) => Applied {
                deed,
                revision,
                spec_hash: spec.hash(),
                schedule_name: Some(spec.name.to_string()),
                template: Some(TEMPLATE),
            },
        }
    }

    fn log(&self, outcome: &Outcome, wanted: &Option<Desired>) {
        let WorkflowId(workflow_id) = self.claim.workflow_id;
        let name = &self.name;
        match (outcome, wanted) {
            (Outcome::Applied(Applied { deed: Deed::Unchanged, .. }), _) => {
                tracing::info!(step = 4, workflow_id, "schedule {name} already stands as wanted");
            }
            (Outcome::Applied(Applied { deed, .. }), Some(Desired::Schedule(spec))) => {
                let Spec { expression, timezone, state, .. } = &**spec;
                tracing::info!(
                    step = 4,
                    workflow_id,
                    "schedule {name} {deed}: {expression} {timezone}{}",
                    match state {
                        State::Enabled => "",
                        State::Disabled => " (disabled)",
                    }
                );
            }
            (Outcome::Applied(Applied { deed, .. }), _) => {
                tracing::info!(step = 4, workflow_id, "schedule {name} {deed}");
            }
            (Outcome::Retry(setback), _) => {
                let secs = setback.wait.as_secs_f64();
                tracing::warn!(
                    workflow_id,
                    class = setback.class.as_str(),
                    "{name}: {}; again in {secs:.1} s",
                    setback.message
                );
            }
            (Outcome::Failed { message, .. }, _) => {
                tracing::error!(workflow_id, "{name} is given up until its next edit: {message}");
            }
            (Outcome::NotCalled, _) => tracing::info!(workflow_id, "{name} is left to the next drain"),
        }
    }
}

impl Publisher {
    /// Waits for a free place among the calls in flight and for its slot, then makes the call, if the lease still holds.
    pub(crate) async fn allowed<T>(
        &self,
        lease: &Lease,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let _place = self.place().await;
        self.rate().slot(|| lease.is_live()).await;
        if !lease.is_live() {
            return Err(Fault::not_sent());
        }
        self.injector().at(Point::P6).await;
        let sent = Instant::now();
        let answer = call.await;
        self.metrics().called(&answer);
        if let Err(Fault { kind: Kind::Throttled, .. }) = &answer {
            self.rate().throttled(sent);
        }
        self.injector().at(Point::P8).await;
        answer
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

/// Of a create, AWS's "does not exist" speaks of the group.
fn group_missing(fault: Fault) -> Fault {
    match fault.kind {
        Kind::NotFound => fault
            .judged_as(Kind::Environment, "the schedule group is missing: create it, as terraform/modules/cron does"),
        _ => fault,
    }
}
