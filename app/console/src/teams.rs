//! The teams that a visitor may choose from.

use api_types::keys::Kind;
use api_types::page::Page;
use api_types::teams::ListedTeamView;

use crate::api::Api;
use crate::failure::Failure;
use crate::frame::Frame;

/// The team of a visitor of several teams who has chosen none: statistics and the audit log are those of one team.
pub(crate) fn usual_team(frame: &Frame) -> Option<i64> {
    let first = frame.me.teams.first().filter(|_| frame.me.teams.len() > 1);
    first.map(|team| team.team_id)
}

/// Reads the teams of a visitor who has several; none for a visitor of one team, who has nothing to choose.
///
/// # Errors
/// Returns the failure of the API.
pub(crate) async fn read_choice(api: &Api, frame: &Frame) -> Result<Vec<ListedTeamView>, Failure> {
    if frame.me.kind != Kind::Admin && frame.me.teams.len() < 2 {
        return Ok(Vec::new());
    }
    let page: Page<ListedTeamView> = api.get("/teams?limit=200").await?;
    Ok(page.items)
}
