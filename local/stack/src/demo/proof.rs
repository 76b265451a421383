//! Step 7 of 7: the proof of the demo's days. The job of a new database begins with yesterday, so each day is verified here as the job does.

use anyhow::{Result, bail};
use chrono::{DateTime, Days, NaiveTime, TimeDelta, Utc};
use ledger::verify;
use ledger::verify::daily::{self, Stored};

use super::span::{DAYS, Span};
use crate::stack::Stack;

/// How long after a day the job verifies it.
const AFTER: TimeDelta = TimeDelta::minutes(10);

/// Verifies each whole day of the span.
///
/// # Errors
/// Fails if a day cannot be verified, or differs.
pub(super) async fn verify_days(stack: &Stack, span: Span) -> Result<()> {
    let end_of_first = span.begin.date_naive() + Days::new(2);
    let mut now = end_of_first.and_time(NaiveTime::MIN).and_utc() + AFTER;
    while now <= span.end {
        while verify_part(stack, now).await? == Stored::GoesOn {}
        now += TimeDelta::days(1);
    }
    Ok(())
}

/// Verifies a part of the day before a time.
async fn verify_part(stack: &Stack, now: DateTime<Utc>) -> Result<Stored> {
    let mut connection = stack.pool.acquire().await?;
    let kept = TimeDelta::days(DAYS);
    let found = daily::begin_oldest_day(&mut connection, kept, now).await?;
    let Some(day) = found else { return Ok(Stored::ByAnother) };
    let start = match verify::find_start(&mut connection, day.span(), day.cursor, kept, now).await? {
        Ok(cursor) => cursor,
        Err(unfit) => bail!("{} of the demo cannot be verified: {unfit:?}", day.day),
    };
    let findings = verify::compare_span(&stack.pool, day.span(), start).await?;
    if let Some(difference) = findings.differences.first() {
        bail!("{} of the demo differs: {difference:?}", day.day);
    }
    Ok(daily::store_part(&mut connection, day, &findings, now).await?)
}
