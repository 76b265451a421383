//! The parts of the tab, and the channels that they name.

use api_types::notifications::ChannelView;
use api_types::page::Page;

use crate::api::Api;
use crate::failure::Failure;

/// The parts of the tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Notices,
    Channels,
    Rules,
    Messages,
}

impl Part {
    pub(super) const ALL: [Self; 4] = [Self::Notices, Self::Channels, Self::Rules, Self::Messages];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Notices => "What happened",
            Self::Channels => "Channels",
            Self::Rules => "Rules",
            Self::Messages => "Messages",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Notices => "/admin/notifications",
            Self::Channels => "/admin/notifications/channels",
            Self::Rules => "/admin/notifications/rules",
            Self::Messages => "/admin/notifications/messages",
        }
    }
}

/// The newest 200 channels that the visitor sees.
pub(super) struct Channels(pub(super) Vec<ChannelView>);

impl Channels {
    pub(super) async fn read(api: &Api) -> Result<Self, Failure> {
        let page: Page<ChannelView> = api.get("/notification-channels?limit=200").await?;
        Ok(Self(page.items))
    }

    /// The channels of one team, which its rules may have.
    pub(super) async fn read_of_team(api: &Api, team: i64) -> Result<Self, Failure> {
        let page: Page<ChannelView> = api.get(&format!("/notification-channels?limit=200&team_id={team}")).await?;
        Ok(Self(page.items))
    }

    /// The name of a channel.
    pub(super) fn name(&self, id: &i64) -> String {
        let found = self.0.iter().find(|channel| channel.id == *id);
        found.map_or_else(|| format!("channel {id}"), |channel| channel.name.clone())
    }

    /// The names of several channels.
    pub(super) fn names(&self, ids: &[i64]) -> String {
        ids.iter().map(|id| self.name(id)).collect::<Vec<_>>().join(", ")
    }
}
