//! Step 1 of 7: the limits of a team for its workflows, checked in the transaction of the edit that adds to them.

use access::limits::{Exceeded, Growth, find_team_limits};
use db::PgConnection;

use crate::App;
use crate::api::request::error::Error;

/// Refuses an edit that exceeds a limit of its team. The caller has written it, and commits if this succeeds.
///
/// The database counts under a lock of the team's row, so two edits at once cannot both take the last place.
///
/// # Errors
/// Returns 409 with the name of the limit, or the failure of the database.
pub(super) async fn check_quota(app: &App, tx: &mut PgConnection, team_id: i64, growth: Growth) -> Result<(), Error> {
    if !growth.adds_anything() {
        return Ok(());
    }
    let Some((own, usage)) = find_team_limits(tx, team_id).await? else { return Ok(()) };
    match own.or(app.config.team_limits()).exceeded_by(usage, growth) {
        None => Ok(()),
        Some(Exceeded::Workflows(limit)) => {
            let detail = format!("the team may have {limit} workflows: archive some, or ask an admin for more");
            Err(Error::conflict("limit_workflows", &detail))
        }
        Some(Exceeded::FiresPerMinute(limit)) => {
            let detail = format!(
                "the workflows of the team may fire {limit} times a minute: name fewer minutes, or ask an admin for more"
            );
            Err(Error::conflict("limit_fires_per_minute", &detail))
        }
        Some(Exceeded::InputBytes(limit)) => {
            let detail = format!(
                "the inputs and actions of the team may have {limit} bytes: send less, or ask an admin for more"
            );
            Err(Error::conflict("limit_input_bytes", &detail))
        }
        Some(Exceeded::ArchivedWorkflows(limit)) => {
            let detail = format!(
                "the team has {limit} archived workflows or more: ask an admin to delete some, or to raise the limit"
            );
            Err(Error::conflict("limit_archived_workflows", &detail))
        }
        Some(Exceeded::ArchivedBytes(limit)) => {
            let detail = format!(
                "the inputs and actions of the archived workflows of the team have {limit} bytes or more: ask an admin to delete \
                 some of these workflows, or to raise the limit"
            );
            Err(Error::conflict("limit_archived_bytes", &detail))
        }
    }
}
