//! Finds what a user names: workflows by id or name, and the values of options.

use anyhow::bail;
use api_types::workflows::{State, WorkflowView};
use clap::ValueEnum;

use crate::client::{Client, Refusal};

/// The name of a value of an option, which is that of the API.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().replace('-', "_")).unwrap_or_default()
}

/// How many workflows a number is compared with, whose names contain it.
const NAMES_OF_A_NUMBER: usize = 200;

/// Finds a workflow by its id or its name.
///
/// # Errors
/// Fails if no workflow has this name, if several have it, or if it is the id of one and the name of another.
pub(crate) async fn find_workflow(client: &Client, named: &str) -> anyhow::Result<WorkflowView> {
    // `007` and `+7` are names.
    let Some(id) = named.parse::<i64>().ok().filter(|id| id.to_string() == named) else {
        let found = list_named(client, named, usize::MAX).await?;
        return read_workflow(client, choose_one(named, &found)?).await;
    };
    let found = list_named(client, named, NAMES_OF_A_NUMBER).await?;
    match (read_workflow(client, id).await, &found[..]) {
        (Ok(workflow), others) => match others.iter().find(|other| other.id != id) {
            None => Ok(workflow),
            Some(other) => bail!("{named} is the id of {}, and the name of the workflow {}", workflow.name, other.id),
        },
        // Only the app's own 404 says that no workflow has this id: after any other failure the name may be another workflow's.
        (Err(error), found) if found.is_empty() || !Refusal::says_not_found(&error) => Err(error),
        (Err(_), found) => read_workflow(client, choose_one(named, found)?).await,
    }
}

async fn read_workflow(client: &Client, id: i64) -> anyhow::Result<WorkflowView> {
    client.read(&format!("/workflows/{id}"), &[("results", "true".to_owned())]).await
}

/// Lists the workflows with exactly this name. An archived one is left out if another has its name, because a name can be
/// used again.
async fn list_named(client: &Client, named: &str, most: usize) -> anyhow::Result<Vec<WorkflowView>> {
    let query = [("q", named.to_owned()), ("archived", "true".to_owned())];
    let mut found: Vec<WorkflowView> = client.read_list("/workflows", &query, most).await?;
    found.retain(|workflow| workflow.name == named);
    if found.iter().any(|workflow| workflow.state != State::Archived) {
        found.retain(|workflow| workflow.state != State::Archived);
    }
    Ok(found)
}

fn choose_one(named: &str, found: &[WorkflowView]) -> anyhow::Result<i64> {
    match found {
        [one] => Ok(one.id),
        [] => bail!("no workflow has the name {named}: `cronbox workflow ls` lists them"),
        _ => {
            let ids: Vec<String> = found.iter().map(|workflow| workflow.id.to_string()).collect();
            bail!("several workflows have the name {named}: name one by its id, {}", ids.join(" or "))
        }
    }
}
