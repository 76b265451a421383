//! Step 7 of 7: the background jobs on `/metrics`, of all instances together.

use chrono::{DateTime, Utc};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::jobs::table::{LastResult, Status};

type OfJob = [(&'static str, String); 1];

/// Adds the metrics of the jobs, as they were at `now`.
pub(super) fn register_jobs(registry: &mut Registry, jobs: &[Status], now: DateTime<Utc>) {
    let (turns, failures) = (Family::<OfJob, Counter>::default(), Family::<OfJob, Counter>::default());
    let (failing, overdue) = (Family::<OfJob, Gauge>::default(), Family::<OfJob, Gauge>::default());
    for job in jobs {
        let label = [("background_job", job.name.clone())];
        turns.get_or_create(&label).inc_by(job.run_count.unsigned_abs());
        failures.get_or_create(&label).inc_by(job.error_count.unsigned_abs());
        failing.get_or_create(&label).set((job.last_result == Some(LastResult::Failed)).into());
        overdue.get_or_create(&label).set((now - job.next_run).num_seconds().max(0));
    }
    registry.register("job_turns", "Turns of background jobs; of all instances together", turns);
    registry.register("job_turns_failed", "Turns of background jobs that failed; of all instances together", failures);
    registry.register("job_failing", "1 if the last turn of the job failed; of all instances together", failing);
    registry.register(
        "job_overdue_seconds",
        "Seconds since the job was due; a turn takes 300 s at most; of all instances together",
        overdue,
    );
}
