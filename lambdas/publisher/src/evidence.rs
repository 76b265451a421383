//! Step 4 of 7: whether a refusal speaks of one workflow or of all.
//!
//! A role that lost a permission, a wrong ARN, a used-up quota, a missing group, a proxy in between:
//! each workflow would be refused alike, and failing them one by one would dead-letter all of them for
//! the operator's mistake. So a refusal by the environment backs off; three different workflows refused
//! with no success between them stop the drain; and one that is denied, while calls of the same
//! operation succeed for others, fails permanently.
//!
//! What was refused or not answered for all is over with the first success after it: then no workflow
//! waits any longer for the end of a backoff that was not about it.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schedule::WorkflowId;

use crate::backoff::LONGEST;

/// So many different workflows in a row, and it is not theirs.
const EVERYBODY: usize = 3;

/// While some calls succeed and others never do, an outage ends with every success; backoffs must not.
const REST: Duration = Duration::from_secs(60);

/// A denial is forgotten when its workflow's next try is overdue: the longest backoff, and two ticks.
const FORGOTTEN: Duration = LONGEST.saturating_add(Duration::from_secs(120));

/// What this process has seen of the environment; kept from drain to drain.
#[derive(Debug, Default)]
pub(crate) struct Evidence(Mutex<Seen>);

/// Events are numbered as they come, so that "began after" needs no clock.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    /// When the newest success of each operation began.
    success_began: HashMap<Operation, u64>,
    refused_since_success: HashMap<Matter, HashSet<WorkflowId>>,
    /// What has met three workflows, and no success since.
    met_everybody: HashSet<Matter>,
    denials: HashMap<WorkflowId, Denial>,
    /// Refused or not answered since the last success.
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

/// What a call does; permissions and quotas differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Get,
}

/// When work on a workflow began, among all events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning(u64);

/// Whose fault a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// This workflow's, as far as can be told: no other one was refused so without a success in between.
    Workflow,
    /// The environment's: back this workflow off.
    Environment,
    /// The environment's for all: stop the drain. Said once for each three.
    Everybody,
}

/// What the environment refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The permission, or a setting of the deployment.
    Denied(Operation),
    /// The role, which deletes do not use: never a workflow's own fault, because all schedules name the same.
    Role(Operation),
    /// A quota, a missing group, an answer that is not EventBridge's: never a workflow's own fault.
    Otherwise,
    /// An answer that is not classified, by its status.
    Strange(u16),
}

/// Which refusals are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Matter {
    /// Only a success of the same operation says that it is allowed.
    Operation(Operation),
    Environment,
    Strange(u16),
}

impl Evidence {
    /// A call begins.
    pub(crate) fn begin(&self) -> Beginning {
        Beginning(self.seen().next())
    }

    /// EventBridge did for a workflow what was asked.
    pub(crate) fn succeeded(&self, operation: Operation, began: Beginning) {
        let mut seen = self.seen();
        let newest = seen.success_began.entry(operation).or_default();
        *newest = began.0.max(*newest);
        if operation == Operation::Get {
            // What can be read may still not be changed.
            seen.refused_since_success.remove(&Matter::Operation(Operation::Get));
            return;
        }
        let is_unproved = |matter: &Matter| matches!(matter, Matter::Operation(other) if *other != operation);
        seen.refused_since_success.retain(|matter, _| is_unproved(matter));
        seen.met_everybody.retain(is_unproved);
        seen.is_over |= seen.failed_since_success.len() >= EVERYBODY;
        seen.failed_since_success.clear();
    }

    /// A workflow came to an end, good or bad: what it was denied before says nothing any more.
    pub(crate) fn settled(&self, workflow: WorkflowId) {
        self.seen().denials.remove(&workflow);
    }

    /// EventBridge did not answer for a workflow, or was broken.
    pub(crate) fn unanswered(&self, workflow: WorkflowId) {
        self.seen().failed_since_success.insert(workflow);
    }

    /// Whether an outage for all has ended; said once for each, and not before the last one is long over.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let mut seen = self.seen();
        let is_at_rest = seen.was_over_on.is_none_or(|on| now.saturating_duration_since(on) >= REST);
        if !(seen.is_over && is_at_rest) {
            return false;
        }
        (seen.is_over, seen.was_over_on) = (false, Some(now));
        true
    }

    /// The environment refused a workflow.
    pub(crate) fn refused(&self, workflow: WorkflowId, what: Refused, now: Instant) -> Blame {
        let mut seen = self.seen();
        let event = seen.next();
        if let Refused::Denied(operation) = what
            && seen.is_denied_alone(workflow, operation, event, now)
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
            // The next drain has to see three anew.
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

    /// Notes a denial; says whether others began and succeeded since this workflow's first one, and none
    /// but it is denied this operation.
    fn is_denied_alone(&mut self, workflow: WorkflowId, operation: Operation, event: u64, now: Instant) -> bool {
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

    /// A role that spreads is refused for one workflow and taken for another.
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
