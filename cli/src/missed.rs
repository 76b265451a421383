//! `cronbox missed`: which due times did not run.

use std::process::ExitCode;

use api_types::occurrences::NamedOccurrenceView;
use chrono::TimeDelta;
use clap::Args;
use schedule::Clock;

use crate::client::Client;
use crate::common::Common;
use crate::listing::{Limit, print_list};
use crate::times::{Past, rfc3339};

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

/// Lists what did not run in the last 24 hours, or in another span; exit 1 if a time was missed or abandoned.
pub(crate) async fn list_missed(missed: &Missed) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&missed.common.access).await?;
    let now = Clock::System.now();
    let (from, to) = missed.past.bounds(now);
    let mut query = vec![("from", rfc3339(from.unwrap_or(now - TimeDelta::hours(24))))];
    query.extend(to.map(|to| ("to", rfc3339(to))));
    query.extend(missed.team.map(|team| ("team_id", team.to_string())));
    query.extend(["missed", "abandoned"].map(|decision| ("decision", decision.to_owned())));
    // Skipped times may fill the list, and hide those that were missed.
    let bad: Vec<NamedOccurrenceView> = client.read_list("/occurrences", &query, 1).await?;
    if missed.skipped {
        query.extend(["skipped_paused", "skipped_overlap"].map(|decision| ("decision", decision.to_owned())));
    }
    let output = missed.common.output;
    print_list::<NamedOccurrenceView>(&client, output, "/occurrences", &query, missed.limit.most(output)).await?;
    Ok(if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
