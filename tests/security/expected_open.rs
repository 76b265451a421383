//! The attacks that are expected to get through, because the remedy of their finding is not in this tree.
//!
//! The program prints them as `OPEN` and does not fail. An attack of this list of which nothing gets through fails the
//! program, so that the commit with the remedy removes its row.

/// The name of an attack, and the finding whose remedy would refuse it.
const EXPECTED_OPEN: [(&str, &str); 0] = [];

/// The finding that lets this attack through.
pub(crate) fn finding_of(attack: &str) -> Option<&'static str> {
    EXPECTED_OPEN.iter().find(|(name, _)| *name == attack).map(|(_, finding)| *finding)
}

/// The names of the list, which must be names of attacks.
pub(crate) fn listed_attacks() -> impl Iterator<Item = &'static str> {
    EXPECTED_OPEN.iter().map(|(name, _)| *name)
}
