//! Step 7 of 7: delivers messages, each at least once and always under its id.
//!
//! A delivery claims a message with a lease, sends it without a transaction, and settles it. If the instance is killed in
//! between, the lease ends and the message is sent again: a receiver recognises it by its id.

mod acceptance;
mod aws;
mod claim;
mod content;
mod courier;
mod post;
mod refusal;

pub use acceptance::Acceptance;
pub use aws::{AwsMessage, Origin, oldest_aws_wait, read_aws_message};
pub use claim::{BATCH, Carrier, Claimed, Settlement, claim_messages, settle_message};
pub use courier::{Courier, CourierParts, Delivered};
pub use refusal::NotAccepted;
