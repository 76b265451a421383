//! Step 4 of 7: until when a claim entitles to call.
//!
//! EventBridge has no conditional write, so a request sent after the lease has lapsed could undo
//! what the next owner put there. Each request is therefore checked right before it is signed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

use crate::stopwatch::Stopwatch;

/// How long a claim holds without renewal (database clock).
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// When a daemon renews.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(20);
/// Nothing is signed in the last part of a lease: a call may take its 3 s, and clocks drift.
const MARGIN: Duration = Duration::from_secs(10);
/// Claims stop so long before a drain's deadline that what is claimed can still be settled.
const LAST_CLAIM: Duration = Duration::from_secs(10);
/// No call is started later than this before the deadline.
const LAST_CALL: Duration = Duration::from_secs(5);

/// How long one drain may go on.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    deadline: Instant,
    renewal: Renewal,
    is_over: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
    stopwatch: Stopwatch,
}

/// Whether leases are renewed while a batch is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The process has an end of its own, earlier than the lease's.
    Off,
    /// A daemon's: as long as its batch takes.
    On,
}

impl Span {
    pub(crate) fn until(deadline: Instant, renewal: Renewal, stopwatch: Stopwatch) -> Self {
        Span { deadline, renewal, is_over: Arc::default(), is_stopped: Arc::default(), stopwatch }
    }

    /// Monotonic time, by which all of the drain goes.
    pub(crate) fn now(&self) -> Instant {
        self.stopwatch.now()
    }

    /// The same span for a further drain, which stops on its own.
    pub(crate) fn afresh(&self) -> Span {
        Span { is_stopped: Arc::default(), ..self.clone() }
    }

    /// Stops this drain, but not the next: what is claimed but not called is given back.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether this drain was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Ends it now: what is claimed but not called is given back.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether more may be claimed.
    pub(crate) fn may_claim(&self) -> bool {
        self.has_left(LAST_CLAIM)
    }

    pub(crate) fn renewal(&self) -> Renewal {
        self.renewal
    }

    fn may_call(&self) -> bool {
        self.has_left(LAST_CALL)
    }

    fn has_left(&self, time: Duration) -> bool {
        !self.is_over.load(Ordering::Relaxed)
            && !self.is_stopped()
            && self.deadline.saturating_duration_since(self.now()) > time
    }
}

/// Until when one batch may sign requests; monotonic, so that no clock change extends it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    end: Arc<Mutex<Instant>>,
    span: Span,
}

impl Lease {
    /// The lease of a claim that was sent at `sent`, in a drain that may go on for `span`.
    pub(crate) fn new(sent: Instant, span: &Span) -> Self {
        Lease { end: Arc::new(Mutex::new(sent + LEASE - MARGIN)), span: span.clone() }
    }

    /// Extends it, after the database has confirmed a renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Instant) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = sent + LEASE - MARGIN;
    }

    /// Stops the drain that claimed it.
    pub(crate) fn stop_drain(&self) {
        self.span.stop();
    }

    /// Monotonic time, as the lease counts it.
    pub(crate) fn now(&self) -> Instant {
        self.span.now()
    }

    /// Whether a request may still be signed.
    pub(crate) fn is_live(&self) -> bool {
        let end = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.now() < end && self.span.may_call()
    }
}

/// Why a request was not signed.
#[derive(Debug, thiserror::Error)]
#[error("the lease has ended")]
pub(crate) struct LeaseEnded;

/// Looks at the lease between the resolving of credentials, which may take long, and the signing.
#[derive(Debug)]
pub(crate) struct SignWithinLease(pub(crate) Lease);

impl Intercept for SignWithinLease {
    fn name(&self) -> &'static str {
        "SignWithinLease"
    }

    fn read_before_signing(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.0.is_live() { Ok(()) } else { Err(LeaseEnded.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(secs: u64) -> Span {
        Span::until(Instant::now() + Duration::from_secs(secs), Renewal::Off, Stopwatch::default())
    }

    #[test]
    fn a_lease_ends_ten_seconds_early_and_is_extended_by_a_renewal() {
        let ago = |secs| Instant::now().checked_sub(Duration::from_secs(secs)).expect("the machine is up for a minute");
        assert!(Lease::new(Instant::now(), &span(3600)).is_live());
        let old = Lease::new(ago(50), &span(3600));
        assert!(!old.is_live());
        old.renewed(ago(20));
        assert!(old.is_live());
    }

    #[test]
    fn no_lease_outlives_its_drain() {
        assert!(span(9).may_call() && !span(9).may_claim());
        assert!(!Lease::new(Instant::now(), &span(4)).is_live());
        let drain = span(3600);
        let lease = Lease::new(Instant::now(), &drain);
        drain.end();
        assert!(!lease.is_live());
    }
}
