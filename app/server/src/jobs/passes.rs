//! Step 7 of 7: one pass of each job. It counts the report in the metrics, notifies the executor and the publisher, and
//! returns the result of the turn.

use std::time::{Duration, Instant};

use access::failed_logins;
use anyhow::{Context as _, ensure};
use executor::{recovery, timeouts};
use ledger::admission::queue;
use ledger::{backfills, bulk, stats, watchdog};
use workflows::audit::chain;
use workflows::events;

use super::{Did, prune};
use crate::App;
use crate::metrics::{FailedJob, MetricLabel, Metrics};

/// For so long a turn of the job `events` goes on with the next removal.
const EVENTS: Duration = Duration::from_secs(30);

/// Decides the due times that have no decision.
pub(super) async fn run_watchdog(app: &App) -> anyhow::Result<Did> {
    let pass = watchdog::decide_overdue_times(&app.pools.work, app.ledger_kept, app.database_time().await?).await?;
    count_watchdog(&pass, &app.metrics);
    if pass.caught_up > 0 {
        app.wake.notify();
    }
    if pass.resumed > 0 {
        app.notifier.request_notification();
    }
    if pass.unjudged > 0 {
        tracing::error!(
            workflows = pass.unjudged,
            "due times not decided: the timezone or cron of their workflows is unknown"
        );
    }
    fail_at_end(watchdog::JOB, pass.failed, &app.metrics)?;
    Ok(match (pass.may_be_more, pass == watchdog::Pass::default()) {
        (true, _) => Did::Some(pass.in_words()),
        (false, true) => Did::Nothing,
        (false, false) => Did::All(pass.in_words()),
    })
}

/// Starts the runs that wait for a slot.
pub(super) async fn run_queue(app: &App) -> anyhow::Result<Did> {
    let now = app.database_time().await?;
    let pass = queue::advance_from(&app.pools.work, &app.queue_cursor, queue::PASS, now).await?;
    if pass.changed_runs() > 0 {
        app.wake.notify();
    }
    fail_at_end(queue::JOB, pass.failed, &app.metrics)?;
    Ok(match (pass.changed_runs(), pass.may_be_more) {
        (_, true) => Did::Some(pass.in_words()),
        (0, false) => Did::Nothing,
        (_, false) => Did::All(pass.in_words()),
    })
}

/// Advances each running backfill.
pub(super) async fn run_backfills(app: &App) -> anyhow::Result<Did> {
    let (pool, cursor, default) = (&app.pools.work, &app.backfill_cursor, app.config.requested_fires());
    let now = app.database_time().await?;
    let pass = backfills::advance_backfills(pool, cursor, backfills::PASS, default, now).await?;
    if pass.started > 0 {
        app.wake.notify();
    }
    fail_at_end(backfills::JOB, pass.failed, &app.metrics)?;
    Ok(match (pass.started + pass.finished, pass.has_more) {
        (_, true) => Did::Some(pass.in_words()),
        (0, false) => Did::Nothing,
        (_, false) => Did::All(pass.in_words()),
    })
}

/// Processes items of the bulk operations: a turn has many rounds, and each round has a part of each team.
pub(super) async fn run_bulk(app: &App) -> anyhow::Result<Did> {
    let (pool, cursor, default) = (&app.pools.work, &app.bulk_cursor, app.config.requested_fires());
    let (began, mut processed) = (Instant::now(), 0);
    loop {
        let (left, mut round) = (bulk::PASS.saturating_sub(began.elapsed()), bulk::Pass::default());
        let advanced = bulk::advance_operations(pool, cursor, left, default, &app.clock, &mut round).await;
        // Also if the round has failed: the items before the failure are committed.
        if round.runs > 0 {
            app.wake.notify();
        }
        if round.edits > 0 {
            app.notifier.request_notification();
        }
        advanced?;
        processed += round.processed;
        if !round.has_more || began.elapsed() >= bulk::PASS {
            let pass = bulk::Pass { processed, ..round };
            return Ok(match (pass.processed, pass.has_more) {
                (_, true) => Did::Some(pass.in_words()),
                (0, false) => Did::Nothing,
                (_, false) => Did::All(pass.in_words()),
            });
        }
    }
}

/// Recovers the runs of lost instances.
pub(super) async fn run_recovery(app: &App) -> anyhow::Result<Did> {
    let pass = recovery::recover_lost_runs(&app.pools.work, app.config.recovery_settings(), app.database_time().await?)
        .await?;
    app.wake.notify();
    fail_at_end(recovery::JOB, pass.failed, &app.metrics)?;
    Ok(match pass.lost {
        0 => Did::Nothing,
        _ if pass.is_full() => Did::Some(pass.in_words()),
        _ => Did::All(pass.in_words()),
    })
}

/// Ends the attempts that did not end at their timeout.
pub(super) async fn run_timeouts(app: &App) -> anyhow::Result<Did> {
    let pass = timeouts::end_stuck_runs(&app.pools.work, app.database_time().await?).await?;
    app.wake.notify();
    fail_at_end(timeouts::JOB, pass.failed, &app.metrics)?;
    Ok(match pass.tries {
        0 => Did::Nothing,
        _ if pass.is_full() => Did::Some(pass.in_words()),
        _ => Did::All(pass.in_words()),
    })
}

/// Adds up what was counted by minute, and removes old sums.
pub(super) async fn run_statistics(app: &App) -> anyhow::Result<Did> {
    let pass = stats::add_up_minutes(&app.pools.work, app.database_time().await?).await?;
    Ok(match (pass.added + pass.removed, pass.may_be_more) {
        (0, _) => Did::Nothing,
        (_, false) => Did::All(pass.in_words()),
        (_, true) => Did::Some(pass.in_words()),
    })
}

/// Writes the failed logins of past minutes, and extends the hash chain of the audit log.
pub(super) async fn run_audit(app: &App) -> anyhow::Result<Did> {
    let now = app.database_time().await?;
    app.gate.failed_logins().store_ended_minutes(&app.pools.work, now).await?;
    failed_logins::record_past_minutes(&app.pools.work, now).await?;
    let extended = chain::extend_chain(&app.pools.work).await?;
    Ok(match (extended.is_waiting, extended.may_be_more, extended.entries) {
        (true, _, _) => Did::Waits(extended.in_words()),
        (false, true, _) => Did::Some(extended.in_words()),
        (false, false, 0) => Did::Nothing,
        (false, false, _) => Did::All(extended.in_words()),
    })
}

/// Removes the events that are kept no longer, until none is left or the time is over.
pub(super) async fn run_events(app: &App) -> anyhow::Result<Did> {
    let mut connection = app.pools.work.acquire().await?;
    let (began, mut all) = (Instant::now(), 0);
    loop {
        let removed = events::remove_old(&mut connection).await?;
        all += removed;
        let sentence = || format!("{all} old events removed");
        match removed {
            events::MOST_REMOVED.. if began.elapsed() >= EVENTS => return Ok(Did::Some(sentence())),
            events::MOST_REMOVED.. => {}
            _ if all == 0 => return Ok(Did::Nothing),
            _ => return Ok(Did::All(sentence())),
        }
    }
}

/// Removes old rows, and counts the workflows that the version before wrote after the migration.
pub(super) async fn run_prune(app: &App) -> anyhow::Result<Did> {
    // First, because no month of the audit log is dropped before its entries are in the chain. All other rows do not wait
    // for it: if they stayed, too, a damaged entry would fill the disk.
    let extended = chain::extend_chain(&app.pools.work).await;
    let pass = prune::remove_old_rows(&app.pools.work, app.config.prune_settings(), app.database_time().await?).await?;
    workflows::count_uncounted_workflows(&app.pools.work).await?;
    fail_at_end(prune::JOB, pass.failed, &app.metrics)?;
    ensure!(
        pass.not_removed.is_empty(),
        "all other old rows were removed, but not these: {}; the log has the error of each",
        pass.not_removed.join(", ")
    );
    extended.context("all else was removed, but the hash chain of the audit log was not extended")?;
    Ok(match pass.removed_rows() {
        1.. if pass.may_be_more => Did::Some(pass.in_words()),
        _ if pass.is_locked => Did::Waits(pass.in_words()),
        0 => Did::Nothing,
        _ => Did::All(pass.in_words()),
    })
}

fn count_watchdog(pass: &watchdog::Pass, metrics: &Metrics) {
    metrics.missed.inc_by(pass.missed);
    metrics.caught_up.inc_by(pass.caught_up);
    metrics.unjudged.set(i64::try_from(pass.unjudged).unwrap_or(i64::MAX));
}

/// Counts the failures of a pass that has processed all others.
///
/// # Errors
/// Fails if `failed` is not 0.
fn fail_at_end(job: &'static str, failed: u64, metrics: &Metrics) -> anyhow::Result<()> {
    metrics.job_failures.get_or_create(&FailedJob { background_job: MetricLabel(job) }).inc_by(failed);
    ensure!(failed == 0, "{failed} workflows failed, and all others were processed; the log names the failed ones");
    Ok(())
}
