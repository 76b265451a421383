//! The tabs of `/admin`: each is an address, and shown to those who may read it.

use api_types::keys::Scope;

use crate::frame::Frame;

/// A tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Teams,
    Keys,
    Sessions,
    Freezes,
    Notifications,
    Audit,
    Me,
}

impl Tab {
    const ALL: [Self; 7] =
        [Self::Teams, Self::Keys, Self::Sessions, Self::Freezes, Self::Notifications, Self::Audit, Self::Me];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Teams => "Teams",
            Self::Keys => "Keys",
            Self::Sessions => "Sessions",
            Self::Freezes => "Freezes",
            Self::Notifications => "Notifications",
            Self::Audit => "Audit log",
            Self::Me => "You",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Teams => "/admin/teams",
            Self::Keys => "/admin/keys",
            Self::Sessions => "/admin/sessions",
            Self::Freezes => "/admin/freezes",
            Self::Notifications => "/admin/notifications",
            Self::Audit => "/admin/audit",
            Self::Me => "/admin/me",
        }
    }

    /// The scope that the lists of the tab require.
    fn scope(self) -> Option<Scope> {
        match self {
            Self::Keys | Self::Sessions => Some(Scope::Auditor),
            Self::Teams | Self::Freezes | Self::Notifications | Self::Audit => Some(Scope::Read),
            Self::Me => None,
        }
    }
}

/// The tabs that the visitor may see.
pub(super) fn shown(frame: &Frame) -> Vec<Tab> {
    Tab::ALL.into_iter().filter(|tab| tab.scope().is_none_or(|scope| frame.permits(scope))).collect()
}

/// The first tab of who has these scopes.
pub(super) fn first(permitted: &[Scope]) -> Tab {
    let may_see = |tab: &Tab| tab.scope().is_none_or(|scope| permitted.contains(&scope));
    Tab::ALL.into_iter().find(may_see).unwrap_or(Tab::Me)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_leads_to_the_first_tab_that_is_permitted() {
        assert_eq!(first(&[Scope::Read]), Tab::Teams);
        assert_eq!(first(&[]), Tab::Me);
    }
}
