//! Between steps 5 and 6 of 7: the code of a function, and its error.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

/// The code of a function.
pub type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<(), FunctionError>> + Send + Sync>;

/// The error of a function, which Lambda writes to `responsePayload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionError {
    /// The kind, for machines
    pub error_type: String,
    /// A sentence, for people
    pub message: String,
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message)
    }
}
