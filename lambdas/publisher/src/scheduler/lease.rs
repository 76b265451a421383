//! Step 4 of 7: how long a claim permits calls.
//!
//! EventBridge has no conditional write, so a request sent after the lease has expired could undo what the next owner
//! wrote. Each request is therefore checked right before it is signed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

use tokio::sync::{Notify, watch};

use crate::stopwatch::Stopwatch;

/// How long a claim lasts without a renewal, by the database's clock.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// How long after a claim or a renewal a daemon renews the lease.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(20);
/// How long after a failed renewal it tries again.
pub(crate) const RENEW_AGAIN: Duration = Duration::from_secs(5);
/// Nothing is signed in the last part of a lease, because a call may take 3 s and clocks drift.
const MARGIN: Duration = Duration::from_secs(10);
/// How long before a drain's deadline claims stop, so that claimed workflows can still be settled.
const LAST_CLAIM: Duration = Duration::from_secs(10);
/// How long before the deadline the last call may start.
const LAST_CALL: Duration = Duration::from_secs(5);
/// How long before the deadline the last settle may be repeated.
const LAST_SETTLE: Duration = Duration::from_secs(2);
/// How long to wait for a locked publication after a span has ended.
const SETTLE_AFTER_END: Duration = Duration::from_secs(5);

/// How long one drain may last.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// When it ends; `None` = when the process or the drain is ended.
    deadline: Option<Instant>,
    renewal: Renewal,
    end: End,
    /// Signals the end of the process.
    process_end: End,
    is_stopped: Arc<AtomicBool>,
    changed: Arc<Notify>,
    stopwatch: Stopwatch,
}

/// A signal that is set once and wakes all waiters; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct End(Arc<watch::Sender<Option<Instant>>>);

impl End {
    /// Sets it, if it is not set yet.
    pub(crate) fn signal_end(&self, now: Instant) {
        self.0.send_if_modified(|on| on.is_none() && on.replace(now).is_none());
    }

    fn on(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    async fn reached(&self) {
        // Never an error, because this value owns the sender.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}

/// Whether leases are renewed while a batch is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The process ends before the lease does.
    Off,
    /// For a daemon: as long as its batch takes.
    On,
}

impl Span {
    /// Creates a span until `deadline`, if there is one, or until the process ends.
    pub(crate) fn new(deadline: Option<Instant>, renewal: Renewal, process_end: End, stopwatch: Stopwatch) -> Self {
        let (end, is_stopped, changed) = (End::default(), Arc::default(), Arc::default());
        Span { deadline, renewal, end, process_end, is_stopped, changed, stopwatch }
    }

    /// Monotonic time, by which the drain measures everything.
    pub(crate) fn now(&self) -> Instant {
        self.stopwatch.now()
    }

    /// Returns the same span for another drain, which stops separately.
    pub(crate) fn for_next_drain(&self) -> Span {
        Span { is_stopped: Arc::default(), ..self.clone() }
    }

    /// Returns the same span for a drain that claims for this long at most.
    pub(crate) fn claiming_for(&self, time: Duration) -> Span {
        let end = self.now() + time + LAST_CLAIM;
        let deadline = self.deadline.map_or(end, |deadline| deadline.min(end));
        Span { deadline: Some(deadline), ..self.clone() }
    }

    /// Stops this drain, but not the next: workflows that are claimed but not called are returned.
    pub(crate) fn stop_drain(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether this drain was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Ends it now: workflows that are claimed but not called are returned.
    pub(crate) fn end_span(&self) {
        self.end.signal_end(self.now());
    }

    /// Returns when the span was ended; a deadline does not end it.
    pub(crate) async fn wait_for_end(&self) {
        tokio::select! {
            () = self.end.reached() => {}
            () = self.process_end.reached() => {}
        }
    }

    /// Notifies that a workflow may have become due.
    pub(crate) fn notify_drain(&self) {
        self.changed.notify_one();
    }

    /// Returns when a workflow may have become due; one waiter gets each notification.
    pub(crate) async fn wait_for_notification(&self) {
        self.changed.notified().await;
    }

    /// Whether more may be claimed.
    pub(crate) fn may_claim(&self) -> bool {
        self.has_left(LAST_CLAIM)
    }

    pub(crate) fn renewal(&self) -> Renewal {
        self.renewal
    }

    /// Whether a claim is still allowed after a pause of this length.
    pub(crate) fn may_claim_after(&self, pause: Duration) -> bool {
        self.has_left(LAST_CLAIM.saturating_add(pause))
    }

    /// Whether something that claims nothing may take this long.
    pub(crate) fn has_time_for(&self, time: Duration) -> bool {
        self.has_left(LAST_SETTLE.saturating_add(time))
    }

    fn may_call(&self) -> bool {
        self.has_left(LAST_CALL)
    }

    /// Whether there is time to wait for a locked publication.
    pub(crate) fn may_settle(&self) -> bool {
        let ended_on = [self.end.on(), self.process_end.on()].into_iter().flatten().min();
        let is_near_end =
            self.deadline.is_some_and(|deadline| deadline.saturating_duration_since(self.now()) <= LAST_SETTLE);
        !is_near_end && ended_on.is_none_or(|on| self.now().saturating_duration_since(on) < SETTLE_AFTER_END)
    }

    fn has_left(&self, time: Duration) -> bool {
        self.end.on().is_none()
            && self.process_end.on().is_none()
            && !self.is_stopped()
            && self.deadline.is_none_or(|deadline| deadline.saturating_duration_since(self.now()) > time)
    }
}

/// How long requests may be signed; monotonic, so that no clock change extends it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    end: Arc<Mutex<Instant>>,
    span: Span,
}

impl Lease {
    /// Creates the lease of a claim that was sent at `sent`, in a drain that may last for `span`.
    pub(crate) fn new(sent: Instant, span: &Span) -> Self {
        Lease { end: Arc::new(Mutex::new(sent + LEASE - MARGIN)), span: span.clone() }
    }

    /// Returns the same lease for one workflow of the batch; it is renewed separately.
    pub(crate) fn of_one(&self) -> Lease {
        let end = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
        Lease { end: Arc::new(Mutex::new(end)), span: self.span.clone() }
    }

    /// Extends it, after the database has confirmed a renewal that was sent at `sent`.
    pub(crate) fn extend_from(&self, sent: Instant) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = sent + LEASE - MARGIN;
    }

    /// Stops the drain that claimed it.
    pub(crate) fn stop_drain(&self) {
        self.span.stop_drain();
    }

    /// Returns when the span of its drain was ended.
    pub(crate) async fn wait_for_end(&self) {
        self.span.wait_for_end().await;
    }

    /// Monotonic time, by which the lease ends.
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
#[error("the lease has ended, so the request is not signed")]
pub(crate) struct LeaseEnded;

/// Checks the lease after the credentials are resolved, which may take long, and after the signing: a process that was
/// frozen in between must not send what it signed.
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
        self.check()
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.check()
    }
}

impl SignWithinLease {
    fn check(&self) -> Result<(), BoxError> {
        if self.0.is_live() { Ok(()) } else { Err(LeaseEnded.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(secs: u64) -> Span {
        let deadline = Instant::now() + Duration::from_secs(secs);
        Span::new(Some(deadline), Renewal::Off, End::default(), Stopwatch::default())
    }

    /// A renewal extends it.
    #[test]
    fn a_lease_ends_ten_seconds_early() {
        let ago = |secs| Instant::now().checked_sub(Duration::from_secs(secs)).expect("the machine is up for a minute");
        assert!(Lease::new(Instant::now(), &span(3600)).is_live());
        let old = Lease::new(ago(50), &span(3600));
        assert!(!old.is_live());
        old.extend_from(ago(20));
        assert!(old.is_live());
    }

    #[test]
    fn no_lease_outlives_its_drain() {
        assert!(span(9).may_call() && !span(9).may_claim());
        assert!(!Lease::new(Instant::now(), &span(4)).is_live());
        let drain = span(3600);
        let lease = Lease::new(Instant::now(), &drain);
        drain.end_span();
        assert!(!lease.is_live());
    }

    /// It never ends later than the span, and claims for at most this long.
    #[test]
    fn a_part_of_a_span_ends_earlier() {
        let secs = Duration::from_secs;
        let first = span(3600).claiming_for(secs(20));
        assert!(first.may_claim_after(secs(15)) && !first.may_claim_after(secs(20)));
        let late = span(25).claiming_for(secs(20));
        assert!(late.may_claim_after(secs(10)) && !late.may_claim_after(secs(15)));
        assert!(span(25).has_time_for(secs(18)) && !span(25).has_time_for(secs(23)));
    }

    #[test]
    fn a_process_end_ends_every_span() {
        let end = End::default();
        let endless = Span::new(None, Renewal::On, end.clone(), Stopwatch::default());
        assert!(endless.may_claim_after(Duration::from_secs(1_000_000)) && endless.may_settle());
        end.signal_end(endless.now());
        assert!(!endless.may_claim() && endless.may_settle(), "what is answered is still settled");
        let long_ago = SETTLE_AFTER_END + Duration::from_secs(1);
        let past = Instant::now().checked_sub(long_ago).expect("the machine is up for a minute");
        let ended = End::default();
        ended.signal_end(past);
        assert!(!Span::new(None, Renewal::On, ended, Stopwatch::default()).may_settle());
    }

    /// A renewal does not extend the leases of the other workflows of the batch.
    #[test]
    fn each_workflow_has_its_own_lease() {
        let ago = |secs| Instant::now().checked_sub(Duration::from_secs(secs)).expect("the machine is up for a minute");
        let batch = Lease::new(ago(50), &span(3600));
        let [renewed, other] = [batch.of_one(), batch.of_one()];
        renewed.extend_from(ago(20));
        assert!(renewed.is_live() && !other.is_live());
    }
}
