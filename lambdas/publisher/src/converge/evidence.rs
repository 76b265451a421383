//! Step 4 of 7: whether a refusal concerns one workflow or all.
//!
//! If a role lost a permission, an ARN is wrong, a quota is exhausted, a schedule group is missing, or a proxy answers,
//! every workflow is refused in the same way. If each of them failed permanently, all would be dead-lettered for the
//! operator's mistake. So a refusal by the environment only backs the workflow off. Three different workflows that are
//! refused without a success between them stop the drain. A workflow that is denied, while calls of the same operation
//! succeed for others, fails permanently.
//!
//! The first success after an outage ends it for all workflows: none of them waits for the end of its backoff any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schedule::WorkflowId;

use crate::converge::backoff::LONGEST;
use crate::scheduler::fault::Operation;

/// If this many different workflows are refused in a row, the cause is not in a workflow.
const EVERYBODY: usize = 3;

/// While some calls succeed and others never do, each success ends an outage; the backoffs must not end each time.
const REST: Duration = Duration::from_secs(60);

/// A denial is forgotten when the next attempt of its workflow is overdue: the longest backoff, and two ticks.
const FORGOTTEN: Duration = LONGEST.saturating_add(Duration::from_secs(120));

/// What this process knows about the environment; kept from drain to drain.
#[derive(Debug, Default)]
pub(crate) struct Evidence(Mutex<Seen>);

/// Events are numbered in order, so that "began after" needs no clock.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    /// When the newest success of each operation began.
    success_began: HashMap<Operation, u64>,
    refused_since_success: HashMap<Matter, HashSet<WorkflowId>>,
    /// What EventBridge refused to three workflows, without a success since.
    met_everybody: HashSet<Matter>,
    denials: HashMap<WorkflowId, Denial>,
    /// Workflows that were refused or not answered since the last success.
    failed_since_success: HashSet<WorkflowId>,
    is_over: bool,
    was_over_on: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    operation: Operation,
    first: u64,
    last_on: Instant,
}

/// The number of the event at which a call began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning(u64);

/// What causes a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// This workflow, as far as is known: no other workflow was refused for this reason without a success in between.
    Workflow,
    /// The environment: back this workflow off.
    Environment,
    /// The environment, for all workflows: stop the drain. Returned once for every three workflows.
    Everybody,
}

/// What the environment refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The permission, or a setting of the deployment.
    Denied(Operation),
    /// The role, which deletes do not use. Never caused by a workflow, because all schedules name the same role.
    Role(Operation),
    /// A quota, a missing schedule group, an answer that is not EventBridge's. Never caused by a workflow.
    Otherwise,
    /// An answer that is not classified, with its status.
    Strange(u16),
}

/// Which refusals are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Matter {
    /// Only a success of the same operation proves that it is allowed.
    Operation(Operation),
    Environment,
    Strange(u16),
}

impl Evidence {
    /// Records that a call begins.
    pub(crate) fn begin(&self) -> Beginning {
        Beginning(self.seen().next())
    }

    /// Records that EventBridge executed a call for a workflow.
    pub(crate) fn succeeded(&self, operation: Operation, began: Beginning) {
        let mut seen = self.seen();
        let newest = seen.success_began.entry(operation).or_default();
        *newest = began.0.max(*newest);
        if operation == Operation::Get {
            // A permission to read does not prove a permission to change.
            seen.refused_since_success.remove(&Matter::Operation(Operation::Get));
            return;
        }
        let is_unproved = |matter: &Matter| matches!(matter, Matter::Operation(other) if *other != operation);
        seen.refused_since_success.retain(|matter, _| is_unproved(matter));
        seen.met_everybody.retain(is_unproved);
        seen.is_over |= seen.failed_since_success.len() >= EVERYBODY;
        seen.failed_since_success.clear();
    }

    /// Records that a workflow was settled, so that its earlier denials say nothing any more.
    pub(crate) fn settled(&self, workflow: WorkflowId) {
        self.seen().denials.remove(&workflow);
    }

    /// Records that EventBridge gave a workflow no answer, or failed.
    pub(crate) fn unanswered(&self, workflow: WorkflowId) {
        self.seen().failed_since_success.insert(workflow);
    }

    /// Returns whether an outage for all workflows has ended: once for each outage, and at most once per `REST`.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let mut seen = self.seen();
        let is_at_rest = seen.was_over_on.is_none_or(|on| now.saturating_duration_since(on) >= REST);
        if !(seen.is_over && is_at_rest) {
            return false;
        }
        (seen.is_over, seen.was_over_on) = (false, Some(now));
        true
    }

    /// Records that the environment refused a workflow.
    pub(crate) fn refused(&self, workflow: WorkflowId, what: Refused, now: Instant) -> Blame {
        let mut seen = self.seen();
        let event = seen.next();
        if let Refused::Denied(operation) = what
            && seen.is_single_denial(workflow, operation, event, now)
        {
            seen.denials.remove(&workflow);
            return Blame::Workflow;
        }
        let matter = match what {
            Refused::Denied(operation) | Refused::Role(operation) => Matter::Operation(operation),
            Refused::Otherwise => Matter::Environment,
            Refused::Strange(status) => Matter::Strange(status),
        };
        seen.failed_since_success.insert(workflow);
        let refused = seen.refused_since_success.entry(matter).or_default();
        refused.insert(workflow);
        if refused.len() >= EVERYBODY {
            // The next drain must see three refusals again.
            refused.clear();
            seen.met_everybody.insert(matter);
            return Blame::Everybody;
        }
        match what {
            Refused::Strange(_) if !seen.met_everybody.contains(&matter) => Blame::Workflow,
            _ => Blame::Environment,
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn next(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Records a denial. Returns whether only this workflow is denied the operation, while others began and succeeded
    /// since its first denial.
    fn is_single_denial(&mut self, workflow: WorkflowId, operation: Operation, event: u64, now: Instant) -> bool {
        self.denials.retain(|_, denial| now.saturating_duration_since(denial.last_on) < FORGOTTEN);
        let known = self.denials.get(&workflow).filter(|denial| denial.operation == operation);
        let first = known.map_or(event, |denial| denial.first);
        self.denials.insert(workflow, Denial { operation, first, last_on: now });
        let denied = self.denials.values().filter(|denial| denial.operation == operation).count();
        denied == 1 && self.success_began.get(&operation).is_some_and(|began| first < *began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: Operation = Operation::Create;

    fn denied(evidence: &Evidence, workflow: i64) -> Blame {
        evidence.refused(WorkflowId(workflow), Refused::Denied(CREATE), Instant::now())
    }

    fn succeeded(evidence: &Evidence, operation: Operation) {
        let began = evidence.begin();
        evidence.succeeded(operation, began);
    }

    #[test]
    fn three_different_workflows_in_a_row_speak_of_everybody_and_one_thrice_does_not() {
        let evidence = Evidence::default();
        let blames = [1, 1, 1, 2, 3, 4].map(|workflow| denied(&evidence, workflow));
        assert_eq!(blames[..4], [Blame::Environment; 4]);
        assert_eq!(blames[4..], [Blame::Everybody, Blame::Environment]);
    }

    #[test]
    fn a_success_in_between_says_that_it_is_not_everybody() {
        let evidence = Evidence::default();
        denied(&evidence, 1);
        denied(&evidence, 2);
        succeeded(&evidence, CREATE);
        assert_eq!(denied(&evidence, 3), Blame::Environment);
    }

    #[test]
    fn a_success_of_another_operation_proves_nothing() {
        let evidence = Evidence::default();
        denied(&evidence, 1);
        succeeded(&evidence, Operation::Delete);
        assert_eq!(denied(&evidence, 1), Blame::Environment);
        denied(&evidence, 2);
        succeeded(&evidence, Operation::Delete);
        assert_eq!(denied(&evidence, 3), Blame::Everybody);
    }

    #[test]
    fn a_lone_denial_speaks_of_its_workflow_once_others_began_and_succeeded_after_it() {
        let evidence = Evidence::default();
        let before = evidence.begin();
        assert_eq!(denied(&evidence, 1), Blame::Environment);
        evidence.succeeded(CREATE, before);
        assert_eq!(denied(&evidence, 1), Blame::Environment, "that one was under way already");
        succeeded(&evidence, CREATE);
        assert_eq!(denied(&evidence, 1), Blame::Workflow);
    }

    #[test]
    fn no_denial_is_lone_while_another_workflow_is_denied_too() {
        let evidence = Evidence::default();
        denied(&evidence, 1);
        denied(&evidence, 2);
        succeeded(&evidence, CREATE);
        assert_eq!(denied(&evidence, 1), Blame::Environment);
        evidence.settled(WorkflowId(2));
        assert_eq!(denied(&evidence, 1), Blame::Workflow, "the other one came to an end");
    }

    #[test]
    fn an_old_denial_is_forgotten() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        let denied = |workflow, on| evidence.refused(WorkflowId(workflow), Refused::Denied(CREATE), on);
        denied(1, now);
        denied(2, now + FORGOTTEN);
        succeeded(&evidence, CREATE);
        assert_eq!(denied(2, now + FORGOTTEN), Blame::Workflow);
    }

    #[test]
    fn an_outage_for_all_is_over_once_with_the_first_success() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        let unanswered = |workflows: &[i64]| workflows.iter().for_each(|id| evidence.unanswered(WorkflowId(*id)));
        unanswered(&[1, 2, 1]);
        succeeded(&evidence, CREATE);
        assert!(!evidence.is_over(now), "two are not everybody");
        unanswered(&[1, 2, 1, 3]);
        assert!(!evidence.is_over(now), "it goes on");
        succeeded(&evidence, CREATE);
        assert!(evidence.is_over(now));
        succeeded(&evidence, CREATE);
        assert!(!evidence.is_over(now), "it was said");
        unanswered(&[1, 2, 3]);
        succeeded(&evidence, CREATE);
        assert!(!evidence.is_over(now + REST / 2));
        assert!(evidence.is_over(now + REST), "said late, not never");
    }

    #[test]
    fn a_quota_is_never_one_workflow_s_fault() {
        let evidence = Evidence::default();
        for _ in 0..3 {
            assert_eq!(evidence.refused(WorkflowId(1), Refused::Otherwise, Instant::now()), Blame::Environment);
            succeeded(&evidence, CREATE);
        }
    }

    /// While a role propagates, EventBridge refuses it for one workflow and accepts it for another.
    #[test]
    fn a_role_is_never_one_workflow_s_fault() {
        let evidence = Evidence::default();
        let refused = |workflow| evidence.refused(WorkflowId(workflow), Refused::Role(CREATE), Instant::now());
        for _ in 0..3 {
            assert_eq!(refused(1), Blame::Environment);
            succeeded(&evidence, CREATE);
        }
        assert_eq!([1, 2].map(refused), [Blame::Environment; 2]);
        succeeded(&evidence, Operation::Delete);
        assert_eq!(refused(3), Blame::Everybody, "a delete needs no role");
    }

    #[test]
    fn a_strange_answer_is_everybody_s_from_the_third_workflow_to_the_next_success() {
        let evidence = Evidence::default();
        let strange = |workflow| evidence.refused(WorkflowId(workflow), Refused::Strange(418), Instant::now());
        assert_eq!([1, 1, 2].map(strange), [Blame::Workflow; 3]);
        assert_eq!([3, 1, 2].map(strange), [Blame::Everybody, Blame::Environment, Blame::Environment]);
        succeeded(&evidence, CREATE);
        assert_eq!(strange(1), Blame::Workflow);
    }
}
