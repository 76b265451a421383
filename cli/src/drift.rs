//! `cronbox drift`: shows how EventBridge differs from the database, and requests a sweep.

mod difference;
mod report;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use api_types::drift::{DriftView, SweepView};
use api_types::outbox::OutboxView;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Serialize;
use serde_json::json;

use self::difference::{Difference, Repair, list_differences};
use self::report::Report;
use crate::client::{Client, wait_for};
use crate::common::OperatorCommon;
use crate::output::{Output, word};

/// How often to check whether a sweep is done.
const PAUSE: Duration = Duration::from_secs(1);
/// A Lambda starts a sweep within a minute, and one of 100,000 schedules takes half a minute.
const PATIENCE: Duration = Duration::from_secs(600);
/// Rows of the outbox that are read to name repairs.
const MOST_REPAIRS: usize = 1_000;

/// The commands about drift.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show the last sweep's report and the current differences; exit 1 if there are any, or if that sweep refused changes.
    Show(Show),
    /// Request a sweep, which repairs what it finds.
    Check(Check),
}

/// The arguments of `show`.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    common: OperatorCommon,
}

/// The arguments of `check`.
#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    common: OperatorCommon,
    /// Delete orphans and make unexplained changes even if they are many; use it only if you know why they are.
    #[arg(long)]
    force: bool,
    /// Wait until it is done, and show its findings; exit 1 if there were differences.
    #[arg(long)]
    wait: bool,
}

/// Runs the command.
pub(crate) fn run_drift(verb: &Verb) -> anyhow::Result<ExitCode> {
    wait_for(async {
        match verb {
            Verb::Show(arguments) => show(arguments).await,
            Verb::Check(arguments) => check(arguments).await,
        }
    })
}

/// The known drift, and after a sweep that was waited for also what it repairs.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    drift: DriftView,
    #[serde(skip_serializing_if = "Option::is_none")]
    repairs: Option<Vec<Repair>>,
}

async fn show(arguments: &Show) -> anyhow::Result<ExitCode> {
    let drift: DriftView = Client::connect(&arguments.common.access).await?.read("/drift", &[]).await?;
    // A workflow whose change was refused is not marked as different: only the report says that it is.
    let refusals = drift.last.as_ref().map(Report::of).transpose()?.map_or(0, |report| report.refusals());
    let is_in_step = drift.workflows.is_empty() && drift.orphans.is_empty() && refusals == 0;
    print_drift(arguments.common.output(), &Shown { drift, repairs: None })?;
    Ok(verdict(is_in_step))
}

async fn check(arguments: &Check) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.common.access).await?;
    let body = json!({"force": arguments.force});
    let sweep: SweepView = client.write(Method::POST, "/drift:check", &[], &body).await?;
    if !arguments.wait {
        return arguments.common.output().print_object(&sweep, &sweep.id.to_string(), |_| {
            format!("sweep {} is requested; `cronbox drift show` prints its result\n", sweep.id)
        });
    }
    let drift = wait_for_sweep(&client, sweep.id).await?;
    let last = drift.last.as_ref().context("no sweep is done")?;
    let report = Report::of(last)?;
    let found = report.differences() + report.refusals();
    let repairs = Some(list_repairs(&client, last.started_on).await?);
    print_drift(arguments.common.output(), &Shown { drift, repairs })?;
    Ok(verdict(found == 0))
}

/// Returns the drift after this sweep is done.
async fn wait_for_sweep(client: &Client, id: i64) -> anyhow::Result<DriftView> {
    let started = Instant::now();
    loop {
        let drift: DriftView = client.read("/drift", &[]).await?;
        // A later sweep includes it.
        if drift.last.as_ref().is_some_and(|last| last.id >= id) {
            return Ok(drift);
        }
        if started.elapsed() > PATIENCE {
            bail!("sweep {id} is not done after {} minutes: check that a publisher runs", PATIENCE.as_secs() / 60);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The workflows that a sweep has enqueued for repair: their rows of the outbox name the difference.
async fn list_repairs(client: &Client, since: Option<DateTime<Utc>>) -> anyhow::Result<Vec<Repair>> {
    let mut repairs = Vec::new();
    for status in ["failed", "pending", "processed"] {
        let rows: Vec<OutboxView> = client.read_list("/outbox", &[("status", status.to_owned())], MOST_REPAIRS).await?;
        let of_sweep = rows.iter().filter(|row| since.is_none_or(|since| row.created_on >= since));
        repairs.extend(of_sweep.filter_map(|row| {
            // The payload is an open map: of an edit it has the request, and of a repair the difference.
            let class = row.payload["drift"].as_str()?.to_owned();
            Some(Repair { class, status: word(&row.status), workflow_id: row.workflow_id })
        }));
    }
    Ok(repairs)
}

fn print_drift(output: Output, shown: &Shown) -> anyhow::Result<ExitCode> {
    let rows: Vec<Difference> = list_differences(&shown.drift, shown.repairs.as_deref().unwrap_or_default());
    output.print_report(shown, &report::summarise(&shown.drift)?, &rows, "")
}

fn verdict(is_in_step: bool) -> ExitCode {
    if is_in_step { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
