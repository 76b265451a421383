//! The decisions of a team in the last days, for visitors who may not verify.

use api_types::stats::{DecisionsView, StatsView};
use chrono::{DateTime, TimeDelta, Utc};

use crate::api::Api;
use crate::failure::Failure;
use crate::period::rfc3339;
use crate::query::with_query;

/// A part of a day's length.
pub(super) struct Part {
    /// Its begin.
    pub from: DateTime<Utc>,
    /// Its end.
    pub to: DateTime<Utc>,
    /// What was decided in it.
    pub ran: i64,
    pub skipped: i64,
    pub lost: i64,
    /// The list of times that were missed or abandoned.
    pub href: String,
}

/// Reads the last seven days of a team, the newest first.
///
/// # Errors
/// Returns the failure of the API.
pub(super) async fn read(api: &Api, team_id: &str) -> Result<Vec<Part>, Failure> {
    let parameters = [("hours", Some("168")), ("bucket_secs", Some("86400")), ("team_id", Some(team_id))];
    let stats: StatsView = api.get(&with_query("/stats", parameters)).await?;
    let part = |from, decisions: &DecisionsView| part(from, decisions, team_id);
    Ok(stats.buckets.iter().flatten().rev().map(|bucket| part(bucket.from, &bucket.occurrences)).collect())
}

fn part(from: DateTime<Utc>, decisions: &DecisionsView, team_id: &str) -> Part {
    let to = from + TimeDelta::days(1);
    let (begin, end) = (rfc3339(&from), rfc3339(&to));
    let query = [
        ("decision", Some("missed")),
        ("decision", Some("abandoned")),
        ("from", Some(begin.as_str())),
        ("to", Some(end.as_str())),
        ("team_id", Some(team_id)),
    ];
    Part {
        from,
        to,
        ran: decisions.fired + decisions.caught_up + decisions.backfilled,
        skipped: decisions.skipped_overlap + decisions.skipped_paused,
        lost: decisions.missed + decisions.abandoned,
        href: with_query("/proof/times", query),
    }
}
