//! The export of a team: lines of JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::freezes::FreezeView;
use crate::keys::KeyView;
use crate::limits::{AllowedHostsView, TeamLimitsView};
use crate::notifications::{ChannelView, RuleView};
use crate::secrets::SecretView;
use crate::teams::ListedTeamView;
use crate::workflows::WorkflowView;

/// A line of the export of a team.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "kind", content = "object", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a line is written or read, and kept nowhere")]
pub enum TeamExportLine {
    /// The team.
    Team(ListedTeamView),
    /// Its limits.
    Limits(TeamLimitsView),
    /// The hosts that it may call.
    Hosts(AllowedHostsView),
    /// A secret, without its value.
    Secret(SecretView),
    /// A key, without its text.
    Key(KeyView),
    /// A freeze of the team.
    Freeze(FreezeView),
    /// A channel for notifications, without its URL.
    NotificationChannel(ChannelView),
    /// A rule for notifications.
    NotificationRule(RuleView),
    /// A workflow; header values and marked inputs are write-only, and null.
    Workflow(WorkflowView),
}
