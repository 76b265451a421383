//! `cronbox team`: the owners of workflows.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use api_types::keys::TeamView;
use api_types::limits::TeamLimitsView;
use api_types::teams::ListedTeamView;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::common::Common;
use crate::output::{Cell, Output};
use crate::print::{pass_json_lines, print_error};

/// What can be done with teams.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List teams.
    Ls(List),
    /// Create a team; prints its signing secret, once.
    Create(Create),
    /// Rename a team.
    Rename(Rename),
    /// Show the limits of a team, and what it uses.
    Limits(Named),
    /// Print all that defines a team as JSON lines, without secrets.
    Export(Named),
    /// Delete a team that has no workflow, with its keys, secrets, limits and freezes.
    Delete(Delete),
}

/// Which teams are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
}

/// A new team.
#[derive(Args)]
pub(crate) struct Create {
    #[command(flatten)]
    common: Common,
    /// Its name; unique.
    #[arg(value_name = "NAME")]
    name: String,
}

/// A new name.
#[derive(Args)]
pub(crate) struct Rename {
    #[command(flatten)]
    named: Named,
    /// Its new name.
    #[arg(value_name = "NAME")]
    name: String,
}

/// A team.
#[derive(Args)]
pub(crate) struct Named {
    #[command(flatten)]
    common: Common,
    /// Its id.
    #[arg(value_name = "TEAM")]
    id: i64,
}

/// A team that goes.
#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    named: Named,
    /// First write its export to this new file.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Confirm it.
    #[arg(long, required = true)]
    yes: bool,
}

/// Runs the command.
pub(crate) async fn run_team(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            let rows: Vec<ListedTeamView> = client.read_list("/teams", &[], usize::MAX).await?;
            list.common.output.print_rows(&rows)
        }
        Verb::Create(create) => create_team(create).await,
        Verb::Rename(rename) => {
            let client = Client::connect(&rename.named.common.access).await?;
            let path = format!("/teams/{}", rename.named.id);
            let team: ListedTeamView = client.write(Method::PATCH, &path, &[], &json!({"name": rename.name})).await?;
            rename.named.common.output.print_rows(&[team])
        }
        Verb::Limits(named) => {
            let client = Client::connect(&named.common.access).await?;
            print_limits(named.common.output, &client.read(&format!("/teams/{}/limits", named.id), &[]).await?)
        }
        Verb::Export(named) => {
            let client = Client::connect(&named.common.access).await?;
            pass_json_lines(&read_export(&client, named.id).await?)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Delete(delete) => delete_team(delete).await,
    }
}

async fn create_team(create: &Create) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&create.common.access).await?;
    let team: TeamView = client.write(Method::POST, "/teams", &[], &json!({"name": create.name})).await?;
    let printed = create.common.output.print_one(&team, &team.id.to_string(), |view| {
        vec![
            ("team", team.id.into()),
            ("name", Cell::from(&team.name)),
            ("signing secret", Cell::optional(team.signing_secret.as_deref())),
            ("created", view.time(Some(team.created_on))),
        ]
    })?;
    if team.signing_secret.is_none() {
        print_error(&format!(
            "the team {id} exists, but its signing secret was in an answer that was lost: \
             POST /teams/{id}:rotate-signing-secret gives another one",
            id = team.id
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(printed)
}

fn print_limits(output: Output, limits: &TeamLimitsView) -> anyhow::Result<ExitCode> {
    output.print_one(limits, &limits.team_id.to_string(), |_| {
        let usage = &limits.usage;
        let line = |used: Option<i64>, limit: Option<i64>| {
            let limit = limit
                .filter(|limit| *limit > 0)
                .map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
            Cell::from(used.map_or_else(|| limit.clone(), |used| format!("{used}, {limit}")))
        };
        let force = &limits.in_force;
        vec![
            ("team", limits.team_id.into()),
            ("workflows", line(Some(usage.workflows), force.workflows)),
            ("running runs", line(Some(usage.running_runs), force.running_runs)),
            ("fires an hour", usage.fires_per_hour.into()),
            ("fires a minute", line(None, force.fires_per_minute)),
            ("input bytes", line(Some(usage.input_bytes), force.input_bytes)),
            ("archived workflows", line(Some(usage.archived_workflows), force.archived_workflows)),
            ("archived bytes", line(Some(usage.archived_bytes), force.archived_bytes)),
            ("requests in flight", line(None, force.requests_in_flight)),
        ]
    })
}

/// Reads all parts of the export of a team.
async fn read_export(client: &Client, id: i64) -> anyhow::Result<String> {
    let (mut lines, mut cursor) = (String::new(), None::<String>);
    loop {
        let query: Vec<_> = cursor.iter().map(|cursor| ("cursor", cursor.clone())).collect();
        let (part, next) = client.get_lines(&format!("/teams/{id}/export"), &query).await?;
        lines.push_str(&part);
        cursor = next;
        if cursor.is_none() {
            return Ok(lines);
        }
    }
}

async fn delete_team(delete: &Delete) -> anyhow::Result<ExitCode> {
    let (client, id) = (Client::connect(&delete.named.common.access).await?, delete.named.id);
    if let Some(file) = &delete.export {
        write_new(file, &read_export(&client, id).await?)?;
    }
    client.delete(&format!("/teams/{id}")).await?;
    let deleted = json!({"deleted": true, "id": id});
    delete.named.common.output.print_object(&deleted, &id.to_string(), |_| format!("team {id} is deleted\n"))
}

fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    let mut opened = opened.with_context(|| format!("cannot create {}", file.display()))?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all().with_context(|| format!("cannot write {}", file.display()))
}
