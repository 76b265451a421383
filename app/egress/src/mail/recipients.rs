//! Step 7 of 7: the recipients that do not get an e-mail, and why.

/// A recipient for which the server did not accept an e-mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecipient {
    /// The address.
    pub address: String,
    /// The answer of the server.
    pub words: String,
    /// Whether there is no such mailbox; the server may accept later what it refuses for another reason.
    pub is_final: bool,
}

impl RefusedRecipient {
    pub(super) fn of_other_domain(address: String) -> Self {
        Self { address, words: "the operator permits no e-mail to this domain".to_owned(), is_final: true }
    }
}

/// Says which recipients the server refused, and why.
#[must_use]
pub fn in_one_line(refused: &[RefusedRecipient]) -> String {
    let of_each: Vec<_> = refused.iter().map(|one| format!("{}: {}", one.address, one.words)).collect();
    of_each.join("; ")
}
