//! Step 7 of 7: how an action ended.

use std::time::Duration;

use serde_json::Value;

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The action succeeded, with this result.
    Succeeded(Value),
    /// It failed.
    Failed {
        /// What went wrong, for the workflow's owner.
        error: String,
        /// What the receiver answered, if it did.
        result: Option<Value>,
        /// Whether another attempt may succeed.
        again: Again,
    },
}

/// Whether an action that failed should be attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Not again, because it would fail in the same way.
    Never,
    /// Again, after at least the pause that the receiver requested.
    Later(Option<Duration>),
}
