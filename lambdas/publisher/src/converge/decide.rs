//! Step 4 of 7: decides what a refusal means for its workflow.

use crate::converge::desired::Desired;
use crate::converge::evidence::{Blame, Refused};
use crate::scheduler::fault::{Fault, Kind, Operation};
use crate::settle::settlement::{ErrorClass, Outcome, Setback};

use super::convergence::Convergence;

impl Convergence<'_> {
    /// Decides what a fault means for this workflow.
    ///
    /// | EventBridge | the attempt | the workflow |
    /// |---|---|---|
    /// | 429, 5xx, no answer, a conflict | does not count | backed off, never fails permanently |
    /// | denied, a setting refused, quota exhausted, schedule group missing, a proxy's page | does not count | backed
    /// off; three in a row stop the drain |
    /// | the schedule is another database's, the role cannot be assumed | does not count | the same, never fails
    /// permanently |
    /// | only this workflow is denied while the same operation succeeds for others | counts | fails permanently |
    /// | the schedule itself is refused | counts | fails permanently at once |
    /// | the same, because its start or end passed meanwhile | does not count | backed off |
    /// | anything else | counts | backed off, fails permanently at `CRONBOX_MAX_ATTEMPTS` |
    /// | the same, of three workflows in a row | does not count | backed off; stops the drain |
    /// | not called: lease, deadline or end of the drain | does not count | as due as before |
    pub(super) fn decide_outcome(&self, fault: Fault) -> Outcome {
        let class = match fault.kind {
            Kind::NotSent => return Outcome::NotCalled,
            Kind::Invalid => return self.give_up(fault),
            Kind::Transient => {
                self.publisher.evidence().record_unanswered(self.claim.workflow_id);
                ErrorClass::Transient
            }
            Kind::Throttled | Kind::Conflict => ErrorClass::Transient,
            Kind::Denied | Kind::Setting => {
                match self.weigh(Refused::Denied(fault.operation.unwrap_or(Operation::Update)), &fault) {
                    Blame::Workflow => return self.give_up(fault),
                    Blame::Environment | Blame::AllWorkflows => ErrorClass::Environment,
                }
            }
            Kind::Role => {
                self.weigh(Refused::Role(fault.operation.unwrap_or(Operation::Update)), &fault);
                ErrorClass::Environment
            }
            Kind::NotFound | Kind::Environment => {
                self.weigh(Refused::Otherwise, &fault);
                ErrorClass::Environment
            }
            Kind::Unclassified => match self.weigh(Refused::Strange(fault.status), &fault) {
                Blame::Workflow if self.claim.attempt >= i32::from(self.publisher.config().max_attempts) => {
                    return self.give_up(fault);
                }
                Blame::Workflow => ErrorClass::Unclassified,
                Blame::Environment | Blame::AllWorkflows => ErrorClass::Environment,
            },
        };
        if !matches!(fault.kind, Kind::Denied | Kind::Setting) {
            self.publisher.evidence().forget_denials(self.claim.workflow_id);
        }
        let wait = self.publisher.backoff().wait_after(self.claim.failures);
        Outcome::Retry(Setback { class, message: fault.message, effect: fault.effect, wait })
    }

    /// Decides whether the environment or the workflow causes a refusal; if it concerns all workflows, the drain stops
    /// here.
    fn weigh(&self, what: Refused, fault: &Fault) -> Blame {
        let blame = self.publisher.evidence().record_refusal(self.claim.workflow_id, what, self.lease.now());
        if blame == Blame::AllWorkflows {
            self.lease.stop_drain();
            self.publisher.metrics().count_stopped_drain();
            tracing::error!("drain stops, because EventBridge refuses every workflow: {}", fault.message);
        }
        blame
    }

    fn give_up(&self, fault: Fault) -> Outcome {
        self.publisher.evidence().record_settled(self.claim.workflow_id);
        Outcome::Failed { message: fault.message, effect: fault.effect }
    }

    /// A start or an end may pass between the publisher's reading of the clock and EventBridge's. The next attempt then
    /// sends other dates, so this refusal says nothing about the schedule, nor about an outage.
    pub(super) fn unless_outdated(&self, fault: Fault, wanted: &Desired) -> Fault {
        match wanted {
            Desired::Schedule(spec)
                if fault.kind == Kind::Invalid && spec.is_outdated(self.now, self.publisher.clock().now()) =>
            {
                fault.classified_as(Kind::Conflict, "its start or end passed during the publication")
            }
            _ => fault,
        }
    }
}
