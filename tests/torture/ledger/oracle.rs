//! The oracle: computes the due times only from the versions of the timing, and records what callers and receivers saw.
//! It shares no code with the product.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::Admin;
use chrono::{DateTime, Timelike, Utc};
use executor::claim::Fence;
use uuid::Uuid;

/// Whether a minute of the hour is due.
type MatchesMinute = fn(u32) -> bool;

/// The crons of the histories, each with its minutes of the hour, which are the same in any timezone of whole hours.
pub(crate) const CRONS: [(&str, MatchesMinute); 4] = [
    ("* * * * *", |_| true),
    ("*/2 * * * *", |minute| minute.is_multiple_of(2)),
    ("*/5 * * * *", |minute| minute.is_multiple_of(5)),
    ("7,8,40 * * * *", |minute| [7, 8, 40].contains(&minute)),
];

/// What callers and receivers saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The runs of the 202 answers to fires, by workflow and time.
    pub(crate) accepted: BTreeMap<(i64, DateTime<Utc>), Vec<Uuid>>,
    /// How many requests of each run the receiver got.
    pub(crate) effects: BTreeMap<Uuid, i32>,
    /// The requests since the last step.
    pub(crate) calls: Vec<Call>,
    /// Answers that no client should get.
    pub(crate) broken: Vec<String>,
}

/// A request, as the receiver saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) fence: Fence,
    /// The number of earlier requests of the same run.
    pub(crate) before: i32,
    /// Whether it says that there may have been an earlier one.
    pub(crate) is_recovery: bool,
}

#[derive(sqlx::FromRow)]
struct Version {
    workflow_id: i64,
    valid_from: DateTime<Utc>,
    cron: Option<String>,
    state: String,
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
}

/// All (workflow, time) pairs of existing workflows that were due before `until`.
pub(crate) async fn find_due_times(admin: &Admin, until: DateTime<Utc>) -> BTreeSet<(i64, DateTime<Utc>)> {
    let versions: Vec<Version> = sqlx::query_as(
        "SELECT workflow_id, valid_from, cron, state, starts_at, ends_at FROM schedule_versions
          ORDER BY workflow_id, revision",
    )
    .fetch_all(&mut *admin.connection().await)
    .await
    .unwrap();
    let mut due = BTreeSet::new();
    for (nth, version) in versions.iter().enumerate() {
        let next = versions.get(nth + 1).filter(|next| next.workflow_id == version.workflow_id);
        let end = next.map_or(until, |next| next.valid_from.min(until));
        due.extend(
            minutes(version.valid_from, end).filter(|time| version.is_due(*time)).map(|t| (version.workflow_id, t)),
        );
    }
    due
}

impl Version {
    fn is_due(&self, time: DateTime<Utc>) -> bool {
        let Some((_, matches_minute)) = CRONS.iter().find(|(cron, _)| Some(*cron) == self.cron.as_deref()) else {
            return false;
        };
        self.state == "active"
            && self.starts_at.is_none_or(|start| start <= time)
            && self.ends_at.is_none_or(|end| time < end)
            && matches_minute(time.minute())
    }
}

/// The whole minutes from `from`, inclusive, to `end`, exclusive.
fn minutes(from: DateTime<Utc>, end: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> {
    let first =
        from.timestamp().div_euclid(60) + i64::from(from.timestamp() % 60 != 0 || from.timestamp_subsec_nanos() > 0);
    (first..).filter_map(|minute| DateTime::from_timestamp(minute * 60, 0)).take_while(move |time| *time < end)
}
