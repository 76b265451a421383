//! Step 7 of 7: the inputs of each request of an action.

use chrono::{DateTime, Utc};
use egress::{Client, Departure};
use workflows::signing::SigningSecret;

/// What an action needs to be sent.
pub struct Sender<'a> {
    /// The client of all actions.
    pub client: &'a Client,
    /// The secret that signs it.
    pub secret: &'a SigningSecret,
    /// When it is sent.
    pub now: DateTime<Utc>,
    /// Whether it may still be sent, and whether it was.
    pub departure: &'a Departure,
}
