//! Step 4 of 7: one workflow that is being converged.

use std::sync::atomic::AtomicBool;

use chrono::{DateTime, Utc};
use schedule::{Revision, ScheduleName};
use traces::{Kind, Parent, Span};

use crate::claim::Claim;
use crate::claim::workflows::Workflow;
use crate::publisher::Publisher;
use crate::scheduler::fault::{Fault, Operation};
use crate::scheduler::lease::Lease;
use crate::settle::settlement::Outcome;

/// The workflow to converge, and its lease.
pub(super) struct Convergence<'a> {
    pub(super) publisher: &'a Publisher,
    pub(super) claim: &'a Claim,
    pub(super) name: ScheduleName,
    /// The hash of what is wanted, which is computed once.
    pub(super) wanted_hash: String,
    pub(super) now: DateTime<Utc>,
    pub(super) lease: &'a Lease,
    /// A call was repeated, so its first request may still arrive.
    pub(super) is_in_doubt: AtomicBool,
    /// The revision that is published.
    pub(super) revision: Revision,
    /// Its parent is the edit.
    pub(super) span: Span,
}

/// Begins the span of a claimed workflow: it continues the trace of the newest edit that the claim covers.
pub(super) fn begin_span(claim: &Claim, workflow: &Workflow, name: &ScheduleName) -> Span {
    let parent = Parent::Header(claim.traceparent.as_deref());
    let span = Span::begin(Kind::Consumer, parent, || "process outbox_events".into());
    span.set("messaging.system", "cronbox");
    span.set("messaging.operation.name", "process");
    span.set("messaging.operation.type", "process");
    span.set("messaging.destination.name", "outbox_events");
    span.set_text("messaging.message.id", claim.seen);
    span.set("cronbox.workflow.id", claim.workflow_id.0);
    span.set("cronbox.workflow.revision", workflow.revision.0);
    span.set_text("cronbox.schedule.name", name);
    span
}

/// Ends the span of a claimed workflow.
pub(super) fn end_span(span: &Span, outcome: &Outcome) {
    match outcome {
        Outcome::Applied(applied) => span.set_text("cronbox.result", applied.change),
        Outcome::Retry(setback) => note_failure(span, "retry", setback.class.as_str()),
        Outcome::Failed { .. } => note_failure(span, "failed", "failed"),
        Outcome::NotCalled => span.set("cronbox.result", "not_called"),
    }
}

fn note_failure(span: &Span, result: &'static str, error_type: &'static str) {
    span.set("cronbox.result", result);
    span.fail(error_type);
}

impl Convergence<'_> {
    /// Makes one request to EventBridge Scheduler, with a span of its own. It begins when the request may be sent.
    pub(super) async fn call_in_span<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let span = Span::begin(Kind::Client, Parent::Span(&self.span), || operation.span_name().into());
        span.set("rpc.system", "aws-api");
        span.set("rpc.service", "Scheduler");
        span.set("rpc.method", operation.method());
        span.set("cronbox.workflow.id", self.claim.workflow_id.0);
        span.set("cronbox.workflow.revision", self.revision.0);
        span.set_text("cronbox.schedule.name", &self.name);
        let answer = call.await;
        match &answer {
            Ok(_) => span.set("cronbox.result", "done"),
            Err(fault) => note_failure(&span, fault.kind.as_str(), fault.kind.as_str()),
        }
        answer
    }
}
