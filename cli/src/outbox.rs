//! `cronbox outbox`: the rows that wait or have failed, and what an operator can do about them.

use std::process::ExitCode;

use api_types::outbox::OutboxView;
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::json;

use crate::client::{Client, Refusal, wait_for};
use crate::common::OperatorCommon;
use crate::listing::{Limit, print_first};
use crate::output::{Cell, Row, View, state};
use crate::print::print_error;

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
    common: OperatorCommon,
    /// Only rows with this status.
    #[arg(long)]
    status: Option<Status>,
    /// Only rows of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<i64>,
    #[command(flatten)]
    limit: Limit<50>,
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
    common: OperatorCommon,
    /// The rows, by id.
    #[arg(value_name = "ID", required_unless_present = "all_failed", conflicts_with = "all_failed")]
    ids: Vec<i64>,
    /// All that have failed.
    #[arg(long)]
    all_failed: bool,
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
    let client = Client::connect(&list.common.access).await?;
    let most = list.limit.most(list.common.output());
    let mut rows = Vec::new();
    for status in list.status.map_or_else(|| vec!["failed", "pending"], |status| vec![status.as_str()]) {
        rows.extend(rows_of(&client, status, list.workflow, most.saturating_add(1)).await?);
    }
    print_first(list.common.output(), rows, most)
}

/// Fetches the rows with this status, the newest first, page by page.
async fn rows_of(
    client: &Client,
    status: &str,
    workflow: Option<i64>,
    limit: usize,
) -> anyhow::Result<Vec<OutboxView>> {
    let mut query = vec![("status", status.to_owned())];
    query.extend(workflow.map(|id| ("workflow_id", id.to_string())));
    client.read_list("/outbox", &query, limit).await
}

async fn act(verb: &str, chosen: &Chosen) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&chosen.common.access).await?;
    let ids = if chosen.all_failed {
        let failed = rows_of(&client, "failed", None, usize::MAX).await?;
        failed.iter().map(|row| row.id).collect()
    } else {
        chosen.ids.clone()
    };
    let (mut rows, mut is_refused) = (Vec::<OutboxView>::new(), false);
    let is_of_several = ids.len() > 1;
    for id in ids {
        match client.write(Method::POST, &format!("/outbox/{id}:{verb}"), &[], &json!({})).await {
            Ok(row) => rows.push(row),
            // The other rows are tried all the same.
            Err(error) if error.is::<Refusal>() && is_of_several => {
                is_refused = true;
                print_error(&format!("row {id}: {error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    chosen.common.output().print_rows(&rows)?;
    Ok(if is_refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Row for OutboxView {
    const COLUMNS: &'static [&'static str] =
        &["ROW", "WORKFLOW", "STATUS", "EDITED", "ATTEMPTS", "ERROR", "CHANGE", "DUE", "ENDED"];
    const WIDE_FROM: usize = 6;

    fn handle(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: View) -> Vec<Cell> {
        let error: Option<String> = self.error_message.as_ref().map(|error| error.chars().take(ERROR_WIDTH).collect());
        vec![
            self.id.into(),
            self.workflow_id.into(),
            state(&self.status),
            view.time(Some(self.created_on)),
            self.attempt_count.into(),
            Cell::optional(error),
            Cell::from(&self.op),
            view.time(self.due_at),
            view.time(self.processed_on.or(self.failed_on)),
        ]
    }
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
