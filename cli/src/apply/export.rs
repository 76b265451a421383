//! `cronbox export`: workflows as a file for `apply`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use api_types::teams::ListedTeamView;
use api_types::workflows::WorkflowView;
use clap::Args;
use manifest::{OWNER_LABEL, VERSION, escape_variables};
use serde_json::{Value, json};

use super::complete::read_complete;
use crate::client::Client;
use crate::output::{Ordered, to_yaml};
use crate::print::print_file;
use crate::settings::Access;

/// The fields of a file in their order, each with its default, which is left out.
const FIELDS: [(&str, &str); 19] = [
    ("name", ""),
    ("description", "null"),
    ("labels", "{}"),
    ("cron_schedule", "null"),
    ("timezone", "null"),
    ("starts_at", "null"),
    ("ends_at", "null"),
    ("is_api", "false"),
    ("overlap_policy", "\"skip\""),
    ("max_concurrent", "10"),
    ("catch_up_policy", "\"skip\""),
    ("catch_up_window_secs", "86400"),
    ("spread_secs", "0"),
    ("timeout_secs", "300"),
    ("max_attempts", "1"),
    ("on_lost", "\"retry\""),
    ("pause_after_failures", "null"),
    ("starting_inputs", "{}"),
    ("action", ""),
];

/// Which workflows.
#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    access: Access,
    /// Only workflows of this team, by id.
    #[arg(long, value_name = "ID")]
    team: Option<i64>,
    /// Only workflows with this label, owner:payroll or owner; repeat it for further ones.
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// The owner of the file: its workflows get it as their label, and --prune of `apply` archives only such ones.
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
}

/// Prints the file.
pub(crate) async fn export_workflows(export: &Export) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&export.access).await?;
    let mut query: Vec<(&str, String)> = export.label.iter().map(|label| ("label", label.clone())).collect();
    query.extend(export.team.map(|team| ("team_id", team.to_string())));
    let teams: Vec<ListedTeamView> = client.read_list("/teams", &[], usize::MAX).await?;
    let listed: Vec<WorkflowView> = client.read_list("/workflows", &query, usize::MAX).await?;
    let mut entries = Vec::with_capacity(listed.len());
    let mut has_hidden = false;
    for workflow in listed {
        let complete = read_complete(&client, workflow).await?;
        let team = teams.iter().find(|team| team.id == complete.team_id).map(|team| team.name.clone());
        let entry = entry_of(&complete, team, export.owner.as_deref())?;
        has_hidden |= has_null_header(&complete.action);
        entries.push(entry);
    }
    print_file(&file_text(export.owner.as_deref(), &entries, has_hidden)?)
}

fn entry_of(workflow: &WorkflowView, team: Option<String>, owner: Option<&str>) -> anyhow::Result<Ordered> {
    let all = serde_json::to_value(workflow)?;
    let mut entry = vec![match team {
        Some(name) => ("team".to_owned(), json!(name)),
        None => ("team_id".to_owned(), json!(workflow.team_id)),
    }];
    for (field, default) in FIELDS {
        let mut value = all[field].clone();
        if let (true, Some(labels)) = (field == "labels" && owner.is_some(), value.as_object_mut()) {
            labels.remove(OWNER_LABEL);
        }
        let is_default = serde_json::from_str::<Value>(default).is_ok_and(|default| default == value);
        if !is_default {
            entry.push((field.to_owned(), value));
        }
    }
    // In another environment it would run otherwise.
    if all["state"] == "paused" {
        entry.push(("paused".to_owned(), json!(true)));
    }
    // Any editor has written these texts, and the environment is that of the person or the CI that applies the file.
    entry.iter_mut().for_each(|(_, value)| escape_variables(value));
    Ok(Ordered(entry))
}

fn has_null_header(action: &Value) -> bool {
    action["headers"].as_object().is_some_and(|headers| headers.values().any(Value::is_null))
}

fn file_text(owner: Option<&str>, entries: &[Ordered], has_hidden: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    if has_hidden {
        text.push_str(
            "# A header's value is write-only. null keeps the stored one; for a new workflow write ${secret:NAME}.\n",
        );
    }
    text.push_str(&format!("version: {VERSION}\n"));
    if let Some(owner) = owner {
        text.push_str(&to_yaml(&json!({ "owner": owner }))?);
    }
    text.push_str(&ended(serde_saphyr::to_string(&BTreeMap::from([("workflows", entries)]))?));
    Ok(text)
}

fn ended(text: String) -> String {
    if text.ends_with('\n') { text } else { text + "\n" }
}
