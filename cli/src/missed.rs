//! `cronbox missed`: which due times did not run.

use std::process::ExitCode;

use api_types::occurrences::NamedOccurrenceView;
use api_types::stats::StatsView;
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use schedule::Clock;
use schedule::delivery::GRACE;

use crate::client::{Client, Refusal};
use crate::common::Common;
use crate::listing::{Limit, print_list};
use crate::print::print_error;
use crate::times::{Past, rfc3339};

/// The watchdog has a turn each minute; one that is further behind does not decide.
const NORMAL_LAG_SECS: i64 = 120;

/// Which times are listed.
#[derive(Args)]
pub(crate) struct Missed {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    past: Past,
    /// Also times that were skipped: by a pause, a freeze, or because the previous run had not ended.
    #[arg(long)]
    skipped: bool,
    /// Only times of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    #[command(flatten)]
    limit: Limit<200>,
}

/// Lists what did not run in the last 24 hours, or in another span; exit 1 if a time was missed or abandoned, or is not decided.
pub(crate) async fn list_missed(missed: &Missed) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&missed.common.access).await?;
    let now = Clock::System.now();
    let (from, to) = missed.past.bounds(now);
    let mut query = vec![("from", rfc3339(from.unwrap_or(now - TimeDelta::hours(24))))];
    query.extend(to.map(|to| ("to", rfc3339(to))));
    query.extend(missed.team.map(|team| ("team_id", team.to_string())));
    // First, so that the list has each time that is decided by now.
    let undecided = find_undecided(&client, missed.team, to).await?;
    query.extend(["missed", "abandoned"].map(|decision| ("decision", decision.to_owned())));
    // Skipped times may fill the list, and hide those that were missed.
    let bad: Vec<NamedOccurrenceView> = client.read_list("/occurrences", &query, 1).await?;
    if missed.skipped {
        query.extend(["skipped_paused", "skipped_overlap"].map(|decision| ("decision", decision.to_owned())));
    }
    let output = missed.common.output;
    print_list::<NamedOccurrenceView>(&client, output, "/occurrences", &query, missed.limit.most(output)).await?;
    if let Some(sentence) = &undecided {
        print_error(sentence);
    }
    Ok(if bad.is_empty() && undecided.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why times before `to` may lack a decision, in a sentence; `None`: each has one.
///
/// # Errors
/// Fails if the app cannot be reached.
async fn find_undecided(
    client: &Client,
    team: Option<i64>,
    to: Option<DateTime<Utc>>,
) -> anyhow::Result<Option<String>> {
    let mut query = vec![("hours", "1".to_owned())];
    query.extend(team.map(|team| ("team_id", team.to_string())));
    let stats: StatsView = match client.read("/stats", &query).await {
        Ok(stats) => stats,
        // For example a person of several teams, who has not named one.
        Err(error) if error.is::<Refusal>() => {
            return Ok(Some(format!("it is unknown whether each time is decided: {error:#}; --team names a team")));
        }
        Err(error) => return Err(error),
    };
    let since = stats.to - GRACE - TimeDelta::seconds(stats.ledger_lag_s);
    let is_behind = stats.ledger_lag_s > NORMAL_LAG_SECS && to.is_none_or(|to| to > since);
    Ok(is_behind.then(|| {
        format!(
            "times since {} are not decided yet: the app's job `watchdog` does not decide; ask its operator",
            rfc3339(since)
        )
    }))
}
