//! Step 7 of 7: one pass of each job that makes or delivers notifications.

use db::failpoint::pass_point;
use ledger::verify::daily::{self, Stored};
use ledger::verify::{self, Difference, Findings, Unfit};
use notifications::difference::{LedgerDifference, record_differences};
use notifications::{condition, group, route};
use workflows::failpoint::Point;

use super::Did;
use crate::App;

/// Gives new notifications to their channels, collects them in messages, and delivers what is due.
pub(super) async fn run_notifications(app: &App) -> anyhow::Result<Did> {
    let now = app.database_time().await?;
    let routed = route::route_notifications(&mut *app.pools.work.acquire().await?).await?;
    if routed.notifications > 0 {
        pass_point(Point::N1);
    }
    let made = group::make_messages(&app.pools.work, now).await?;
    if made > 0 {
        pass_point(Point::N2);
    }
    let courier = app.courier()?;
    let delivered = courier.deliver_due(now).await?;
    app.metrics.count_deliveries(delivered.sent, delivered.failed);
    let sentence = format!(
        "{} notifications routed, {made} messages made, {} delivered, {} attempts failed",
        routed.notifications, delivered.sent, delivered.failed
    );
    Ok(match (routed.may_be_more || delivered.may_be_more, routed.notifications + made + delivered.sent) {
        (true, _) => Did::Some(sentence),
        (false, 0) if delivered.failed == 0 => Did::Nothing,
        (false, _) => Did::All(sentence),
    })
}

/// Writes the notifications of conditions that last too long.
pub(super) async fn run_conditions(app: &App) -> anyhow::Result<Did> {
    let found = condition::find_conditions(&app.pools.work, app.database_time().await?).await?;
    Ok(if found == 0 { Did::Nothing } else { Did::All(format!("{found} conditions last too long")) })
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
