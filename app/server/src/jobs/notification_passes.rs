//! Step 7 of 7: one pass of each job that makes or delivers notifications.

use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::{DateTime, Utc};
use db::failpoint::pass_point;
use ledger::verify::daily::{self, Stored};
use ledger::verify::{self, Difference, Findings, Unfit};
use notifications::delivery::Delivered;
use notifications::difference::{LedgerDifference, record_differences};
use notifications::group::Made;
use notifications::route::Routed;
use notifications::{condition, group, route};
use workflows::failpoint::Point;

use super::Did;
use crate::App;
use crate::metrics::{FailedJob, MetricLabel, Metrics};

/// For so long a turn of the job `notifications` goes on with the next round of new notifications.
const ROUTING: Duration = Duration::from_secs(5);

/// Gives new notifications to their channels, collects them in messages, and delivers what is due.
pub(super) async fn run_notifications(app: &App) -> anyhow::Result<Did> {
    let now = app.database_time().await?;
    // The error of a step must not end the next one: else what exists is not delivered while nothing new can be made.
    let routed = route_new(app).await;
    let made = make_messages(app, now).await;
    let delivered = deliver(app, now).await;
    let (routed, made, delivered) = (routed?, made?, delivered?);
    fail_at_end(notifications::JOB, routed.failed + made.failed, &app.metrics)?;
    let sentence = format!(
        "{} notifications routed, {} messages made, {} delivered, {} attempts failed",
        routed.notifications, made.messages, delivered.sent, delivered.failed
    );
    Ok(match (routed.may_be_more || delivered.may_be_more, routed.notifications + made.messages + delivered.sent) {
        (true, _) => Did::Some(sentence),
        (false, 0) if delivered.failed == 0 => Did::Nothing,
        (false, _) => Did::All(sentence),
    })
}

/// Routes new notifications round by round. A turn also waits for receivers, so one round a turn would be too few after an
/// outage.
async fn route_new(app: &App) -> sqlx::Result<Routed> {
    let (began, mut routed) = (Instant::now(), Routed::default());
    loop {
        let round = route::route_notifications(&app.pools.work).await?;
        routed.add(round);
        // A team that fails is logged once in a turn.
        if !round.may_be_more || round.failed > 0 || began.elapsed() >= ROUTING {
            break;
        }
    }
    if routed.notifications > 0 {
        pass_point(Point::N1);
    }
    Ok(routed)
}

async fn make_messages(app: &App, now: DateTime<Utc>) -> sqlx::Result<Made> {
    let made = group::make_messages(&app.pools.work, now).await?;
    if made.messages > 0 {
        pass_point(Point::N2);
    }
    Ok(made)
}

async fn deliver(app: &App, now: DateTime<Utc>) -> anyhow::Result<Delivered> {
    let delivered = app.courier()?.deliver_due(now).await?;
    app.metrics.count_deliveries(delivered.sent, delivered.failed);
    Ok(delivered)
}

/// Writes the notifications of conditions that last too long.
pub(super) async fn run_conditions(app: &App) -> anyhow::Result<Did> {
    let now = app.database_time().await?;
    let found = condition::find_conditions(&app.pools.work, &app.condition_cursors, now).await?;
    fail_at_end(notifications::CONDITIONS_JOB, found.failed, &app.metrics)?;
    Ok(match found.notifications {
        0 => Did::Nothing,
        notifications => Did::All(format!("{notifications} conditions last too long")),
    })
}

/// Counts the failures of a pass that has processed all others.
///
/// # Errors
/// Fails if `failed` is not 0.
fn fail_at_end(job: &'static str, failed: u64, metrics: &Metrics) -> anyhow::Result<()> {
    metrics.job_failures.get_or_create(&FailedJob { background_job: MetricLabel(job) }).inc_by(failed);
    ensure!(
        failed == 0,
        "{failed} teams or channels failed, and all others were processed; the log names the failed ones"
    );
    Ok(())
}

/// Verifies a part of the oldest day that is not verified, and writes the notifications of what differs.
pub(super) async fn run_verify(app: &App) -> anyhow::Result<Did> {
    let now = app.database_time().await?;
    let mut connection = app.pools.work.acquire().await?;
    let found = daily::begin_oldest_day(&mut connection, app.ledger_kept, now).await?;
    let Some(day) = found else { return Ok(Did::Nothing) };
    let start = verify::find_start(&mut connection, day.span(), day.cursor, app.ledger_kept, now).await?;
    if let Err(Unfit::Pruned(_)) = start {
        daily::end_unproven(&mut connection, day.day, now).await?;
        return Ok(Did::Some(format!("{} cannot be verified any more: its rows are pruned", day.day)));
    }
    drop(connection);
    let findings = match start {
        Ok(cursor) => verify::compare_span(&app.pools.work, day.span(), cursor).await?,
        // The watchdog is behind: a later turn verifies the day.
        Err(Unfit::NotSettled(_)) => return Ok(Did::Nothing),
        Err(unfit) => anyhow::bail!("{} cannot be verified: {unfit:?}", day.day),
    };
    let mut tx = db::begin_transaction(&app.pools.work).await?;
    let stored = daily::store_part(&mut tx, day, &findings, now).await?;
    record_differences(&mut tx, &of_findings(&findings), now).await?;
    tx.commit().await?;
    let (due, differences) = (findings.due, findings.differences.len());
    if differences > 0 {
        tracing::error!(day = %day.day, differences, "the ledger differs: `cronbox verify` lists where");
    }
    let sentence = format!("{due} due times of {} compared, {differences} differ", day.day);
    let is_yesterday = day.span().to.date_naive() == now.date_naive();
    let may_be_more = stored == Stored::GoesOn || !is_yesterday;
    Ok(if may_be_more { Did::Some(sentence) } else { Did::All(sentence) })
}

fn of_findings(findings: &Findings) -> Vec<LedgerDifference> {
    let difference = |one: &Difference| LedgerDifference {
        workflow_id: one.workflow_id,
        scheduled_time: one.scheduled_time,
        kind: one.kind.as_str(),
    };
    findings.differences.iter().map(difference).collect()
}
