//! Step 7 of 7: renews the leases of the attempts that this process executes, and stops attempts that lost their run.
//!
//! One statement renews exactly these attempts. An attempt that it does not return has lost its run; a returned one may
//! have to cancel. An attempt stops if its lease was not renewed for two thirds of its length, because another instance
//! may soon claim its run. Each attempt has its own time of renewal, because the statement leaves out a locked run.

use std::time::Duration;

use schedule::Moment;

use super::Executor;
use super::attempts_in_flight::{AttemptsInFlight, Stop};
use crate::claim::{self, Beat, Fence};

/// Renews the leases of this instance's attempts until it is dropped.
pub(super) async fn renew_repeatedly(executor: Executor) {
    loop {
        tokio::time::sleep(executor.parts.settings.heartbeat).await;
        renew_all_leases(&executor, &Moment::now).await;
    }
}

/// Renews the leases once.
pub(super) async fn renew_all_leases(executor: &Executor, now: &(dyn Fn() -> Moment + Sync)) {
    let lost_after = Duration::from_secs(executor.parts.settings.lost_after_secs);
    // Read before the statement, because its result does not contain an attempt that is claimed meanwhile.
    let ours = executor.in_flight.under_way();
    if ours.is_empty() {
        return executor.release_stopped().await;
    }
    let renewed = tokio::time::timeout(lost_after / 8, renew(executor, &ours, now)).await;
    match &renewed {
        Ok(Ok((requested, beats))) => apply(&executor.in_flight, &ours, beats, *requested),
        Ok(Err(error)) => tracing::warn!(%error, "leases of runs not renewed; trying again"),
        Err(_) => tracing::warn!("leases of runs not renewed in time; trying again"),
    }
    // Between two checks pass at most a heartbeat (a sixth of a lease) and its time limit (an eighth), so with this
    // limit an attempt stops before its lease expires.
    let stopped = executor.in_flight.stop_unrenewed(now(), executor.parts.settings.longest_without_renewal());
    if stopped > 0 {
        tracing::error!(runs = stopped, "attempts stopped, because their leases cannot be renewed");
    }
    if matches!(renewed, Ok(Ok(_))) {
        executor.release_stopped().await;
    }
}

/// Renews the leases; they begin anew no earlier than the time that it returns.
async fn renew(
    executor: &Executor,
    ours: &[Fence],
    now: &(dyn Fn() -> Moment + Sync),
) -> sqlx::Result<(Moment, Vec<Beat>)> {
    let mut connection = executor.parts.leases.acquire().await?;
    let requested = now();
    Ok((requested, claim::renew_leases(&mut connection, executor.run_lease(), ours).await?))
}

/// Stops attempts that lost their run or are to be cancelled; the leases of the others begin anew at `requested`.
fn apply(in_flight: &AttemptsInFlight, ours: &[Fence], beats: &[Beat], requested: Moment) {
    for fence in ours {
        match beats.iter().find(|beat| beat.id == fence.id && beat.attempt == fence.attempt) {
            None => in_flight.stop_attempt(*fence, Stop::Lost),
            Some(beat) if beat.is_cancelled => in_flight.stop_attempt(*fence, Stop::Cancelled),
            Some(beat) if beat.is_renewed => in_flight.renew_lease(*fence, requested),
            // Another transaction has locked the row, so the next heartbeat renews the lease.
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use uuid::Uuid;

    use super::*;

    /// A renewal does not return an attempt that lost its run, and says of the others whether they are to be cancelled.
    #[tokio::test]
    async fn lost_and_cancelled_attempts_stop() {
        let (in_flight, now) = (AttemptsInFlight::default(), Moment::now());
        let [kept, lost, cancelled, retaken] = std::array::from_fn(|_| Uuid::new_v4());
        let mut attempts: HashMap<_, _> = [kept, lost, cancelled, retaken]
            .into_iter()
            .map(|id| (id, in_flight.register_attempt(Fence { id, attempt: 1 }, now)))
            .collect();
        let beat = |id, attempt, is_cancelled| Beat { id, attempt, is_cancelled, is_renewed: true };
        let beats = [beat(kept, 1, false), beat(cancelled, 1, true), beat(retaken, 2, false)];
        apply(&in_flight, &in_flight.under_way(), &beats, now);
        let mut stopped = |id| attempts.get_mut(&id).and_then(|attempt| attempt.stopped.try_recv().ok());
        assert_eq!(stopped(kept), None);
        assert_eq!(stopped(lost), Some(Stop::Lost));
        assert_eq!(stopped(cancelled), Some(Stop::Cancelled));
        assert_eq!(stopped(retaken), Some(Stop::Lost), "another attempt is not ours");
    }

    #[tokio::test]
    async fn only_unrenewed_attempts_stop() {
        let (in_flight, claimed) = (AttemptsInFlight::default(), Moment::now());
        let [renewed, locked] = std::array::from_fn(|_| Uuid::new_v4());
        let [mut goes_on, mut stops] =
            [renewed, locked].map(|id| in_flight.register_attempt(Fence { id, attempt: 1 }, claimed));
        let beat = |id, is_renewed| Beat { id, attempt: 1, is_cancelled: false, is_renewed };
        let limit = Duration::from_secs(40);
        apply(&in_flight, &in_flight.under_way(), &[beat(renewed, true), beat(locked, false)], claimed + limit / 2);
        assert_eq!(in_flight.stop_unrenewed(claimed + limit, limit), 0);
        assert_eq!(in_flight.stop_unrenewed(claimed + limit * 5 / 4, limit), 1);
        assert_eq!(stops.stopped.try_recv(), Ok(Stop::Lost));
        assert!(goes_on.stopped.try_recv().is_err());
    }
}
