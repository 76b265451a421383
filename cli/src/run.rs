//! `cronbox run`: what ran, why, and what to do about it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api_types::raw::RawJson;
use api_types::runs::{RunDetailView, RunState, RunView};
use clap::{Args, Subcommand};
use reqwest::Method;
use schedule::Clock;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::Client;
use crate::common::Common;
use crate::listing::{Limit, print_list};
use crate::named::find_workflow;
use crate::output::{Cell, Form, Output, View, state, word};
use crate::print::print_text;
use crate::progress::Progress;
use crate::times::{Past, duration};
use crate::watch::{Watch, repeat};

/// How often a run that is waited for is read.
const READ_EVERY: Duration = Duration::from_millis(300);

/// What can be done with runs.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List runs, the newest first.
    Ls(List),
    /// Show a run: its timeline, its attempts and what its action answered.
    Get(Named),
    /// Run it again, with the same inputs.
    Retry(Change),
    /// End it.
    Cancel(Cancel),
}

/// Which runs are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    past: Past,
    /// Only runs of this workflow, by id or name.
    #[arg(long, value_name = "WORKFLOW")]
    workflow: Option<String>,
    /// Only runs in this state, for example failed; repeat it for further ones.
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,
    /// Only runs with this trigger: `schedule`, `manual`, `catch_up`, `backfill` or `retry`; repeat it for further ones.
    #[arg(long, value_name = "TRIGGER")]
    trigger: Vec<String>,
    /// Only runs of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    #[command(flatten)]
    limit: Limit<50>,
}

/// A run.
#[derive(Args)]
pub(crate) struct Named {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "RUN")]
    id: Uuid,
}

/// A change of a run.
#[derive(Args)]
pub(crate) struct Change {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "RUN")]
    id: Uuid,
    /// Wait until it has ended; exit 1 if it did not succeed.
    #[arg(long, short = 'w')]
    wait: bool,
}

/// Which run is cancelled.
#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "RUN")]
    id: Uuid,
    /// Wait until it has ended; exit 1 if it ended otherwise than cancelled.
    #[arg(long, short = 'w')]
    wait: bool,
}

/// Runs the command.
pub(crate) async fn run_run(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => list_runs(list).await,
        Verb::Get(named) => {
            let client = Client::connect(&named.common.access).await?;
            print_run(named.common.output, &client.read(&format!("/runs/{}", named.id), &[]).await?)
        }
        Verb::Retry(change) => {
            let client = Client::connect(&change.common.access).await?;
            let run = fire_and_read(&client, &format!("/runs/{}:retry", change.id), &json!({})).await?;
            follow_run(&client, run, change.wait, change.common.output).await
        }
        Verb::Cancel(cancel) => cancel_run(cancel).await,
    }
}

async fn list_runs(list: &List) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&list.common.access).await?;
    let mut query: Vec<(&str, String)> = list.state.iter().map(|state| ("state", state.clone())).collect();
    query.extend(list.trigger.iter().map(|trigger| ("trigger", trigger.clone())));
    query.extend(list.team.map(|team| ("team_id", team.to_string())));
    query.extend(list.past.query(Clock::System.now()));
    if let Some(workflow) = &list.workflow {
        query.push(("workflow_id", find_workflow(&client, workflow).await?.id.to_string()));
    }
    repeat(list.watch, async || {
        let output = list.common.output;
        print_list::<RunView>(&client, output, "/runs", &query, list.limit.most(output)).await
    })
    .await
}

async fn cancel_run(cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&cancel.common.access).await?;
    let cancelled: RunDetailView =
        client.write(Method::POST, &format!("/runs/{}:cancel", cancel.id), &[], &Value::Null).await?;
    if cancel.wait {
        let ended = wait_for_end(&client, cancelled).await?;
        let is_cancelled = ended.run.state == RunState::Cancelled;
        print_run(cancel.common.output, &ended)?;
        return Ok(if is_cancelled { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    print_run(cancel.common.output, &cancelled)
}

/// Sends a request that creates a run, and reads the run.
///
/// # Errors
/// Returns the refusal, or fails if the app cannot be reached.
pub(crate) async fn fire_and_read(client: &Client, path: &str, body: &Value) -> anyhow::Result<RunDetailView> {
    let fired: Value = client.write(Method::POST, path, &[], body).await?;
    let run = fired["run_id"].as_str().unwrap_or_default();
    // The run exists, so the error must not lead to a second one.
    client.read(&format!("/runs/{run}"), &[]).await.with_context(|| format!("the run {run} exists, but cannot be read"))
}

/// Prints a run, after its end if it is waited for; exit 1 if it did not succeed.
///
/// # Errors
/// Fails if the app cannot be reached.
pub(crate) async fn follow_run(
    client: &Client,
    run: RunDetailView,
    wait: bool,
    output: Output,
) -> anyhow::Result<ExitCode> {
    if !wait {
        return print_run(output, &run);
    }
    let ended = wait_for_end(client, run).await?;
    print_run(output, &ended)?;
    Ok(if ended.run.state == RunState::Succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn wait_for_end(client: &Client, mut run: RunDetailView) -> anyhow::Result<RunDetailView> {
    let progress = Progress::spinner();
    while matches!(run.run.state, RunState::Accepted | RunState::Queued | RunState::Running) {
        progress.show_message(format!("run {} is {}", run.run.id, word(&run.run.state)));
        tokio::time::sleep(READ_EVERY).await;
        run = client.read(&format!("/runs/{}", run.run.id), &[]).await?;
    }
    progress.end();
    Ok(run)
}

/// Prints a run with its timeline.
pub(crate) fn print_run(output: Output, detail: &RunDetailView) -> anyhow::Result<ExitCode> {
    let run = &detail.run;
    let printed = output.print_one(detail, &run.id.to_string(), |view| {
        vec![
            ("run", run.id.into()),
            (
                "workflow",
                Cell::from(format!("{} {}", run.workflow_id, run.workflow_name.as_deref().unwrap_or("(deleted)"))),
            ),
            ("state", state(&run.state)),
            ("trigger", Cell::from(word(&run.trigger))),
            ("error", Cell::optional(run.error.as_deref())),
            ("error code", Cell::from(word(&run.error_code))),
            ("took", Cell::from(duration(run.duration_ms))),
            ("repeats", Cell::optional(detail.retry_of)),
            ("backfill", Cell::optional(detail.backfill_id)),
            ("inputs", Cell::optional(detail.inputs.as_ref())),
            ("answer", Cell::optional(run.result.as_ref().map(RawJson::to_value))),
            ("late answer", Cell::optional(detail.late_result.as_ref())),
            ("timeline", Cell::from(timeline(detail, view))),
        ]
    })?;
    if matches!(output.form, Form::Table | Form::Wide) && !detail.attempts.is_empty() {
        print_text("\n")?;
        output.print_rows(&detail.attempts)?;
    }
    Ok(printed)
}

/// What happened to it, in its order.
fn timeline(detail: &RunDetailView, view: View) -> String {
    let run = &detail.run;
    let mut steps = vec![
        ("due", run.scheduled_time),
        ("accepted", Some(run.created_on)),
        ("not before", Some(detail.run_after).filter(|after| *after > run.created_on)),
        ("started", run.started_on),
        ("cancel requested", detail.cancel_requested_on),
        ("ended", run.finished_on),
    ];
    steps.sort_by_key(|(_, time)| *time);
    let shown = steps
        .into_iter()
        .filter(|(_, time)| time.is_some())
        .map(|(name, time)| format!("{name} {}", view.time(time).text()));
    shown.collect::<Vec<_>>().join(" -> ")
}
