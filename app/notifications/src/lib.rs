//! Step 7 of 7: notifications, the messages to people about what failed and what recovered.
//!
//! 1. A rule of a team names an event and channels (`rule.rs`, `channel.rs`).
//! 2. The transaction that makes an event writes one row for each rule, by triggers (migration 102). Conditions that last
//!    too long are found by a job (`condition.rs`).
//! 3. The job `notifications` gives each row to the channels of its rule (`route.rs`), and collects what waits for a channel
//!    in messages (`group.rs`).
//! 4. It delivers each message at least once, always under the same id (`delivery.rs`).
//!
//! This crate must not depend on axum, nor on an AWS client: the Lambda `notifier` depends on it, and sends
//! messages to AWS.

pub mod aws_target;
pub mod channel;
pub mod condition;
pub mod delivery;
pub mod difference;
mod failures;
pub mod group;
pub mod message;
pub mod message_list;
pub mod notification;
pub mod notification_list;
pub mod old_rows;
mod quiet;
pub mod route;
pub mod rule;
pub mod team_limits;
pub mod text;

pub use failures::{CONDITIONS_JOB, JOB};
