//! Step 7 of 7: who accepted a message.

use egress::mail::{RefusedRecipient, in_one_line};

/// Who accepted a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// The receiver, or all recipients of an e-mail.
    Complete,
    /// Some recipients of an e-mail. The mail server refused these, or the operator permits no e-mail to them.
    Partial(Vec<RefusedRecipient>),
}

impl Acceptance {
    /// The recipients that got nothing, and why.
    #[must_use]
    pub fn refused_recipients(&self) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Partial(refused) => Some(in_one_line(refused)),
        }
    }

    /// The recipients for which no later attempt succeeds, each with the reason.
    pub(super) fn recipients_refused(&self) -> Vec<String> {
        match self {
            Self::Complete => Vec::new(),
            Self::Partial(refused) => {
                let permanently = refused.iter().filter(|one| one.is_final);
                permanently.map(|one| in_one_line(std::slice::from_ref(one))).collect()
            }
        }
    }

    /// The recipients for which the mail server may accept the message later.
    pub(super) fn recipients_left(&self) -> Vec<String> {
        match self {
            Self::Complete => Vec::new(),
            Self::Partial(refused) => {
                refused.iter().filter(|one| !one.is_final).map(|one| one.address.clone()).collect()
            }
        }
    }
}
