//! `cronbox bulk`: one request for many workflows or runs.

use std::process::ExitCode;
use std::time::Duration;

use api_types::bulk::{BulkItemView, BulkState, BulkView};
use clap::{Args, Subcommand};
use reqwest::Method;
use schedule::Clock;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::client::Client;
use crate::common::{Common, DryRun, print_changes};
use crate::listing::{Limit, print_list};
use crate::output::{Cell, Output, state, word};
use crate::print::print_error;
use crate::progress::Progress;
use crate::times::{Instant, Past, rfc3339};
use crate::watch::{Watch, repeat};

/// How often an operation that is waited for is read.
const READ_EVERY: Duration = Duration::from_millis(500);

/// What can be done with many objects at once.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Pause workflows; those that are paused already keep their reason and their end.
    Pause(Pause),
    /// Resume workflows.
    Resume(OfWorkflows),
    /// Archive workflows, for ever.
    Archive(OfWorkflows),
    /// Delete archived workflows with their history; only for admins.
    Delete(OfWorkflows),
    /// Run workflows now.
    Fire(OfWorkflows),
    /// Repeat runs that failed, timed out or were abandoned, and have not succeeded in another run; others by --state or --run.
    Retry(OfRuns),
    /// End runs that have not ended.
    Cancel(OfRuns),
    /// List operations, the newest first.
    Ls(List),
    /// Show an operation and its progress.
    Get(Named),
    /// List the items of an operation, with what became of each.
    Items(Items),
    /// Stop an operation: items that are not processed yet stay as they are.
    Stop(Named),
}

/// How an operation is requested.
#[derive(Args)]
pub(crate) struct Request {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// The team, by id; needed with an admin key.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    /// All of the team, instead of those that other options select.
    #[arg(long)]
    all: bool,
    /// Confirm --all.
    #[arg(long)]
    yes: bool,
    /// Refuse it unless so many are selected, for example as --dry-run has shown.
    #[arg(long, value_name = "N")]
    expect: Option<u32>,
    /// Wait until every item is processed; exit 1 if one was refused.
    #[arg(long, short = 'w')]
    wait: bool,
}

/// Which workflows.
#[derive(Args)]
pub(crate) struct OfWorkflows {
    #[command(flatten)]
    request: Request,
    /// Only these workflows, by id.
    #[arg(long = "workflow", value_name = "ID")]
    workflows: Vec<i64>,
    /// Only workflows in this state: active or paused.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only workflows whose name or description has this text.
    #[arg(long, short = 'q', value_name = "TEXT")]
    q: Option<String>,
}

/// A pause of many workflows.
#[derive(Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    of: OfWorkflows,
    /// Why, for people.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// When the pause ends automatically: RFC 3339, tomorrow, monday, +2h.
    #[arg(long, value_name = "TIME")]
    until: Option<Instant>,
    /// Also change the reason and the end of workflows that are paused already.
    #[arg(long)]
    replace: bool,
}

/// Which runs.
#[derive(Args)]
pub(crate) struct OfRuns {
    #[command(flatten)]
    request: Request,
    #[command(flatten)]
    past: Past,
    /// Only these runs, by id.
    #[arg(long = "run", value_name = "ID")]
    runs: Vec<Uuid>,
    /// Only runs of this workflow, by id; repeat it for further ones.
    #[arg(long = "workflow", value_name = "ID")]
    workflows: Vec<i64>,
    /// Only runs in this state, for example failed; repeat it for further ones.
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,
}

/// Which operations are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    limit: Limit<50>,
}

/// An operation.
#[derive(Args)]
pub(crate) struct Named {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "OPERATION")]
    id: Uuid,
}

/// The items of an operation.
#[derive(Args)]
pub(crate) struct Items {
    #[command(flatten)]
    named: Named,
    /// Only items with this outcome: done, unchanged or refused.
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    #[command(flatten)]
    limit: Limit<1_000>,
}

/// Runs the command.
pub(crate) async fn run_bulk(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Pause(pause) => {
            let until = pause.until.map(|until| rfc3339(until.0));
            let replaces = pause.replace.then_some(true);
            let more = [("reason", json!(pause.reason)), ("until", json!(until)), ("replace_pause", json!(replaces))];
            create(&pause.of.request, "pause", pause.of.select(), &more).await
        }
        Verb::Resume(of) => create(&of.request, "resume", of.select(), &[]).await,
        Verb::Archive(of) => create(&of.request, "archive", of.select(), &[]).await,
        Verb::Delete(of) => create(&of.request, "delete", of.select(), &[]).await,
        Verb::Fire(of) => create(&of.request, "fire", of.select(), &[]).await,
        Verb::Retry(of) => create(&of.request, "retry", of.select(), &[]).await,
        Verb::Cancel(of) => create(&of.request, "cancel", of.select(), &[]).await,
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            repeat(list.watch, async || {
                let output = list.common.output;
                print_list::<BulkView>(&client, output, "/bulk", &[], list.limit.most(output)).await
            })
            .await
        }
        Verb::Get(named) => {
            let client = Client::connect(&named.common.access).await?;
            print_operation(named.common.output, &client.read(&format!("/bulk/{}", named.id), &[]).await?)
        }
        Verb::Items(items) => list_items(items).await,
        Verb::Stop(named) => {
            let client = Client::connect(&named.common.access).await?;
            let path = format!("/bulk/{}:cancel", named.id);
            print_operation(named.common.output, &client.write(Method::POST, &path, &[], &Value::Null).await?)
        }
    }
}

/// The objects of an operation.
struct Selection {
    /// Empty: all of the team.
    filter: Map<String, Value>,
    /// The options that make a filter.
    options: &'static str,
}

/// A filter without what is not named.
fn without_nulls<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let named = fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]));
    named.map(|(name, value)| (name.to_owned(), value)).collect()
}

impl OfWorkflows {
    fn select(&self) -> Selection {
        let ids = (!self.workflows.is_empty()).then_some(&self.workflows);
        // An empty text, for example of a variable that is not set, is in every name.
        let text = self.q.as_deref().filter(|text| !text.is_empty());
        let filter = without_nulls([("workflow_ids", json!(ids)), ("state", json!(self.state)), ("q", json!(text))]);
        Selection { filter, options: "--workflow, --state or -q" }
    }
}

impl OfRuns {
    fn select(&self) -> Selection {
        let (from, to) = self.past.bounds(Clock::System.now());
        let (ids, workflows) =
            ((!self.runs.is_empty()).then_some(&self.runs), (!self.workflows.is_empty()).then_some(&self.workflows));
        let filter = without_nulls([
            ("run_ids", json!(ids)),
            ("workflow_ids", json!(workflows)),
            ("run_states", json!(self.state)),
            ("from", json!(from.map(rfc3339))),
            ("to", json!(to.map(rfc3339))),
        ]);
        Selection { filter, options: "--run, --workflow, --state, --last, --from or --to" }
    }
}

/// Returns why a request must not be sent: without a filter it is for all of the team, so that must be confirmed.
fn find_fault(request: &Request, selection: &Selection) -> Option<String> {
    let Selection { filter, options } = selection;
    match (filter.is_empty(), request.all) {
        (false, true) => Some(format!("--all excludes {options}: leave out one of them")),
        (true, _) if request.dry_run.is_dry() => None,
        (true, false) => Some(format!("select by {options}, or all of the team by --all --yes")),
        (true, true) if !request.yes => Some("confirm --all by --yes; --dry-run shows what would change".to_owned()),
        _ => None,
    }
}

async fn create(
    request: &Request,
    verb: &str,
    selection: Selection,
    more: &[(&str, Value)],
) -> anyhow::Result<ExitCode> {
    if let Some(fault) = find_fault(request, &selection) {
        print_error(&fault);
        return Ok(ExitCode::from(2));
    }
    let client = Client::connect(&request.common.access).await?;
    let mut body = without_nulls([
        ("verb", json!(verb)),
        ("team_id", json!(request.team)),
        ("filter", json!(selection.filter)),
        ("expected_total", json!(request.expect)),
    ]);
    body.extend(
        more.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| ((*name).to_owned(), value.clone())),
    );
    let body = Value::Object(body);
    if request.dry_run.is_dry() {
        return print_changes(&client, Method::POST, "/bulk", &body, request.common.output).await;
    }
    let created: BulkView = client.write(Method::POST, "/bulk", &[], &body).await?;
    if !request.wait {
        return print_operation(request.common.output, &created);
    }
    let ended = wait_for_operation(&client, created).await?;
    print_operation(request.common.output, &ended)?;
    Ok(if ended.state == BulkState::Finished && ended.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn wait_for_operation(client: &Client, mut operation: BulkView) -> anyhow::Result<BulkView> {
    let progress = Progress::of_steps(u64::from(operation.total.unsigned_abs()));
    while operation.state == BulkState::Running {
        progress.show_position(u64::from(operation.processed.unsigned_abs()));
        tokio::time::sleep(READ_EVERY).await;
        operation = client.read(&format!("/bulk/{}", operation.id), &[]).await?;
    }
    progress.end();
    Ok(operation)
}

async fn list_items(items: &Items) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&items.named.common.access).await?;
    let query: Vec<_> = items.outcome.iter().map(|outcome| ("outcome", outcome.clone())).collect();
    let path = format!("/bulk/{}/items", items.named.id);
    let output = items.named.common.output;
    print_list::<BulkItemView>(&client, output, &path, &query, items.limit.most(output)).await
}

fn print_operation(output: Output, operation: &BulkView) -> anyhow::Result<ExitCode> {
    output.print_one(operation, &operation.id.to_string(), |view| {
        vec![
            ("operation", operation.id.into()),
            ("verb", Cell::from(word(&operation.verb))),
            ("state", state(&operation.state)),
            ("processed", Cell::from(format!("{} of {}", operation.processed, operation.total))),
            ("refused", operation.refused.into()),
            ("by", Cell::from(operation.actor_name.as_deref().unwrap_or(&operation.actor))),
            ("created", view.time(Some(operation.created_on))),
            ("finished", view.time(operation.finished_on)),
        ]
    })
}
