//! Step 7 of 7: who accepted a message.

/// Who accepted a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// The receiver, or all recipients of an e-mail.
    Complete,
    /// Some recipients of an e-mail. The mail server refused these, in its words.
    Partial(String),
}

impl Acceptance {
    /// The recipients that the mail server refused, in its words.
    #[must_use]
    pub fn refused_recipients(&self) -> Option<&str> {
        match self {
            Self::Complete => None,
            Self::Partial(refused) => Some(refused),
        }
    }
}
