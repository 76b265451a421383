//! Step 4 of 7: whether a refusal concerns one workflow or all.
//!
//! If a role lost a permission, an ARN is wrong, a quota is exhausted, a schedule group is missing, or a proxy answers,
//! every workflow is refused in the same way. If each of them failed permanently, all would be dead-lettered for the
//! operator's mistake. So a refusal by the environment only backs the workflow off. Three different workflows that are
//! refused without a success between them stop the drain. A workflow that is denied, while calls of the same operation
//! succeed for others, fails permanently.
//!
//! Fewer than three refused workflows stop no drain, because the next call could succeed. But as long as none does, each
//! drain reports that EventBridge refuses, so that an environment with one workflow raises the same alarm.
//!
//! The first success after an outage ends it for all workflows: none of them waits for the end of its backoff any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schedule::WorkflowId;

use crate::converge::backoff::LONGEST;
use crate::scheduler::fault::Operation;

/// If this many different workflows are refused in a row, the cause is not in a workflow.
const OUTAGE_WORKFLOWS: usize = 3;

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
    met_all_workflows: HashSet<Matter>,
    denials: HashMap<WorkflowId, Denial>,
    /// What EventBridge refused last to each workflow, until a call proves it allowed or the workflow is settled.
    refused: HashMap<WorkflowId, (Matter, Instant)>,
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
    AllWorkflows,
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
    pub(crate) fn begin_call(&self) -> Beginning {
        Beginning(self.seen().next())
    }

    /// Records that EventBridge executed a call for a workflow.
    pub(crate) fn record_success(&self, operation: Operation, began: Beginning) {
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
        seen.met_all_workflows.retain(is_unproved);
        seen.refused.retain(|_, (matter, _)| is_unproved(matter));
        seen.is_over |= seen.failed_since_success.len() >= OUTAGE_WORKFLOWS;
        seen.failed_since_success.clear();
    }

    /// Records that a workflow failed for another reason, so that its earlier denials say nothing any more.
    pub(crate) fn forget_denials(&self, workflow: WorkflowId) {
        self.seen().denials.remove(&workflow);
    }

    /// Records that a workflow was settled, so that its earlier refusals say nothing any more.
    pub(crate) fn record_settled(&self, workflow: WorkflowId) {
        let mut seen = self.seen();
        seen.denials.remove(&workflow);
        seen.refused.remove(&workflow);
    }

    /// Returns whether the environment refuses, as far as is known: it refused a workflow, and no call has succeeded
    /// since.
    pub(crate) fn is_refusing(&self, now: Instant) -> bool {
        let mut seen = self.seen();
        // A workflow that was discarded or deleted is neither called nor settled.
        seen.refused.retain(|_, (_, on)| now.saturating_duration_since(*on) < FORGOTTEN);
        !seen.refused.is_empty()
    }

    /// Records that EventBridge gave a workflow no answer, or failed.
    pub(crate) fn record_unanswered(&self, workflow: WorkflowId) {
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
    pub(crate) fn record_refusal(&self, workflow: WorkflowId, what: Refused, now: Instant) -> Blame {
        let mut seen = self.seen();
        let event = seen.next();
        if let Refused::Denied(operation) = what
            && seen.is_single_denial(workflow, operation, event, now)
        {
            seen.denials.remove(&workflow);
            seen.refused.remove(&workflow);
            return Blame::Workflow;
        }
        let matter = match what {
            Refused::Denied(operation) | Refused::Role(operation) => Matter::Operation(operation),
            Refused::Otherwise => Matter::Environment,
            Refused::Strange(status) => Matter::Strange(status),
        };
        seen.failed_since_success.insert(workflow);
        if !matches!(matter, Matter::Strange(_)) {
            seen.refused.insert(workflow, (matter, now));
        }
        let refused = seen.refused_since_success.entry(matter).or_default();
        refused.insert(workflow);
        if refused.len() >= OUTAGE_WORKFLOWS {
            // The next drain must see three refusals again.
            refused.clear();
            seen.met_all_workflows.insert(matter);
            return Blame::AllWorkflows;
        }
        match what {
            Refused::Strange(_) if !seen.met_all_workflows.contains(&matter) => Blame::Workflow,
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
        evidence.record_refusal(WorkflowId(workflow), Refused::Denied(CREATE), Instant::now())
    }

    fn succeeded(evidence: &Evidence, operation: Operation) {
        let began = evidence.begin_call();
        evidence.record_success(operation, began);
    }

    /// One workflow that is refused three times does not.
    #[test]
    fn three_refused_workflows_stop_the_drain() {
        let evidence = Evidence::default();
        let blames = [1, 1, 1, 2, 3, 4].map(|workflow| denied(&evidence, workflow));
        assert_eq!(blames[..4], [Blame::Environment; 4]);
        assert_eq!(blames[4..], [Blame::AllWorkflows, Blame::Environment]);
    }

    #[test]
    fn a_success_resets_the_count_of_refusals() {
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
        assert_eq!(denied(&evidence, 3), Blame::AllWorkflows);
    }

    /// If calls for other workflows began after the denial and succeeded.
    #[test]
    fn a_single_denial_blames_its_workflow() {
        let evidence = Evidence::default();
        let before = evidence.begin_call();
        assert_eq!(denied(&evidence, 1), Blame::Environment);
        evidence.record_success(CREATE, before);
        assert_eq!(denied(&evidence, 1), Blame::Environment, "that one was under way already");
        succeeded(&evidence, CREATE);
        assert_eq!(denied(&evidence, 1), Blame::Workflow);
    }

    /// Until one of them is settled.
    #[test]
    fn two_denied_workflows_blame_the_environment() {
        let evidence = Evidence::default();
        denied(&evidence, 1);
        denied(&evidence, 2);
        succeeded(&evidence, CREATE);
        assert_eq!(denied(&evidence, 1), Blame::Environment);
        evidence.record_settled(WorkflowId(2));
        assert_eq!(denied(&evidence, 1), Blame::Workflow, "the other one came to an end");
    }

    #[test]
    fn an_old_denial_is_forgotten() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        let denied = |workflow, on| evidence.record_refusal(WorkflowId(workflow), Refused::Denied(CREATE), on);
        denied(1, now);
        denied(2, now + FORGOTTEN);
        succeeded(&evidence, CREATE);
        assert_eq!(denied(2, now + FORGOTTEN), Blame::Workflow);
    }

    /// One refused workflow is enough. It ends with a success of the same operation, when the workflow is settled, or when
    /// no drain calls it any more.
    #[test]
    fn one_refused_workflow_is_known_until_a_success() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        assert!(!evidence.is_refusing(now));
        denied(&evidence, 1);
        succeeded(&evidence, Operation::Delete);
        assert!(evidence.is_refusing(now), "a delete proves nothing about creates");
        succeeded(&evidence, CREATE);
        assert!(!evidence.is_refusing(now));
        evidence.record_refusal(WorkflowId(1), Refused::Otherwise, now);
        evidence.record_settled(WorkflowId(1));
        assert!(!evidence.is_refusing(now));
        evidence.record_refusal(WorkflowId(1), Refused::Strange(418), now);
        assert!(!evidence.is_refusing(now), "one strange answer blames its workflow");
        evidence.record_refusal(WorkflowId(1), Refused::Role(CREATE), now);
        assert!(evidence.is_refusing(now) && !evidence.is_refusing(now + FORGOTTEN));
    }

    /// Only an outage of three workflows counts. One that ends less than a minute after another one is reported later.
    #[test]
    fn the_first_success_ends_an_outage_once() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        let unanswered =
            |workflows: &[i64]| workflows.iter().for_each(|id| evidence.record_unanswered(WorkflowId(*id)));
        unanswered(&[1, 2, 1]);
        succeeded(&evidence, CREATE);
        assert!(!evidence.is_over(now), "two workflows are no outage");
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
    fn a_quota_never_blames_one_workflow() {
        let evidence = Evidence::default();
        for _ in 0..3 {
            assert_eq!(evidence.record_refusal(WorkflowId(1), Refused::Otherwise, Instant::now()), Blame::Environment);
            succeeded(&evidence, CREATE);
        }
    }

    /// While a role propagates, EventBridge refuses it for one workflow and accepts it for another.
    #[test]
    fn a_role_never_blames_one_workflow() {
        let evidence = Evidence::default();
        let refused = |workflow| evidence.record_refusal(WorkflowId(workflow), Refused::Role(CREATE), Instant::now());
        for _ in 0..3 {
            assert_eq!(refused(1), Blame::Environment);
            succeeded(&evidence, CREATE);
        }
        assert_eq!([1, 2].map(refused), [Blame::Environment; 2]);
        succeeded(&evidence, Operation::Delete);
        assert_eq!(refused(3), Blame::AllWorkflows, "a delete needs no role");
    }

    /// After that no such answer blames its workflow until the next success.
    #[test]
    fn three_strange_answers_stop_the_drain() {
        let evidence = Evidence::default();
        let strange = |workflow| evidence.record_refusal(WorkflowId(workflow), Refused::Strange(418), Instant::now());
        assert_eq!([1, 1, 2].map(strange), [Blame::Workflow; 3]);
        assert_eq!([3, 1, 2].map(strange), [Blame::AllWorkflows, Blame::Environment, Blame::Environment]);
        succeeded(&evidence, CREATE);
        assert_eq!(strange(1), Blame::Workflow);
    }
}
