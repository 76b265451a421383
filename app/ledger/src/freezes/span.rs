//! Step 7 of 7: whether a freeze was in force over a span: from a due time until its decision.
//!
//! A fire may be decided up to five minutes before its time. Its span is then the instant of that time: a freeze that ends
//! before it does not concern it, and one that begins with it does.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;

/// A decision whose transaction began before a freeze was committed did not see it. No transaction of a decision lasts
/// longer than this.
const UNSEEN_FOR: TimeDelta = TimeDelta::seconds(60);

/// The freezes that were in force during a span.
#[derive(Clone, Debug, Default)]
pub struct Freezes(Vec<Span>);

#[derive(Clone, Debug)]
struct Span {
    team_id: Option<i64>,
    reason: String,
    starts_on: DateTime<Utc>,
    /// `None`: it has no end.
    ends_on: Option<DateTime<Utc>>,
    created_on: DateTime<Utc>,
}

impl Freezes {
    /// The reason of the first freeze of a team that was in force at any instant from a due time until its decision; of a
    /// time that is decided early, at that time.
    #[must_use]
    pub fn reason_over(&self, team: i64, due: DateTime<Utc>, decided: DateTime<Utc>) -> Option<&str> {
        let frozen = self.of_team(team).find(|span| span.overlaps(span.starts_on, due, decided.max(due)));
        frozen.map(|span| &*span.reason)
    }

    /// When a run of a time that is not frozen may start. If a freeze is still in force that ends before the time, not before
    /// it: the run waits without a claim, so its wait must not count until then.
    #[must_use]
    pub fn earliest_start(&self, team: i64, due: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
        if self.reason_over(team, now, now).is_some() { now.max(due) } else { now }
    }

    /// Whether a decision at this moment must have seen such a freeze.
    #[must_use]
    pub fn must_have_seen(&self, team: i64, due: DateTime<Utc>, decided: DateTime<Utc>) -> bool {
        self.of_team(team).any(|span| {
            let seen_from = span.created_on + UNSEEN_FOR;
            seen_from <= decided && span.overlaps(span.starts_on.max(seen_from), due, decided.max(due))
        })
    }

    fn of_team(&self, team: i64) -> impl Iterator<Item = &Span> {
        self.0.iter().filter(move |span| span.team_id.is_none_or(|of| of == team))
    }
}

impl Span {
    fn overlaps(&self, starts_on: DateTime<Utc>, first: DateTime<Utc>, last: DateTime<Utc>) -> bool {
        starts_on <= last && self.ends_on.is_none_or(|ends_on| ends_on > first && ends_on > starts_on)
    }
}

/// Reads the freezes that were in force at any instant of a span, the earliest first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_freezes(db: &mut PgConnection, first: DateTime<Utc>, last: DateTime<Utc>) -> sqlx::Result<Freezes> {
    let spans = sqlx::query_as!(
        Span,
        r#"
        -- read the freezes of a span
        SELECT team_id, reason, starts_on, NULLIF(ends_on, 'infinity') AS ends_on, created_on
          FROM freezes
         WHERE ends_on > $1 AND ends_on > starts_on AND starts_on <= $2
         ORDER BY starts_on, id
        "#,
        first,
        last,
    )
    .fetch_all(db)
    .await?;
    Ok(Freezes(spans))
}
