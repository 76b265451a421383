//! Reads what a list leaves out of a workflow: large inputs, bodies and messages.

use api_types::workflows::WorkflowView;

use crate::client::Client;

/// The complete workflow of an item of a list.
///
/// # Errors
/// Returns a refusal of the app, or fails if it cannot be reached.
pub(super) async fn read_complete(client: &Client, listed: WorkflowView) -> anyhow::Result<WorkflowView> {
    let is_cut = listed.action_bytes.is_some() || listed.starting_inputs_bytes.is_some();
    if is_cut { client.read(&format!("/workflows/{}", listed.id), &[]).await } else { Ok(listed) }
}
