//! What a list of the administration shows.

use serde::Deserialize;

/// The query of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Shown {
    pub(super) cursor: String,
    pub(super) done: Option<String>,
}

/// Rows on a page of a list.
pub(super) const ROWS: &str = "50";
