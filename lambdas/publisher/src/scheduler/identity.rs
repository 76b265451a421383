//! Step 4 of 7: which database a schedule belongs to.

use uuid::Uuid;

/// The prefix of a description that a publisher has written.
const PREFIX: &str = "cronbox ";

/// The identity of a database; the description of each of its schedules contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) Uuid);

impl Identity {
    /// Returns the description of a schedule.
    pub(crate) fn to_description(self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// Parses a description; `None` = an older version published it, or another program did.
    pub(crate) fn of_description(description: &str) -> Option<Identity> {
        Uuid::parse_str(description.strip_prefix(PREFIX)?).ok().map(Identity)
    }

    /// Returns the identity in `description` if it is another database's.
    pub(crate) fn other_in(self, description: Option<&str>) -> Option<Identity> {
        Identity::of_description(description?).filter(|other| *other != self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_identity_is_foreign() {
        let (ours, theirs) = (Identity(Uuid::from_u128(1)), Identity(Uuid::from_u128(2)));
        assert_eq!(ours.other_in(Some(&theirs.to_description())), Some(theirs));
        for not_foreign in [None, Some(ours.to_description()), Some("cronbox".to_owned()), Some("cronbox x".to_owned())]
        {
            assert_eq!(ours.other_in(not_foreign.as_deref()), None, "{not_foreign:?}");
        }
        assert_eq!(ours.other_in(Some("Published by cronbox; changes made here are undone")), None);
    }
}
