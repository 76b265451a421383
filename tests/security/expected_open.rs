//! The attacks that are expected to get through, because the remedy of their finding is not in this tree.
//!
//! The program prints them as `OPEN` and does not fail. An attack of this list of which nothing gets through fails the
//! program, so that the commit with the remedy removes its row.

/// The name of an attack, and the finding whose remedy would refuse it.
const EXPECTED_OPEN: [(&str, &str); 16] = [
    ("headers kept on a new origin", "S3"),
    ("log lines", "S5"),
    ("forged cursors", "S6"),
    ("canaries in the audit log", "S7"),
    ("canaries in answers", "S7"),
    ("reserved action headers", "S9"),
    ("clear-text actions", "S10"),
    ("cloud platform addresses", "S11"),
    ("lenient requests", "S12"),
    ("names that look alike", "S13"),
    ("canaries at rest", "S20"),
    ("missing response headers", "S23"),
    ("endless 100s", "issue 14"),
    ("slow reads", "T5"),
    ("silent name servers", "T8"),
    ("bad keys in the database", "T10"),
];

/// The finding that lets this attack through.
pub(crate) fn finding_of(attack: &str) -> Option<&'static str> {
    EXPECTED_OPEN.iter().find(|(name, _)| *name == attack).map(|(_, finding)| *finding)
}

/// The names of the list, which must be names of attacks.
pub(crate) fn listed_attacks() -> impl Iterator<Item = &'static str> {
    EXPECTED_OPEN.iter().map(|(name, _)| *name)
}
