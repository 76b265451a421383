//! Step 7 of 7: the verification of each day (UTC) after it, which a job does part by part.

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use db::PgConnection;

use super::{Cursor, Findings, Span};

/// Name of the job in the table `jobs`.
pub const JOB: &str = "verify";

/// A day that is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    /// The day.
    pub day: NaiveDate,
    /// Where it continues; `None`: at its begin.
    pub cursor: Option<Cursor>,
}

impl Day {
    /// Its times.
    #[must_use]
    pub fn span(self) -> Span {
        let from = self.day.and_time(NaiveTime::MIN).and_utc();
        Span { from, to: from + Days::new(1) }
    }
}

/// Begins or continues the verification of the oldest day that is not verified; `None`: all days before `now` are.
///
/// So the days of an outage follow after it, also if an instance of an older version, which knows only the day before now,
/// has verified a later one. The first day of a new database is the day before `now`. A day whose rows may be pruned,
/// because they are older than `kept`, is left out.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn begin_oldest_day(db: &mut PgConnection, kept: TimeDelta, now: DateTime<Utc>) -> sqlx::Result<Option<Day>> {
    let yesterday = (now - Days::new(1)).date_naive();
    let first_kept = (now - kept).date_naive() + Days::new(1);
    let day = sqlx::query_scalar!(
        r#"
        -- the oldest day that is not verified, from the first known one on: one that has begun, or one without a row
        SELECT CASE WHEN known.since IS NULL THEN $1::date
                    ELSE (SELECT min(known.since + n)
                            FROM generate_series(0, $1::date - known.since) AS n
                           WHERE NOT EXISTS (SELECT FROM daily_verifications v
                                              WHERE v.day = known.since + n AND v.finished_on IS NOT NULL))
               END AS "day?"
          FROM (SELECT CASE WHEN count(*) > 0 THEN GREATEST(min(day), $2::date) END AS since
                  FROM daily_verifications
                 WHERE day <= $1) AS known
        "#,
        yesterday,
        first_kept,
    )
    .fetch_one(&mut *db)
    .await?;
    let Some(day) = day else { return Ok(None) };
    sqlx::query!(
        r#"
        -- begin the verification of a day
        INSERT INTO daily_verifications (day, started_on) VALUES ($1, $2) ON CONFLICT DO NOTHING
        "#,
        day,
        now,
    )
    .execute(&mut *db)
    .await?;
    let unfinished = sqlx::query_scalar!(
        r#"
        -- where the verification of a day continues
        SELECT cursor FROM daily_verifications WHERE day = $1 AND finished_on IS NULL
        "#,
        day,
    )
    .fetch_optional(db)
    .await?;
    Ok(unfinished.map(|cursor| Day { day, cursor: cursor.and_then(|cursor| cursor.parse().ok()) }))
}

/// Ends the verification of a day whose rows were pruned before they were compared: it counts as unproven.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn end_unproven(db: &mut PgConnection, day: NaiveDate, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end the verification of a day that cannot be compared any more
        UPDATE daily_verifications
           SET cursor = NULL, unproven = unproven + 1, finished_on = $2
         WHERE day = $1 AND finished_on IS NULL
        "#,
        day,
        now,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Stores what one part of a day has found, in the transaction that writes its notifications.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn store_part(
    tx: &mut PgConnection,
    day: Day,
    findings: &Findings,
    now: DateTime<Utc>,
) -> sqlx::Result<Stored> {
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let stored = sqlx::query!(
        r#"
        -- store a part of a day, unless another instance has stored it
        UPDATE daily_verifications
           SET cursor = $3, due = due + $4, decided = decided + $5, differences = differences + $6, unproven = unproven + $7,
               finished_on = CASE WHEN $3::text IS NULL THEN $8::timestamptz END
         WHERE day = $1 AND cursor IS NOT DISTINCT FROM $2 AND finished_on IS NULL
        "#,
        day.day,
        day.cursor.map(|cursor| cursor.to_string()),
        findings.next.map(|cursor| cursor.to_string()),
        number(findings.due),
        number(findings.decided),
        count(findings.differences.len()),
        count(findings.unjudged_workflows.len() + findings.undecided_workflows.len()),
        now,
    )
    .execute(tx)
    .await?;
    Ok(match (stored.rows_affected(), findings.next) {
        (0, _) => Stored::ByAnother,
        (_, None) => Stored::Finished,
        (_, Some(_)) => Stored::GoesOn,
    })
}

/// Whether a part was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It was the last one.
    Finished,
    /// More parts follow.
    GoesOn,
    /// Another instance has stored the same part.
    ByAnother,
}

/// What the verification of a day has found so far.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedDay {
    /// The day.
    pub day: NaiveDate,
    /// Due times compared.
    pub due: i64,
    /// Decisions compared.
    pub decided: i64,
    /// Times on which schedule, decision and runs disagree.
    pub differences: i64,
    /// Workflows that could not be verified.
    pub unproven: i64,
    /// When it began.
    pub started_on: DateTime<Utc>,
    /// When it ended; `None`: parts of the day are not compared yet.
    pub finished_on: Option<DateTime<Utc>>,
}

/// Lists the verifications from a day on, the newest first, at most `most`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_verified_days(db: &mut PgConnection, since: NaiveDate, most: i64) -> sqlx::Result<Vec<VerifiedDay>> {
    sqlx::query_as!(
        VerifiedDay,
        r#"
        -- verifications of the last days
        SELECT day, due, decided, differences, unproven, started_on, finished_on
          FROM daily_verifications
         WHERE day >= $1
         ORDER BY day DESC
         LIMIT $2
        "#,
        since,
        most,
    )
    .fetch_all(db)
    .await
}

/// Removes the verifications of days before a time.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_old_days(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old verifications
        DELETE FROM daily_verifications WHERE day < $1
        "#,
        before.date_naive(),
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
