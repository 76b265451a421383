//! Step 7 of 7: bulk operations: one request that applies a verb to many workflows or runs of a team.
//!
//! A request selects its items in one statement and commits. The job `bulk` applies the verb to one item after the other, each in
//! a transaction that also counts the item, so a process that is killed repeats none and skips none.

mod advance;
mod list;
mod operation;
mod repeats;
mod request;

pub use advance::{BulkCursor, JOB, PASS, Pass, advance_operations};
pub use list::{
    Item, Operation, cancel_operation, find_operation, list_items, list_operations, remove_old_items,
    remove_old_operations,
};
pub use operation::{Filter, Outcome, Request, State, Verb, WORTH_A_RETRY};
pub use request::{Created, create_operation};
