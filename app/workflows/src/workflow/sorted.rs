//! Step 1 of 7: a list of workflows in another order than that of their ids, and how many workflows a list has.
//!
//! The next time of a cron is computed, so no index has it: what is compared of each workflow is read, at most
//! [`MOST_SORTED`] of them, and sorted here. A page reads its own workflows in a second statement.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;

use super::list::{Filter, ListedWorkflow, list_by_ids};
use super::{PausedBy, State};
use crate::definition::spec::Timing;
use crate::keyset::KeysetPage;
use crate::sync::SyncStatus;
use crate::workflow::record::next_fire_of;

/// How many workflows are sorted or counted at most.
pub const MOST_SORTED: usize = 10_000;

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
pub enum Sort {
    /// The name, in any case.
    #[serde(rename = "name")]
    Name,
    /// The name, from the last one on.
    #[serde(rename = "-name")]
    NameDescending,
    /// The next time that it will run; those without one are last.
    #[serde(rename = "next_fire_at")]
    NextFire,
    /// The next time, the latest one first; those without one are last.
    #[serde(rename = "-next_fire_at")]
    NextFireDescending,
    /// The last change, the oldest one first.
    #[serde(rename = "updated_on")]
    Updated,
    /// The last change, the newest one first.
    #[serde(rename = "-updated_on")]
    UpdatedDescending,
}

/// What is compared of a workflow; also the cursor of a page that ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortedKey {
    value: Compared,
    id: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Compared {
    Text(String),
    Time(DateTime<Utc>),
    /// Behind everything else, in both directions.
    Nothing,
}

impl fmt::Display for SortedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for SortedKey {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// The result of a sorted list.
pub enum SortedPage {
    /// The workflows, each with its key.
    Page(KeysetPage<(SortedKey, ListedWorkflow), SortedKey>),
    /// More than [`MOST_SORTED`] workflows match.
    TooMany,
}

/// Lists workflows of the teams of a filter in another order. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_sorted(
    db: &mut PgConnection,
    filters: &[Filter],
    sort: Sort,
    after: Option<&SortedKey>,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<SortedPage> {
    let mut keys = Vec::new();
    for filter in filters {
        keys.extend(read_compared(db, filter).await?.into_iter().map(|row| row.key(sort, now)));
    }
    if keys.len() > MOST_SORTED {
        return Ok(SortedPage::TooMany);
    }
    keys.sort_unstable_by(|one, other| sort.compare(one, other));
    keys.retain(|key| after.is_none_or(|after| sort.compare(key, after) == Ordering::Greater));
    let page = KeysetPage::of_rows(keys, limit, SortedKey::clone);
    let ids: Vec<i64> = page.rows.iter().map(|key| key.id).collect();
    let mut listed = list_by_ids(db, &ids).await?;
    let rows = page.rows.into_iter().filter_map(|key| Some((key.clone(), listed.remove(&key.id)?))).collect();
    Ok(SortedPage::Page(KeysetPage { rows, next: page.next }))
}

/// Counts the workflows of filters; at most [`MOST_SORTED`].
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn count_listed(db: &mut PgConnection, filters: &[Filter]) -> sqlx::Result<usize> {
    let mut total = 0;
    for filter in filters {
        total += read_compared(db, filter).await?.len();
    }
    Ok(total.min(MOST_SORTED))
}

impl Sort {
    fn is_descending(self) -> bool {
        matches!(self, Self::NameDescending | Self::NextFireDescending | Self::UpdatedDescending)
    }

    /// Workflows with equal values are in the order of their ids.
    fn compare(self, one: &SortedKey, other: &SortedKey) -> Ordering {
        let last = |key: &SortedKey| key.value == Compared::Nothing;
        let by_value = match self.is_descending() {
            true => Reverse(&one.value).cmp(&Reverse(&other.value)),
            false => one.value.cmp(&other.value),
        };
        last(one).cmp(&last(other)).then(by_value).then(one.id.cmp(&other.id))
    }
}

struct ComparedRow {
    id: i64,
    name: String,
    updated_on: DateTime<Utc>,
    cron_schedule: Option<String>,
    timezone: Option<String>,
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
    state: State,
    pause_until: Option<DateTime<Utc>>,
}

impl ComparedRow {
    fn key(self, sort: Sort, now: DateTime<Utc>) -> SortedKey {
        let value = match sort {
            Sort::Name | Sort::NameDescending => Compared::Text(self.name.to_lowercase()),
            Sort::Updated | Sort::UpdatedDescending => Compared::Time(self.updated_on),
            Sort::NextFire | Sort::NextFireDescending => {
                let Self { cron_schedule: cron, timezone, starts_at, ends_at, .. } = self;
                let timing = Timing { cron, timezone, starts_at, ends_at };
                next_fire_of(&timing, self.state, self.pause_until, now).map_or(Compared::Nothing, Compared::Time)
            }
        };
        SortedKey { value, id: self.id }
    }
}

/// Selects what is compared of the workflows of a scope, one more than are sorted. Each scope has its own statement: in one for both, a plan
/// for a team could read the workflows of all teams. `query_as!` accepts only literals.
macro_rules! select_compared {
    ($comment:tt, $scope:tt, $filter:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            ComparedRow,
            $comment
                + r#"
        SELECT w.id, w.name, w.updated_on, w.cron_schedule, w.timezone, w.starts_at, w.ends_at, w.state AS "state: State", w.pause_until
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE "#
                + $scope
                + r#"
           AND CASE WHEN $1::text IS NULL THEN $7::boolean OR w.state <> 'archived' ELSE w.state = $1 END
           AND ($2::text IS NULL OR sync_status(p) = $2)
           AND ($3::text IS NULL OR strpos(lower(w.name || ' ' || coalesce(w.description, '')), lower($3)) > 0)
           AND (NOT $4::boolean OR w.cron_schedule IS NOT NULL)
           AND ($5::boolean IS NULL OR $5 = COALESCE(w.zone_change_id = (SELECT max(id) FROM zone_changes), false))
           AND w.labels @> $8::jsonb AND w.labels ?& $9::text[]
           AND ($10::text IS NULL OR w.paused_by = $10)
           AND ($11::text[] = '{}' OR last_result(w.id) = ANY($11))
         LIMIT $6
        "#,
            $filter.state as Option<State>,
            $filter.sync as Option<SyncStatus>,
            $filter.q,
            $filter.scheduled,
            $filter.timezone_changed,
            MOST_SORTED as i64 + 1,
            $filter.with_archived,
            Json($filter.labels_with_values()) as _,
            &$filter.keys_of_labels(),
            $filter.paused_by as Option<PausedBy>,
            &$filter.stored_results() as &[&str],
            $($arguments)*
        )
    };
}

async fn read_compared(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<ComparedRow>> {
    match (filter.team_id, filter.failures_in_a_row) {
        (Some(team), Some(least)) => read_compared_of_team_failing(db, team, least, filter).await,
        (None, Some(least)) => read_compared_of_failing(db, least, filter).await,
        (Some(team), None) => read_compared_of_team(db, team, filter).await,
        (None, None) => read_compared_of_all(db, filter).await,
    }
}

async fn read_compared_of_team(db: &mut PgConnection, team: i64, filter: &Filter) -> sqlx::Result<Vec<ComparedRow>> {
    select_compared!("-- what is compared of a team's workflows\n", "w.team_id = $12", filter, team).fetch_all(db).await
}

async fn read_compared_of_all(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<ComparedRow>> {
    select_compared!("-- what is compared of all workflows\n", "true", filter,).fetch_all(db).await
}

async fn read_compared_of_team_failing(
    db: &mut PgConnection,
    team: i64,
    least: i32,
    filter: &Filter,
) -> sqlx::Result<Vec<ComparedRow>> {
    select_compared!(
        "-- what is compared of a team's failing workflows\n",
        "w.id IN (SELECT workflow_id FROM failure_streaks WHERE team_id = $12 AND failures >= $13)
           AND w.team_id = $12",
        filter,
        team,
        least
    )
    .fetch_all(db)
    .await
}

async fn read_compared_of_failing(
    db: &mut PgConnection,
    least: i32,
    filter: &Filter,
) -> sqlx::Result<Vec<ComparedRow>> {
    select_compared!(
        "-- what is compared of all failing workflows\n",
        "w.id IN (SELECT workflow_id FROM failure_streaks WHERE failures >= $12)",
        filter,
        least
    )
    .fetch_all(db)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: i64, seconds: Option<i64>) -> SortedKey {
        let value = seconds.map_or(Compared::Nothing, |at| Compared::Time(DateTime::from_timestamp(at, 0).unwrap()));
        SortedKey { value, id }
    }

    #[test]
    fn what_has_no_next_time_is_last_in_both_directions() {
        for (sort, expected) in [(Sort::NextFire, [4, 1, 3, 2]), (Sort::NextFireDescending, [1, 3, 4, 2])] {
            let mut keys = [key(1, Some(9)), key(2, None), key(3, Some(9)), key(4, Some(5))];
            keys.sort_by(|one, other| sort.compare(one, other));
            assert_eq!(keys.iter().map(|key| key.id).collect::<Vec<_>>(), expected, "{sort:?}");
        }
    }

    #[test]
    fn a_cursor_is_its_key() {
        for key in [key(1, Some(9)), key(2, None), SortedKey { value: Compared::Text("ä\"".to_owned()), id: 3 }] {
            assert_eq!(key.to_string().parse::<SortedKey>().unwrap(), key);
        }
    }
}
