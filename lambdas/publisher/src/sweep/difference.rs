//! Step 3 of 7: how the schedule of one workflow differs.

use serde::Serialize;

/// A difference of a workflow.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) workflow_id: i64,
    /// The epoch at the start of the comparison; `None` = there was no publication.
    pub(crate) epoch: Option<i64>,
    /// The workflow's revision.
    pub(crate) revision: i64,
    /// The value in `publications.drift`.
    pub(crate) class: String,
}
