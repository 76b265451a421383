//! `cronbox top`: an overview of what runs, what failed and what comes.

use std::process::ExitCode;

use api_types::runs::RunView;
use api_types::stats::StatsView;
use api_types::workflows::WorkflowView;
use chrono::TimeDelta;
use clap::Args;
use schedule::Clock;

use crate::client::Client;
use crate::common::Common;
use crate::print::print_text;
use crate::times::rfc3339;
use crate::watch::{Watch, repeat};

/// Rows of each part at most.
const ROWS: usize = 10;

/// The overview.
#[derive(Args)]
pub(crate) struct Top {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    watch: Watch,
    /// Only this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
}

/// Prints the overview, once or again and again.
pub(crate) async fn show_overview(top: &Top) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&top.common.access).await?;
    let team: Vec<_> = top.team.iter().map(|team| ("team_id", team.to_string())).collect();
    let with = |more: &[(&'static str, &str)]| {
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        team.iter().cloned().chain(more).collect::<Vec<_>>()
    };
    repeat(top.watch, async || {
        let stats: StatsView = client.read("/stats", &with(&[("hours", "24")])).await?;
        let decided = &stats.occurrences;
        let runs = &stats.executions;
        print_text(&format!(
            "last 24 h: {} fired, {} missed, {} caught up, {} abandoned; {} of {} runs succeeded; {} live runs; ledger {} s behind\n",
            decided.fired, decided.missed, decided.caught_up, decided.abandoned, runs.successful, runs.total, stats.live_runs, stats.ledger_lag_s,
        ))?;
        let since = rfc3339(Clock::System.now() - TimeDelta::hours(24));
        let running = with(&[("state", "running"), ("state", "queued"), ("state", "accepted")]);
        part(top, "running", client.read_list::<RunView>("/runs", &running, ROWS).await?)?;
        let failed = with(&[("state", "failed"), ("state", "timed_out"), ("state", "abandoned"), ("from", &since)]);
        part(top, "failed since yesterday", client.read_list::<RunView>("/runs", &failed, ROWS).await?)?;
        let paused = with(&[("state", "paused"), ("results", "true")]);
        part(top, "paused", client.read_list::<WorkflowView>("/workflows", &paused, ROWS).await?)?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn part<R: crate::output::Row>(top: &Top, title: &str, rows: Vec<R>) -> anyhow::Result<()> {
    print_text(&format!("\n{title}\n"))?;
    top.common.output.print_rows(&rows).map(drop)
}
