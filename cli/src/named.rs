//! Finds what a user names: workflows by id or name, and the values of options.

use anyhow::bail;
use api_types::workflows::WorkflowView;
use clap::ValueEnum;

use crate::client::Client;
use crate::output::word;

/// The name of a value of an option, which is that of the API.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().replace('-', "_")).unwrap_or_default()
}

/// Finds a workflow by its id or its name.
///
/// # Errors
/// Fails if no workflow has this name, or several have it.
pub(crate) async fn find_workflow(client: &Client, named: &str) -> anyhow::Result<WorkflowView> {
    if let Ok(id) = named.parse::<i64>() {
        return client.read(&format!("/workflows/{id}"), &[("results", "true".to_owned())]).await;
    }
    let query = [("q", named.to_owned()), ("archived", "true".to_owned())];
    let found: Vec<WorkflowView> = client.read_list("/workflows", &query, 1_000).await?;
    let mut named_so: Vec<&WorkflowView> = found.iter().filter(|workflow| workflow.name == named).collect();
    // A name can be used again after its workflow was archived.
    if named_so.iter().any(|workflow| word(&workflow.state) != "archived") {
        named_so.retain(|workflow| word(&workflow.state) != "archived");
    }
    match named_so[..] {
        [one] => client.read(&format!("/workflows/{}", one.id), &[("results", "true".to_owned())]).await,
        [] => bail!("no workflow has the name {named}: `cronbox workflow ls` lists them"),
        _ => {
            let ids: Vec<String> = named_so.iter().map(|workflow| workflow.id.to_string()).collect();
            bail!("several workflows have the name {named}: name one by its id, {}", ids.join(" or "))
        }
    }
}
