//! `cronbox drift`: shows how EventBridge differs from the database, and requests a sweep.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use api_types::outbox::OutboxView;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Access, Client, wait_for};
use crate::print::{one_line, print_json, print_text};

/// How often to check whether a sweep is done.
const PAUSE: Duration = Duration::from_secs(1);
/// A Lambda starts a sweep within a minute, and one of 100,000 schedules takes half a minute.
const PATIENCE: Duration = Duration::from_secs(600);
/// Rows of the outbox that are read to name repairs.
const MOST_REPAIRS: usize = 1_000;
/// The report's counts of differences, in the order of the table.
const CLASSES: [&str; 5] = ["missing", "changed", "disabled_out_of_band", "stale_template", "orphan"];

/// The commands about drift.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show the last sweep's report and the current differences; exit 1 if there are any.
    Show(Show),
    /// Request a sweep, which repairs what it finds.
    Check(Check),
}

/// The arguments of `show`.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    access: Access,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The arguments of `check`.
#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    access: Access,
    /// Delete orphans and make unexplained changes even if they are many; use it only if you know why they are.
    #[arg(long)]
    force: bool,
    /// Wait until it is done, and show its findings; exit 1 if there were differences.
    #[arg(long)]
    wait: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
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

async fn show(arguments: &Show) -> anyhow::Result<ExitCode> {
    let drift = Client::connect(&arguments.access).await?.get("/drift", &[]).await?;
    print_drift(&drift, arguments.json)?;
    Ok(verdict(is_empty(&drift["workflows"]) && is_empty(&drift["orphans"])))
}

async fn check(arguments: &Check) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.access).await?;
    let sweep = client.post("/drift:check", &json!({"force": arguments.force})).await?;
    if arguments.wait {
        let mut drift = done(&client, &sweep["id"]).await?;
        drift["repairs"] = json!(list_repairs(&client, &drift["last"]["started_on"]).await?);
        print_drift(&drift, arguments.json)?;
        return Ok(verdict(differences(&drift["last"]["report"]) == 0));
    }
    match arguments.json {
        true => print_json(&sweep),
        false => print_text(&format!("sweep {} is requested; `cronbox drift show` prints its result\n", sweep["id"])),
    }
}

/// Returns the drift after this sweep is done.
async fn done(client: &Client, id: &Value) -> anyhow::Result<Value> {
    let started = Instant::now();
    loop {
        let drift = client.get("/drift", &[]).await?;
        // A later sweep includes it.
        if drift["last"]["id"].as_i64() >= id.as_i64() {
            return Ok(drift);
        }
        if started.elapsed() > PATIENCE {
            bail!("sweep {id} is not done after {} minutes: check that a publisher runs", PATIENCE.as_secs() / 60);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The workflows that a sweep has enqueued for repair: their rows of the outbox name the difference.
async fn list_repairs(client: &Client, since: &Value) -> anyhow::Result<Vec<Value>> {
    let since: Option<DateTime<Utc>> = serde_json::from_value(since.clone()).unwrap_or_default();
    let mut repairs = Vec::new();
    for status in ["failed", "pending", "processed"] {
        let rows: Vec<OutboxView> = client.read_list("/outbox", &[("status", status.to_owned())], MOST_REPAIRS).await?;
        let of_sweep = rows.iter().filter(|row| since.is_none_or(|since| row.created_on >= since));
        repairs.extend(
            of_sweep
                .filter(|row| row.payload["drift"].is_string())
                .map(|row| json!({"workflow_id": row.workflow_id, "class": row.payload["drift"], "status": status})),
        );
    }
    Ok(repairs)
}

fn print_drift(drift: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json { print_json(drift) } else { print_text(&table(drift)) }
}

fn table(drift: &Value) -> String {
    let mut table = String::new();
    // Writing to a String cannot fail.
    let _ = summarise(&mut table, drift);
    let _ = list(&mut table, drift);
    table
}

fn summarise(table: &mut String, drift: &Value) -> std::fmt::Result {
    let (last, open) = (&drift["last"], &drift["open"]);
    let report = &last["report"];
    match last["finished_on"].as_str() {
        None => writeln!(table, "no sweep has finished yet")?,
        Some(finished_on) => {
            let (listed, found) = (count(report, "listed"), differences(report));
            writeln!(table, "sweep {} of {finished_on}: {listed} schedules listed, {found} differed", last["id"])?;
        }
    }
    for class in CLASSES.iter().filter(|class| count(report, class) > 0) {
        writeln!(table, "  {class:<22} {:>7}", count(report, class))?;
    }
    match count(report, "orphans_refused") {
        0 => {}
        refused => writeln!(
            table,
            "  {refused} orphans were NOT deleted, because they are too many: check that the database is the right one, then run `cronbox drift check --force`"
        )?,
    }
    match count(report, "changes_refused") {
        0 => {}
        refused => writeln!(
            table,
            "  {refused} schedules were NOT changed, because they are too many and no raised generation explains it: check that database and configuration are the right ones, then run `cronbox drift check --force`"
        )?,
    }
    match count(report, "orphans_foreign") {
        0 => {}
        foreign => writeln!(table, "  {foreign} schedules belong to another database and are never deleted")?,
    }
    if let Some(id) = open["id"].as_i64() {
        let state = if open["started_on"].is_null() { "requested" } else { "under way" };
        writeln!(table, "sweep {id} is {state}")?;
        if let Some(why) = open["report"]["stopped_by"].as_str() {
            writeln!(table, "  it stopped: {}", one_line(why))?;
        }
    }
    Ok(())
}

fn list(table: &mut String, drift: &Value) -> std::fmt::Result {
    for workflow in drift["workflows"].as_array().into_iter().flatten() {
        let text = |field: &str| one_line(workflow[field].as_str().unwrap_or_default());
        writeln!(
            table,
            "workflow {:<10} {:<22} {} {}",
            workflow["workflow_id"],
            text("class"),
            text("name"),
            text("last_error")
        )?;
    }
    for repair in drift["repairs"].as_array().into_iter().flatten() {
        let text = |field: &str| one_line(repair[field].as_str().unwrap_or_default());
        let state = if text("status") == "processed" { "repaired".to_owned() } else { text("status") };
        writeln!(table, "workflow {:<10} {:<22} {state}", repair["workflow_id"], text("class"))?;
    }
    for orphan in drift["orphans"].as_array().into_iter().flatten() {
        let text = |field: &str| one_line(orphan[field].as_str().unwrap_or_default());
        writeln!(table, "orphan   {:<33} since {}", text("name"), text("first_seen"))?;
    }
    Ok(())
}

fn differences(report: &Value) -> u64 {
    CLASSES.iter().map(|class| count(report, class)).sum()
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_default()
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn verdict(is_in_step: bool) -> ExitCode {
    if is_in_step { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
