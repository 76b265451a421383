//! `cronbox workflow`: defines workflows, changes them and runs them.

mod body;
mod edit;
mod show;

use std::process::ExitCode;

use anyhow::bail;
use api_types::versions::VersionView;
use api_types::workflows::WorkflowView;
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use self::body::Fields;
use self::edit::edit_workflow;
use self::show::print_workflow;
use crate::client::Client;
use crate::common::{Common, DryRun, print_changes};
use crate::listing::{Limit, print_list};
use crate::named::{find_workflow, value_name};
use crate::run::{fire_and_read, follow_run};
use crate::times::{Instant, rfc3339};
use crate::watch::{Watch, repeat};

/// What can be done with workflows.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List workflows, with what became of their last runs.
    Ls(List),
    /// Show a workflow.
    Get(Get),
    /// Create a workflow.
    Create(Create),
    /// Change fields of a workflow, in your editor or by options.
    Edit(edit::Edit),
    /// Stop its schedule. Its automatic runs that have not started wait; runs that are executed go on.
    Pause(Pause),
    /// Start its schedule again. Times that passed meanwhile do not run.
    Resume(Change),
    /// End it for ever: nothing of it runs any more, and its history stays.
    Archive(Change),
    /// Run it now.
    Fire(Fire),
    /// List what was in force when, and who changed it.
    History(Get),
    /// Return to the schedule of an earlier revision.
    Restore(Restore),
}

/// Which workflows are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    watch: Watch,
    /// Only workflows in this state.
    #[arg(long)]
    state: Option<StateArgument>,
    /// Only workflows that EventBridge has so.
    #[arg(long)]
    sync: Option<SyncArgument>,
    /// Only workflows whose newest run that has ended has this result; repeat it for further ones.
    #[arg(long, value_name = "RESULT")]
    last_result: Vec<ResultArgument>,
    /// Only workflows of which at least so many runs in a row failed or timed out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    failures_in_a_row: Option<i32>,
    /// Only workflows with this label, owner:payroll or owner; repeat it for further ones.
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Only workflows whose name or description has this text.
    #[arg(long, short = 'q', value_name = "TEXT")]
    q: Option<String>,
    /// Only workflows of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    /// Also archived workflows.
    #[arg(long)]
    archived: bool,
    /// The order: `name`, `next_fire_at` or `updated_on`; with - in front from the last one on.
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    sort: Option<String>,
    #[command(flatten)]
    limit: Limit<200>,
}

/// The state of a workflow.
#[derive(Clone, Copy, ValueEnum)]
enum StateArgument {
    Active,
    Paused,
    Archived,
}

/// How far EventBridge has applied the edits of a workflow.
#[derive(Clone, Copy, ValueEnum)]
enum SyncArgument {
    Pending,
    Synced,
    Failed,
    Drifted,
    None,
}

/// What became of a run.
#[derive(Clone, Copy, ValueEnum)]
enum ResultArgument {
    Succeeded,
    Failed,
    #[value(alias = "timed_out")]
    TimedOut,
    Cancelled,
    Abandoned,
}

/// A workflow.
#[derive(Args)]
pub(crate) struct Get {
    #[command(flatten)]
    common: Common,
    /// Its id or its name.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
}

/// A change without further arguments.
#[derive(Args)]
pub(crate) struct Change {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// Its id or its name.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
}

/// A pause.
#[derive(Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    change: Change,
    /// Why, for people.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// When the pause ends automatically: RFC 3339, tomorrow, monday, +2h.
    #[arg(long, value_name = "TIME")]
    until: Option<Instant>,
}

/// A new workflow.
#[derive(Args)]
pub(crate) struct Create {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// Its name, unique in its team.
    #[arg(value_name = "NAME")]
    name: String,
    /// The team, by id; needed with an admin key.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    #[command(flatten)]
    fields: Fields,
}

/// A manual run.
#[derive(Args)]
pub(crate) struct Fire {
    #[command(flatten)]
    common: Common,
    /// Its id or its name.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// An input of this run, for example month=May; JSON values are read as such. Repeat it for further ones.
    #[arg(long = "input", short = 'i', value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// Wait until it has ended; exit 1 if it did not succeed.
    #[arg(long, short = 'w')]
    wait: bool,
}

/// A return to an earlier revision.
#[derive(Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    change: Change,
    /// The revision, as `cronbox workflow history` shows it.
    #[arg(value_name = "REVISION")]
    revision: i64,
}

/// Runs the command.
pub(crate) async fn run_workflow(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => list_workflows(list).await,
        Verb::Get(get) => show_workflow(get).await,
        Verb::Create(create) => create_workflow(create).await,
        Verb::Edit(edit) => edit_workflow(edit).await,
        Verb::Pause(pause) => {
            let body = json!({"reason": pause.reason, "until": pause.until.map(|until| rfc3339(until.0))});
            change_state(&pause.change, "pause", &body).await
        }
        Verb::Resume(change) => change_state(change, "resume", &Value::Null).await,
        Verb::Archive(change) => change_state(change, "archive", &Value::Null).await,
        Verb::Fire(fire) => fire_workflow(fire).await,
        Verb::History(get) => list_history(get).await,
        Verb::Restore(restore) => restore_version(restore).await,
    }
}

async fn list_workflows(list: &List) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&list.common.access).await?;
    let mut query: Vec<(&str, String)> = list.label.iter().map(|label| ("label", label.clone())).collect();
    let word_of = |value: Option<String>| value;
    query.extend(list.state.map(|state| ("state", value_name(state))));
    query.extend(list.sync.map(|sync| ("sync", value_name(sync))));
    query.extend(list.last_result.iter().map(|result| ("last_result", value_name(*result))));
    query.extend(list.failures_in_a_row.map(|least| ("failures_in_a_row", least.to_string())));
    query.extend(word_of(list.q.clone()).map(|q| ("q", q)));
    query.extend(list.sort.clone().map(|sort| ("sort", sort)));
    query.extend(list.team.map(|team| ("team_id", team.to_string())));
    query.extend(list.archived.then(|| ("archived", "true".to_owned())));
    query.push(("results", "true".to_owned()));
    repeat(list.watch, async || {
        let output = list.common.output;
        print_list::<WorkflowView>(&client, output, "/workflows", &query, list.limit.most(output)).await
    })
    .await
}

async fn show_workflow(get: &Get) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&get.common.access).await?;
    print_workflow(get.common.output, &find_workflow(&client, &get.workflow).await?)
}

async fn create_workflow(create: &Create) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&create.common.access).await?;
    let mut body = create.fields.to_body()?;
    body.insert("name".to_owned(), json!(create.name));
    body.extend(create.team.map(|team| ("team_id".to_owned(), json!(team))));
    if !body.contains_key("action") {
        bail!(
            "a workflow needs an action: send --target with the address of its receiver, or --log for a line in the log"
        );
    }
    if create.dry_run.is_dry() {
        return print_changes(&client, Method::POST, "/workflows", &Value::Object(body), create.common.output).await;
    }
    let created: WorkflowView = client.write(Method::POST, "/workflows", &[], &Value::Object(body)).await?;
    print_workflow(create.common.output, &created)
}

async fn change_state(change: &Change, verb: &str, body: &Value) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&change.common.access).await?;
    let workflow = find_workflow(&client, &change.workflow).await?;
    let path = format!("/workflows/{}:{verb}", workflow.id);
    write_or_show(&client, change, &path, body).await
}

async fn write_or_show(client: &Client, change: &Change, path: &str, body: &Value) -> anyhow::Result<ExitCode> {
    if change.dry_run.is_dry() {
        return print_changes(client, Method::POST, path, body, change.common.output).await;
    }
    let changed: WorkflowView = client.write(Method::POST, path, &[], body).await?;
    print_workflow(change.common.output, &changed)
}

async fn fire_workflow(fire: &Fire) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&fire.common.access).await?;
    let workflow = find_workflow(&client, &fire.workflow).await?;
    let body = match fire.inputs.is_empty() {
        true => json!({}),
        false => json!({"inputs": body::parse_pairs(&fire.inputs)?}),
    };
    let run = fire_and_read(&client, &format!("/schedules/{}:fire", workflow.id), &body).await?;
    follow_run(&client, run, fire.wait, fire.common.output).await
}

async fn list_history(get: &Get) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&get.common.access).await?;
    let workflow = find_workflow(&client, &get.workflow).await?;
    let versions: Vec<VersionView> =
        client.read_list(&format!("/workflows/{}/versions", workflow.id), &[], 1_000).await?;
    get.common.output.print_rows(&versions)
}

async fn restore_version(restore: &Restore) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&restore.change.common.access).await?;
    let workflow = find_workflow(&client, &restore.change.workflow).await?;
    let path = format!("/workflows/{}/versions/{}:restore", workflow.id, restore.revision);
    write_or_show(&client, &restore.change, &path, &Value::Null).await
}

/// The list of timezones, for `cronbox timezones`.
pub(crate) async fn list_timezones(common: &Common, filter: Option<&str>) -> anyhow::Result<ExitCode> {
    let zones: api_types::previews::TimezonesView =
        Client::connect(&common.access).await?.read("/timezones", &[]).await?;
    let wanted = filter.unwrap_or_default().to_lowercase();
    let names = zones.timezones.into_iter().filter(|name| name.to_lowercase().contains(&wanted));
    let names: Vec<String> = names.collect();
    common.output.print_object(&names, &names.join("\n"), |_| names.iter().map(|name| format!("{name}\n")).collect())
}
