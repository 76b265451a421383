//! The error of zone data that cannot be read.

/// Why bytes are not zone data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ZoneDataError(pub(crate) String);

impl ZoneDataError {
    pub(crate) fn of_zone(name: &str) -> Self {
        Self(format!("zone {name}: not TZif data of version 2 or later"))
    }
}
