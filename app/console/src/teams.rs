//! The teams that a visitor may choose from, and their names for lists.

use api_types::keys::Kind;
use api_types::page::Page;
use api_types::teams::ListedTeamView;

use crate::api::Api;
use crate::failure::Failure;
use crate::frame::Frame;
use crate::query::with_query;

/// As many teams as the API lists at once.
const MOST: &str = "200";

/// The first 200 teams that the visitor sees.
#[derive(Default)]
pub(crate) struct Teams {
    pub(crate) items: Vec<ListedTeamView>,
    /// Whether there are more: then a form takes the id of a team.
    pub(crate) is_cut: bool,
}

impl Teams {
    /// Reads them.
    ///
    /// # Errors
    /// Returns the failure of the API.
    pub(crate) async fn read(api: &Api) -> Result<Self, Failure> {
        let page = read_page(api, None).await?;
        Ok(Self { items: page.items, is_cut: page.next_cursor.is_some() })
    }

    /// Reads the teams of a visitor who has several; none for a visitor of one team, who has nothing to choose.
    ///
    /// # Errors
    /// Returns the failure of the API.
    pub(crate) async fn read_choice(api: &Api, frame: &Frame) -> Result<Self, Failure> {
        if frame.me.kind != Kind::Admin && frame.me.teams.len() < 2 {
            return Ok(Self::default());
        }
        Self::read(api).await
    }

    /// Whether there is nothing to choose.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The name of a team.
    pub(crate) fn name(&self, id: &i64) -> String {
        let found = self.items.iter().find(|team| team.id == *id);
        found.map_or_else(|| format!("team {id}"), |team| team.name.clone())
    }
}

/// Finds the name of a team, also behind the first 200; `None`: the visitor does not see it.
///
/// # Errors
/// Returns the failure of the API.
pub(crate) async fn find_name(api: &Api, id: i64) -> Result<Option<String>, Failure> {
    let mut cursor = None::<String>;
    loop {
        let page = read_page(api, cursor.as_deref()).await?;
        // They are in the order of their ids.
        let is_passed = page.items.last().is_none_or(|last| last.id >= id);
        if let Some(found) = page.items.into_iter().find(|team| team.id == id) {
            return Ok(Some(found.name));
        }
        cursor = page.next_cursor.filter(|_| !is_passed);
        if cursor.is_none() {
            return Ok(None);
        }
    }
}

async fn read_page(api: &Api, cursor: Option<&str>) -> Result<Page<ListedTeamView>, Failure> {
    api.get(&with_query("/teams", [("limit", Some(MOST)), ("cursor", cursor)])).await
}

/// The team of a visitor of several teams who has chosen none: statistics and the audit log are those of one team.
pub(crate) fn usual_team(frame: &Frame) -> Option<i64> {
    let first = frame.me.teams.first().filter(|_| frame.me.teams.len() > 1);
    first.map(|team| team.team_id)
}
