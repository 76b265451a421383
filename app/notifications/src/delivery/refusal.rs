//! Step 7 of 7: why a receiver did not accept a message.

/// Why a message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAccepted {
    /// Why, in words.
    pub error: String,
    /// Whether the same message would fail in the same way again.
    pub is_final: bool,
    /// How long the receiver wants to get nothing, in seconds.
    pub retry_after_secs: Option<u64>,
}

impl NotAccepted {
    /// A failure that another attempt may not have.
    #[must_use]
    pub fn transient(error: impl Into<String>) -> Self {
        Self { error: error.into(), is_final: false, retry_after_secs: None }
    }

    /// A failure that every attempt would have.
    #[must_use]
    pub fn permanent(error: impl Into<String>) -> Self {
        Self { is_final: true, ..Self::transient(error) }
    }
}
