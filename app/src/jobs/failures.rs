//! Step 7 of 7: a turn whose pass could not process some workflows has failed, after it has processed all others.

use anyhow::ensure;

use crate::metrics::{FailedJob, Metrics, Word};

/// Counts the failures of a pass that has processed all others.
///
/// # Errors
/// There were failures.
pub(crate) fn fail_at_end(job: &'static str, failed: u64, metrics: &Metrics) -> anyhow::Result<()> {
    metrics.job_failures.get_or_create(&FailedJob { job: Word(job) }).inc_by(failed);
    ensure!(failed == 0, "{failed} workflows failed, and all others were processed; the log names them");
    Ok(())
}
