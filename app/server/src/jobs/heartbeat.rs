//! Step 7 of 7: pings the URL of the operator while the service is healthy. A job, so that its instances share it.
//!
//! An instance has the turn only if the database answered, accepted the write of the turn's lease, and is not held, and if
//! the instance's clock is right (`turns.rs`). The turn itself checks that the watchdog runs.

use anyhow::bail;
use chrono::{DateTime, TimeDelta, Utc};
use ledger::{identity, watchdog};

use super::Did;
use super::table::{LastResult, Status, list_statuses};
use crate::App;
use crate::metrics::PingOutcome;

/// Name of the job in the table `jobs`.
pub(super) const JOB: &str = "heartbeat";
/// How often it pings, in seconds.
pub(super) const EVERY_SECS: u64 = 60;
/// How long a turn of the watchdog may be due: a turn takes 300 s at most, and an instance that is lost leaves its lease for
/// a minute.
const WATCHDOG_OVERDUE: TimeDelta = TimeDelta::seconds(360);

/// Pings, or says why it does not.
///
/// # Errors
/// Fails if the service is not healthy, or if the receiver does not confirm the ping. The next turn tries again.
pub(super) async fn run_heartbeat(app: &App) -> anyhow::Result<Did> {
    let Some(heartbeat) = app.heartbeat() else { return Ok(Did::Nothing) };
    if let Err(error) = check_health(app).await {
        app.metrics.pings.count_ping(PingOutcome::Withheld);
        return Err(error.context("no ping sent"));
    }
    match heartbeat.send_ping().await {
        Ok(()) => {
            app.metrics.pings.count_ping(PingOutcome::Sent);
            Ok(Did::All("ping sent".to_owned()))
        }
        Err(error) => {
            app.metrics.pings.count_ping(PingOutcome::Failed);
            Err(error.context("ping failed"))
        }
    }
}

/// Checks that the database answers and accepts writes, and that the watchdog runs.
///
/// # Errors
/// Returns why the service is not healthy.
async fn check_health(app: &App) -> anyhow::Result<()> {
    let now = app.database_time().await?;
    let mut connection = app.pools.work.acquire().await?;
    identity::prove_writable(&mut connection).await?;
    if let Some(reason) = identity::read_hold(&mut connection).await? {
        bail!("the ledger is held: {reason}");
    }
    let jobs = list_statuses(&mut connection).await?;
    if !is_watchdog_running(&jobs, now) {
        bail!("no turn of the watchdog has ended without an error within its time: see `cronbox jobs`");
    }
    Ok(())
}

/// Whether one of the watchdog's jobs, which all do the same, is not overdue, and did not fail.
fn is_watchdog_running(jobs: &[Status], now: DateTime<Utc>) -> bool {
    let mut watchdogs = jobs.iter().filter(|job| watchdog::JOBS.contains(&job.name.as_str()));
    watchdogs.any(|job| now - job.next_run < WATCHDOG_OVERDUE && job.last_result != Some(LastResult::Failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, due_secs_ago: i64, last_result: Option<LastResult>) -> Status {
        Status {
            name: name.to_owned(),
            locked_by: None,
            locked_until: None,
            last_run: None,
            last_duration_ms: None,
            last_result,
            last_error: None,
            next_run: DateTime::UNIX_EPOCH - TimeDelta::seconds(due_secs_ago),
            run_count: 0,
            error_count: 0,
        }
    }

    #[test]
    fn one_watchdog_in_time_suffices() {
        let is_running = |jobs: &[Status]| is_watchdog_running(jobs, DateTime::UNIX_EPOCH);
        let [first, second, ..] = watchdog::JOBS;
        assert!(is_running(&[job(first, -60, None)]), "its first turn is not due yet");
        assert!(is_running(&[job(first, 359, Some(LastResult::Skipped)), job(second, 500, None)]));
        assert!(!is_running(&[job(first, 360, Some(LastResult::Success))]), "it is stuck");
        assert!(!is_running(&[job(first, -60, Some(LastResult::Failed)), job(second, 500, None)]));
        assert!(!is_running(&[job("recovery", -60, Some(LastResult::Success))]));
    }
}
