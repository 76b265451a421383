//! Step 1 of 7: checks, when a workflow is saved, whether its team may call the URL of its action.

use access::gate::Caller;
use egress::allowed::Tenant;
use executor::actions;
use schedule::WorkflowId;
use serde_json::Value;

use crate::App;
use crate::api::request::error::Error;

/// Refuses an action whose URL its team may not call. A name server may be slow, so no transaction may be open.
///
/// The hosts of a team are read once in a few seconds.
///
/// # Errors
/// Returns 400 with the field `action.url`, or the failure of the database.
pub(super) async fn check_reach(app: &App, team_id: i64, action: &Value) -> Result<(), Error> {
    if action.get("url").is_none() {
        return Ok(());
    }
    let hosts = app.host_lists.of_team(&app.pools.edits, team_id).await?;
    let tenant = Tenant { team_id: Some(team_id), hosts: &hosts };
    Ok(actions::check_reach(action, &app.allowed, tenant).await?)
}

/// As [`check_reach`], for the action in a change of a workflow.
///
/// No name server is asked for a workflow that does not exist. So the row is read before, but only if a name must be
/// resolved, or if the caller does not know the team.
///
/// # Errors
/// As [`check_reach`], and 404.
pub(super) async fn check_changed(app: &App, caller: &Caller, id: WorkflowId, action: &Value) -> Result<(), Error> {
    if action.get("url").is_none() {
        return Ok(());
    }
    let team_id = match caller.team_id {
        Some(own) if !actions::must_resolve(action, &app.allowed).await => own,
        _ => {
            let mut connection = app.pools.edits.acquire().await?;
            let found = workflows::find_workflow(&mut connection, id, caller.team_id).await?;
            found.ok_or_else(Error::not_found)?.0.team_id
        }
    };
    check_reach(app, team_id, action).await
}
