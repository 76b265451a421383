//! `cronbox backfill`: the progress of backfills, and how to stop them. `cronbox schedule backfill` requests one.

use std::process::ExitCode;
use std::time::Duration;

use api_types::backfills::{BackfillState, BackfillView};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

use crate::client::Client;
use crate::common::Common;
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Output, state, word};
use crate::progress::Progress;
use crate::times::rfc3339;
use crate::watch::{Watch, repeat};

/// How often a backfill that is waited for is read.
const READ_EVERY: Duration = Duration::from_millis(500);

/// What can be done with backfills.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List backfills, the newest first.
    Ls(List),
    /// Show a backfill.
    Get(Named),
    /// Create no further runs until it is resumed.
    Pause(Named),
    /// Create runs again.
    Resume(Named),
    /// End it, with its runs that have not started; runs that are executed go on.
    Cancel(Named),
}

/// Which backfills are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    watch: Watch,
    /// Only backfills in this state: running, paused, cancelled or finished.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A backfill.
#[derive(Args)]
pub(crate) struct Named {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "BACKFILL")]
    id: Uuid,
}

/// Runs the command.
pub(crate) async fn run_backfill(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            let query: Vec<_> = list.state.iter().map(|state| ("state", state.clone())).collect();
            repeat(list.watch, async || {
                let output = list.common.output;
                print_list::<BackfillView>(&client, output, "/backfills", &query, list.limit.most(output)).await
            })
            .await
        }
        Verb::Get(named) => {
            let client = Client::connect(&named.common.access).await?;
            print_backfill(named.common.output, &client.read(&format!("/backfills/{}", named.id), &[]).await?)
        }
        Verb::Pause(named) => change_backfill(named, "pause").await,
        Verb::Resume(named) => change_backfill(named, "resume").await,
        Verb::Cancel(named) => change_backfill(named, "cancel").await,
    }
}

async fn change_backfill(named: &Named, verb: &str) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&named.common.access).await?;
    let path = format!("/backfills/{}:{verb}", named.id);
    let changed: BackfillView = client.write(Method::POST, &path, &[], &Value::Null).await?;
    print_backfill(named.common.output, &changed)
}

/// Prints a backfill.
pub(crate) fn print_backfill(output: Output, backfill: &BackfillView) -> anyhow::Result<ExitCode> {
    output.print_one(backfill, &backfill.id.to_string(), |view| {
        vec![
            ("backfill", backfill.id.into()),
            ("workflow", backfill.workflow_id.into()),
            ("state", state(&backfill.state)),
            ("from", Cell::from(rfc3339(backfill.start))),
            ("to", Cell::from(rfc3339(backfill.end))),
            ("times", Cell::from(format!("{} ({})", backfill.total, word(&backfill.only)))),
            ("started", backfill.started.into()),
            ("running", backfill.live.into()),
            ("succeeded", backfill.succeeded.into()),
            ("failed", backfill.failed.into()),
            ("requested by", Cell::from(&backfill.requested_by)),
            ("created", view.time(Some(backfill.created_on))),
            ("finished", view.time(backfill.finished_on)),
        ]
    })
}

/// Waits until a backfill has ended; exit 1 if one of its runs did not succeed.
///
/// # Errors
/// Fails if the app cannot be reached.
pub(crate) async fn wait_for_backfill(
    client: &Client,
    mut backfill: BackfillView,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let progress = Progress::of_steps(backfill.total.unsigned_abs());
    while matches!(backfill.state, BackfillState::Running | BackfillState::Paused) {
        progress.show_position((backfill.succeeded + backfill.failed).unsigned_abs());
        tokio::time::sleep(READ_EVERY).await;
        backfill = client.read(&format!("/backfills/{}", backfill.id), &[]).await?;
    }
    progress.end();
    print_backfill(output, &backfill)?;
    let is_good = backfill.state == BackfillState::Finished && backfill.failed == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
