//! Step 4 of 7: applies a fault to a call.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Draw, Faults, Kind, Operation};
use crate::clock::Clock;
use crate::scheduler::error::Error;
use crate::scheduler::{Scheduler, recent_changes};

/// AWS's error message, by which the publisher recognises the fault.
const ASSUME_ROLE: &str = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.";
const CONFLICT: &str = "Updating or deleting the resource can cause an inconsistent state.";

/// What a get or a list shows: the current schedules, or those of some changes ago.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct View {
    pub(in crate::scheduler) changes_back: usize,
}

/// Draws for a call, and applies the fault.
pub(in crate::scheduler) async fn inject_fault(
    State(scheduler): State<Scheduler>,
    mut request: Request,
    next: Next,
) -> Response {
    let faults = scheduler.faults();
    faults.late_requests.receive_due(scheduler.clock().now()).await;
    scheduler.lock_store().end_deletions(scheduler.clock().now());
    let draw = operation(&request).and_then(|operation| faults.draw(operation));
    request.extensions_mut().insert(View::default());
    let Some(Draw { kind, share }) = draw else { return next.run(request).await };
    tracing::info!(?kind, method = %request.method(), path = request.uri().path(), "fault injected into a call");
    match kind {
        Kind::Throttle => Error::Throttled.into_response(),
        Kind::ErrorBefore => Error::Internal.into_response(),
        Kind::ErrorAfter => {
            next.run(request).await;
            Error::Internal.into_response()
        }
        Kind::TimeoutAfter => {
            next.run(request).await;
            faults.silence().await
        }
        Kind::Late => {
            send_late(&scheduler, share, request, next);
            faults.silence().await
        }
        Kind::Conflict => Error::Conflict(CONFLICT.to_owned()).into_response(),
        Kind::AssumeRole => Error::Validation(ASSUME_ROLE.to_owned()).into_response(),
        Kind::MissingGroup => Error::no_group("requested").into_response(),
        Kind::Slow => slowly(faults.slowness(share), share, request, next).await,
        Kind::Stale => {
            let changes_back = 1 + index_of(share, recent_changes::KEPT);
            request.extensions_mut().insert(View { changes_back });
            next.run(request).await
        }
    }
}

fn operation(request: &Request) -> Option<Operation> {
    let path = request.uri().path();
    if path == "/schedules" {
        return (request.method() == Method::GET).then_some(Operation::ListSchedules);
    }
    if !path.starts_with("/schedules/") {
        return None;
    }
    match *request.method() {
        Method::POST => Some(Operation::CreateSchedule),
        Method::PUT => Some(Operation::UpdateSchedule),
        Method::DELETE => Some(Operation::DeleteSchedule),
        Method::GET => Some(Operation::GetSchedule),
        _ => None,
    }
}

/// With the machine's clock the request arrives at its time, else when the clock is set, or with the next call.
fn send_late(scheduler: &Scheduler, share: f64, request: Request, next: Next) {
    let lateness = scheduler.faults().lateness(share);
    scheduler.faults().late_requests.send_later(scheduler.clock().now() + lateness, request, next);
    if let (Clock::System, Ok(wait)) = (scheduler.clock(), lateness.to_std()) {
        let scheduler = scheduler.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            scheduler.faults().late_requests.receive_due(scheduler.clock().now()).await;
        });
    }
}

/// The same number decides whether the request or the answer is slow, and how slow.
async fn slowly(wait: Duration, share: f64, request: Request, next: Next) -> Response {
    let (before, after) = if share < 0.5 { (wait, Duration::ZERO) } else { (Duration::ZERO, wait) };
    tokio::time::sleep(before).await;
    let response = next.run(request).await;
    tokio::time::sleep(after).await;
    response
}

/// `share` of 0..1 as an index below `count`.
fn index_of(share: f64, count: usize) -> usize {
    (0..count).rev().find(|index| share * count as f64 >= *index as f64).unwrap_or_default()
}

impl Faults {
    /// Gives no answer for as long as the stand-in runs; then an error.
    async fn silence(&self) -> Response {
        self.ended.cancelled().await;
        Error::Internal.into_response()
    }
}
