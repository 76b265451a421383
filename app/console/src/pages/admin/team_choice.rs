//! The teams that a form offers, and their names for lists.

use api_types::page::Page;
use api_types::teams::ListedTeamView;

use crate::api::Api;
use crate::failure::Failure;

/// The first 200 teams that the visitor sees.
pub(super) struct Teams {
    pub(super) items: Vec<ListedTeamView>,
    /// Whether there are more: then a form takes the id of a team.
    pub(super) is_cut: bool,
}

impl Teams {
    /// Reads them.
    ///
    /// # Errors
    /// Returns the failure of the API.
    pub(super) async fn read(api: &Api) -> Result<Self, Failure> {
        let page: Page<ListedTeamView> = api.get("/teams?limit=200").await?;
        Ok(Self { items: page.items, is_cut: page.next_cursor.is_some() })
    }

    /// The name of a team.
    pub(super) fn name(&self, id: &i64) -> String {
        let found = self.items.iter().find(|team| team.id == *id);
        found.map_or_else(|| format!("team {id}"), |team| team.name.clone())
    }
}
