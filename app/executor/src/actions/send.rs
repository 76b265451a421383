//! Step 7 of 7: the inputs of each request of an action.

use chrono::{DateTime, Utc};
use egress::allowed::Tenant;
use egress::{Client, Departure};
use traces::Span;
use workflows::signing::SigningSecret;

/// What an action needs to be sent.
pub struct Sender<'a> {
    /// The team of the workflow.
    pub tenant: Tenant<'a>,
    /// Whether the action may use http although no operator permits it: it was saved before https was required.
    pub may_use_http: bool,
    /// The client of all actions.
    pub client: &'a Client,
    /// The secrets that sign it: one, and during an overlap the previous one.
    pub secrets: &'a [SigningSecret],
    /// When it is sent.
    pub now: DateTime<Utc>,
    /// The span of the attempt.
    pub span: &'a Span,
    /// Whether it may still be sent, and whether it was.
    pub departure: &'a Departure,
}
