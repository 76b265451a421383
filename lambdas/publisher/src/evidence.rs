//! Step 4 of 7: whether a refusal speaks of one workflow or of all.
//!
//! A role that lost a permission, a used-up quota, a missing group: each workflow would be refused
//! alike, and giving them up one by one would dead-letter everybody for the operator's mistake. So
//! a refusal by the environment backs off; three different workflows refused with no success
//! between them stop the drain; and one that is denied alone, while others succeed, is given up.
//!
//! What was refused or not answered for all is over with the first success after it: then nobody
//! waits any longer for the end of a backoff that was not about him.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schedule::WorkflowId;

/// So many different workflows in a row, and it is not theirs.
const EVERYBODY: usize = 3;

/// While some calls succeed and others never do, an outage ends with every success; backoffs must not.
const REST: Duration = Duration::from_secs(60);

/// What this process has seen of the environment; kept from drain to drain.
#[derive(Debug, Default)]
pub(crate) struct Evidence(Mutex<Seen>);

/// Events are numbered as they come, so that "began after" needs no clock.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    last_success_began: u64,
    refused_since_success: HashSet<WorkflowId>,
    first_denial: HashMap<WorkflowId, u64>,
    /// Refused or not answered since the last success.
    failed_since_success: HashSet<WorkflowId>,
    is_over: bool,
    was_over_on: Option<Instant>,
}

/// When work on a workflow began, among all events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning(u64);

/// Whose fault a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// This workflow's alone: others began and succeeded since it was first denied.
    Workflow,
    /// The environment's: back this workflow off.
    Environment,
    /// The environment's for all: stop the drain. Said once for each three.
    Everybody,
}

/// What the environment refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The permission.
    Denied,
    /// A quota, or the group is missing: never a workflow's own fault.
    Otherwise,
}

impl Evidence {
    /// Work on a workflow begins.
    pub(crate) fn begin(&self) -> Beginning {
        Beginning(self.seen().next())
    }

    /// EventBridge did for a workflow what was asked.
    pub(crate) fn succeeded(&self, workflow: WorkflowId, began: Beginning) {
        let mut seen = self.seen();
        seen.last_success_began = seen.last_success_began.max(began.0);
        seen.refused_since_success.clear();
        seen.first_denial.remove(&workflow);
        seen.is_over |= seen.failed_since_success.len() >= EVERYBODY;
        seen.failed_since_success.clear();
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
    pub(crate) fn refused(&self, workflow: WorkflowId, what: Refused) -> Blame {
        let mut seen = self.seen();
        let now = seen.next();
        if what == Refused::Denied {
            let first = *seen.first_denial.entry(workflow).or_insert(now);
            if first < seen.last_success_began && seen.first_denial.len() == 1 {
                seen.first_denial.clear();
                return Blame::Workflow;
            }
        }
        seen.failed_since_success.insert(workflow);
        seen.refused_since_success.insert(workflow);
        if seen.refused_since_success.len() < EVERYBODY {
            return Blame::Environment;
        }
        // The next drain has to see three anew.
        seen.refused_since_success.clear();
        Blame::Everybody
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(evidence: &Evidence, workflow: i64) -> Blame {
        evidence.refused(WorkflowId(workflow), Refused::Denied)
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
        let began = evidence.begin();
        evidence.succeeded(WorkflowId(9), began);
        assert_eq!(denied(&evidence, 3), Blame::Environment);
    }

    #[test]
    fn a_lone_denial_speaks_of_its_workflow_once_others_began_and_succeeded_after_it() {
        let evidence = Evidence::default();
        let before = evidence.begin();
        assert_eq!(denied(&evidence, 1), Blame::Environment);
        evidence.succeeded(WorkflowId(2), before);
        assert_eq!(denied(&evidence, 1), Blame::Environment, "that one was under way already");
        let after = evidence.begin();
        evidence.succeeded(WorkflowId(2), after);
        assert_eq!(denied(&evidence, 1), Blame::Workflow);
    }

    #[test]
    fn no_denial_is_lone_while_another_workflow_is_denied_too() {
        let evidence = Evidence::default();
        denied(&evidence, 1);
        denied(&evidence, 2);
        let began = evidence.begin();
        evidence.succeeded(WorkflowId(3), began);
        assert_eq!(denied(&evidence, 1), Blame::Environment);
    }

    #[test]
    fn an_outage_for_all_is_over_once_with_the_first_success() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        let succeeded = |workflow| evidence.succeeded(WorkflowId(workflow), evidence.begin());
        let unanswered = |workflows: &[i64]| workflows.iter().for_each(|id| evidence.unanswered(WorkflowId(*id)));
        unanswered(&[1, 2, 1]);
        succeeded(3);
        assert!(!evidence.is_over(now), "two are not everybody");
        unanswered(&[1, 2, 1, 3]);
        assert!(!evidence.is_over(now), "it goes on");
        succeeded(1);
        assert!(evidence.is_over(now));
        succeeded(2);
        assert!(!evidence.is_over(now), "it was said");
        unanswered(&[1, 2, 3]);
        succeeded(4);
        assert!(!evidence.is_over(now + REST / 2));
        assert!(evidence.is_over(now + REST), "said late, not never");
    }

    #[test]
    fn a_quota_is_never_one_workflow_s_fault() {
        let evidence = Evidence::default();
        for _ in 0..3 {
            assert_eq!(evidence.refused(WorkflowId(1), Refused::Otherwise), Blame::Environment);
            let began = evidence.begin();
            evidence.succeeded(WorkflowId(2), began);
        }
    }
}
