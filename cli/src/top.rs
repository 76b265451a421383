//! `cronbox top`: an overview of what runs, what failed and what comes.

use std::process::ExitCode;

use api_types::runs::RunView;
use api_types::stats::StatsView;
use api_types::workflows::WorkflowView;
use chrono::TimeDelta;
use clap::Args;
use schedule::Clock;
use serde::Serialize;

use crate::client::Client;
use crate::common::Common;
use crate::output::{Output, Row};
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

/// The parts of the overview.
#[derive(Serialize)]
struct Overview {
    stats: StatsView,
    running: Vec<RunView>,
    failed: Vec<RunView>,
    paused: Vec<WorkflowView>,
}

/// Prints the overview, once or again and again.
pub(crate) async fn show_overview(top: &Top) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&top.common.access).await?;
    let output = top.common.output;
    repeat(top.watch, async || {
        let overview = read_overview(&client, top.team).await?;
        output.print_object(&overview, &overview.handles(), |_| overview.in_words(output))
    })
    .await
}

async fn read_overview(client: &Client, team: Option<i64>) -> anyhow::Result<Overview> {
    let with = |more: &[(&'static str, &str)]| {
        let team = team.iter().map(|team| ("team_id", team.to_string()));
        team.chain(more.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect::<Vec<_>>()
    };
    let since = rfc3339(Clock::System.now() - TimeDelta::hours(24));
    let running = with(&[("state", "running"), ("state", "queued"), ("state", "accepted")]);
    let failed = with(&[("state", "failed"), ("state", "timed_out"), ("state", "abandoned"), ("from", &since)]);
    let paused = with(&[("state", "paused"), ("results", "true")]);
    Ok(Overview {
        stats: client.read("/stats", &with(&[("hours", "24")])).await?,
        running: client.read_list("/runs", &running, ROWS).await?,
        failed: client.read_list("/runs", &failed, ROWS).await?,
        paused: client.read_list("/workflows", &paused, ROWS).await?,
    })
}

impl Overview {
    /// The ids of the runs, and then of the paused workflows.
    fn handles(&self) -> String {
        let runs = self.running.iter().chain(&self.failed).map(Row::handle);
        runs.chain(self.paused.iter().map(Row::handle)).collect::<Vec<_>>().join("\n")
    }

    fn in_words(&self, output: Output) -> String {
        let (decided, runs) = (&self.stats.occurrences, &self.stats.executions);
        let figures = format!(
            "last 24 h: {} fired, {} missed, {} caught up, {} abandoned; {} of {} runs succeeded; {} live runs; ledger {} s behind\n",
            decided.fired,
            decided.missed,
            decided.caught_up,
            decided.abandoned,
            runs.successful,
            runs.total,
            self.stats.live_runs,
            self.stats.ledger_lag_s,
        );
        let parts = [
            figures,
            part(output, "running", &self.running),
            part(output, "failed since yesterday", &self.failed),
            part(output, "paused", &self.paused),
        ];
        parts.join("\n")
    }
}

fn part<R: Row>(output: Output, title: &str, rows: &[R]) -> String {
    let shown = if rows.is_empty() { "nothing\n".to_owned() } else { output.table(rows) };
    format!("{title}\n{shown}")
}
