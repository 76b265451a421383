//! `cronbox workflow edit`: changes fields by options, or in the user's editor.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use api_types::workflows::WorkflowView;
use clap::Args;
use serde_json::{Map, Value};

use super::body::Fields;
use super::show::print_workflow;
use crate::client::Client;
use crate::common::{Common, DryRun, dry_run, print_dry_run};
use crate::config::text_variable;
use crate::merge_patch::make_merge_patch;
use crate::named::find_workflow;
use crate::output::to_yaml;
use crate::print::{print_error, print_text};

/// The fields that an editor shows, in this order.
const EDITABLE: [&str; 20] = [
    "name",
    "description",
    "labels",
    "cron_schedule",
    "timezone",
    "starts_at",
    "ends_at",
    "action",
    "starting_inputs",
    "overlap_policy",
    "max_concurrent",
    "catch_up_policy",
    "catch_up_window_secs",
    "spread_secs",
    "timeout_secs",
    "max_attempts",
    "on_lost",
    "pause_after_failures",
    "is_api",
    "managed_by",
];

/// A change of a workflow.
#[derive(Args)]
pub(crate) struct Edit {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dry_run: DryRun,
    /// Its id or its name.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// Its new name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    fields: Fields,
}

/// Changes a workflow, unless another edit changed it since it was read. A text of the editor that is refused is kept.
pub(super) async fn edit_workflow(edit: &Edit) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&edit.common.access).await?;
    let before = find_workflow(&client, &edit.workflow).await?;
    let mut wanted = edit.fields.to_change(&serde_json::to_value(&before)?)?;
    wanted.extend(edit.name.clone().map(|name| ("name".to_owned(), Value::String(name))));
    if !wanted.is_empty() {
        return save(&client, edit, &before, wanted).await;
    }
    let folder = std::env::temp_dir().join(format!("cronbox-{}", uuid::Uuid::new_v4()));
    let file = folder.join("workflow.yaml");
    let saved = match edit_in_editor(&before, &folder, &file) {
        Ok(wanted) => save(&client, edit, &before, wanted).await,
        Err(error) => Err(error),
    };
    match &saved {
        Ok(_) => drop(fs::remove_dir_all(&folder)),
        Err(_) if file.exists() => print_error(&format!("your text is kept in {}", file.display())),
        Err(_) => {}
    }
    saved
}

/// Gives the workflow these fields, each completely; null restores a default.
async fn save(
    client: &Client,
    edit: &Edit,
    before: &WorkflowView,
    wanted: Map<String, Value>,
) -> anyhow::Result<ExitCode> {
    if wanted.is_empty() && edit.common.output.is_for_programs() {
        return print_workflow(edit.common.output, before);
    }
    if wanted.is_empty() {
        return print_text("nothing was changed\n");
    }
    let (path, patch) = (format!("/workflows/{}", before.id), make_merge_patch(before, &wanted)?);
    if edit.dry_run.is_dry() {
        let answer: Value = client.merge(&path, &dry_run(), &patch, before.version).await?;
        return print_dry_run(&answer, edit.common.output);
    }
    let changed: WorkflowView = client.merge(&path, &[], &patch, before.version).await?;
    print_workflow(edit.common.output, &changed)
}

/// Opens the fields in the editor; returns those that were changed, and null for those whose line was removed.
fn edit_in_editor(before: &WorkflowView, folder: &Path, file: &Path) -> anyhow::Result<Map<String, Value>> {
    let Value::Object(all) = serde_json::to_value(before)? else { bail!("the workflow is no object") };
    let shown: Map<String, Value> =
        EDITABLE.iter().filter_map(|field| Some(((*field).to_owned(), all.get(*field)?.clone()))).collect();
    fs::create_dir(folder).context("cannot create a folder for the file")?;
    write_private(file, &to_yaml(&shown)?)?;
    run_editor(file)?;
    let text = fs::read_to_string(file).context("cannot read the file again")?;
    let edited: Map<String, Value> = serde_saphyr::from_str(&text).context("the file is no YAML any more")?;
    let removed = shown.iter().filter(|(field, value)| !value.is_null() && !edited.contains_key(*field));
    let removed = removed.map(|(field, _)| (field.clone(), Value::Null));
    let changed = edited.iter().filter(|(field, value)| shown.get(*field) != Some(*value));
    Ok(changed.map(|(field, value)| (field.clone(), value.clone())).chain(removed).collect())
}

fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut opened = options.write(true).create_new(true).mode(0o600).open(file).context("cannot write the file")?;
    opened.write_all(text.as_bytes()).context("cannot write the file")
}

fn run_editor(file: &Path) -> anyhow::Result<()> {
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| text_variable(name).filter(|text| !text.is_empty()));
    let Some(editor) = editor else {
        bail!("set EDITOR, or name the fields: `cronbox workflow edit --help` lists their options")
    };
    // As git does: an editor may have arguments.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file).status();
    match status.context("cannot start the editor")?.success() {
        true => Ok(()),
        false => bail!("the editor failed, so nothing is changed"),
    }
}
