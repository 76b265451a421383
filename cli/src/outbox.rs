//! `cronbox outbox`: the rows that wait or have failed, and what an operator can do about them.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::client::{Access, Client, wait_for};
use crate::print::{one_line, print_json_lines, print_text};

/// A page of the API at most.
const PAGE: u64 = 200;
/// The width of an error in a line of the table.
const ERROR_WIDTH: usize = 80;

/// What can be done about the outbox.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List rows, the newest first: those that wait or have failed, unless a status is given.
    Ls(List),
    /// Publish the workflow of a row again, at once and with the full number of attempts.
    Retry(Chosen),
    /// Discard a failed row: that edit is not published, and no alarm counts it any more.
    Discard(Chosen),
}

/// Which rows are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    access: Access,
    /// Only rows with this status.
    #[arg(long)]
    status: Option<Status>,
    /// Only rows of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<i64>,
    /// Show at most this many.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// The status of a row.
#[derive(Clone, Copy, ValueEnum)]
enum Status {
    Pending,
    Failed,
    Processed,
    Discarded,
}

/// The rows of `retry` and `discard`.
#[derive(Args)]
pub(crate) struct Chosen {
    #[command(flatten)]
    access: Access,
    /// The rows, by id.
    #[arg(value_name = "ID", required_unless_present = "all_failed", conflicts_with = "all_failed")]
    ids: Vec<i64>,
    /// All that have failed.
    #[arg(long)]
    all_failed: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run_outbox(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => wait_for(ls(list)),
        Verb::Retry(chosen) => wait_for(act("retry", chosen)),
        Verb::Discard(chosen) => wait_for(act("discard", chosen)),
    }
}

async fn ls(list: &List) -> anyhow::Result<ExitCode> {
    let client = Client::new(&list.access)?;
    let mut rows = Vec::new();
    for status in list.status.map_or_else(|| vec!["failed", "pending"], |status| vec![status.as_str()]) {
        rows.extend(rows_of(&client, status, list.workflow, list.limit).await?);
    }
    rows.truncate(usize::try_from(list.limit).unwrap_or(usize::MAX));
    print_rows(&rows, list.json)
}

/// Fetches the rows with this status, the newest first, page by page.
async fn rows_of(client: &Client, status: &str, workflow: Option<i64>, limit: u64) -> anyhow::Result<Vec<Value>> {
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor = None;
    while (rows.len() as u64) < limit {
        let page = (limit - rows.len() as u64).min(PAGE);
        let mut query = vec![("status", status.to_owned()), ("limit", page.to_string())];
        query.extend(workflow.map(|id| ("workflow_id", id.to_string())));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let answer = client.get("/outbox", &query).await?;
        rows.extend(answer["items"].as_array().cloned().unwrap_or_default());
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(rows)
}

async fn act(verb: &str, chosen: &Chosen) -> anyhow::Result<ExitCode> {
    let client = Client::new(&chosen.access)?;
    let ids = if chosen.all_failed {
        let failed = rows_of(&client, "failed", None, u64::MAX).await?;
        failed.iter().filter_map(|row| row["id"].as_i64()).collect()
    } else {
        chosen.ids.clone()
    };
    let mut rows = Vec::new();
    for id in ids {
        rows.push(client.post(&format!("/outbox/{id}:{verb}"), &json!({})).await?);
    }
    print_rows(&rows, chosen.json)
}

fn print_rows(rows: &[Value], as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        return print_json_lines(rows);
    }
    print_text(&table(rows))
}

fn table(rows: &[Value]) -> String {
    if rows.is_empty() {
        return "nothing\n".to_owned();
    }
    let mut table =
        format!("{:<10} {:<10} {:<10} {:<21} {:>8}  {}\n", "ROW", "WORKFLOW", "STATUS", "EDITED", "ATTEMPTS", "ERROR");
    for row in rows {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let edited: String = text("created_on").chars().take(19).collect();
        let error: String = one_line(&text("error_message")).chars().take(ERROR_WIDTH).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "{:<10} {:<10} {:<10} {:<21} {:>8}  {error}",
            row["id"],
            row["workflow_id"],
            text("status"),
            format!("{edited}Z"),
            row["attempt_count"],
        );
    }
    table
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Failed => "failed",
            Status::Processed => "processed",
            Status::Discarded => "discarded",
        }
    }
}
