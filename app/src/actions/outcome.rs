//! Step 7 of 7: how an action ended.

use std::time::Duration;

use serde_json::Value;

/// How an action ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It did what it should.
    Succeeded(Value),
    /// It did not; the sentence says why.
    Failed {
        /// For the workflow's owner.
        error: String,
        /// What came back, if anything did.
        result: Option<Value>,
        /// Whether another try may fare better.
        again: Again,
    },
}

/// Whether an action that failed is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It would fail again.
    Never,
    /// Later; not before the pause that the receiver asked for.
    Later(Option<Duration>),
}
