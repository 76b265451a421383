//! Steps 5 and 6 of 7: the dead letters. The publisher mirrors the queues into a table, and does what operators request there.
//!
//! A pass over a queue receives its messages, records them, does what is requested for them, deletes those that are settled,
//! and returns the others to the queue at once, so that `cronbox dlq` and the alarms see them. It deletes no message that the
//! app has not answered for, unless an operator discards it.
//!
//! The order is: post, settle the row, delete the message. If the process is killed between post and settle, the next pass
//! posts again, which is idempotent. If it is killed between settle and delete, the next pass sees a settled message and
//! deletes it. Several publishers receive different messages, and claim rows under a lease.

mod pass;
mod redrive;
mod rows;
mod source;

pub(crate) use source::Sources;
