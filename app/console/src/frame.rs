//! What all pages share: the title, the menu, who is signed in, freezes that are in force, and the sentence about the last act.

use api_types::freezes::{FreezeState, FreezeView};
use api_types::keys::Scope;
use api_types::me::MeView;
use api_types::page::Page;
use chrono::{DateTime, Utc};

use crate::api::Api;
use crate::assets;
use crate::failure::Failure;
use crate::words::done_sentence;

/// The frame of a page.
pub struct Frame {
    /// The title of the page.
    pub title: String,
    /// Which entry of the menu it belongs to.
    pub menu: Menu,
    /// Who is signed in.
    pub me: MeView,
    permitted: Vec<Scope>,
    /// The freezes that are in force; None: the visitor has so many teams that a list needs one of them.
    pub freezes: Option<Vec<FreezeView>>,
    /// What the last act has done.
    pub done: Option<&'static str>,
    /// The time of the app.
    pub now: DateTime<Utc>,
}

/// The entries of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    /// `/`
    Overview,
    /// `/workflows`
    Workflows,
    /// `/runs`
    Runs,
    /// `/backfills`
    Backfills,
    /// `/upcoming`
    Upcoming,
    /// `/delivery`
    Delivery,
    /// `/proof`
    Proof,
    /// `/admin`
    Admin,
}

impl Menu {
    /// All entries, in their order.
    pub const ALL: [Self; 8] = [
        Self::Overview,
        Self::Workflows,
        Self::Runs,
        Self::Backfills,
        Self::Upcoming,
        Self::Delivery,
        Self::Proof,
        Self::Admin,
    ];

    /// The words of an entry.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Workflows => "Workflows",
            Self::Runs => "Runs",
            Self::Backfills => "Backfills",
            Self::Upcoming => "Upcoming",
            Self::Delivery => "Delivery",
            Self::Proof => "Proof",
            Self::Admin => "Admin",
        }
    }

    /// Its page.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Workflows => "/workflows",
            Self::Runs => "/runs",
            Self::Backfills => "/backfills",
            Self::Upcoming => "/upcoming",
            Self::Delivery => "/delivery",
            Self::Proof => "/proof",
            Self::Admin => "/admin",
        }
    }
}

impl Frame {
    /// Reads what the frame of a page shows.
    ///
    /// # Errors
    /// Returns the failure of the API.
    pub async fn read(api: &Api, menu: Menu, title: impl Into<String>, done: Option<&str>) -> Result<Self, Failure> {
        let me: MeView = api.get("/me").await?;
        let freezes = read_freezes(api).await?;
        let (permitted, done) = (api.permitted().to_vec(), done.and_then(done_sentence));
        Ok(Self { title: title.into(), menu, me, permitted, freezes, done, now: api.now() })
    }

    /// Whether the visitor may do what needs this scope.
    #[must_use]
    pub fn permits(&self, scope: Scope) -> bool {
        self.permitted.contains(&scope)
    }

    /// Whether the visitor may edit workflows.
    #[must_use]
    pub fn may_edit(&self) -> bool {
        self.permits(Scope::Edit)
    }

    /// Whether the visitor may read what belongs to all teams.
    #[must_use]
    pub fn may_audit(&self) -> bool {
        self.permits(Scope::Auditor)
    }

    /// Whether the visitor may repair the outbox and check the drift.
    #[must_use]
    pub fn may_operate(&self) -> bool {
        self.permits(Scope::Operate)
    }

    /// Whether the visitor may administer teams and keys.
    #[must_use]
    pub fn may_administer(&self) -> bool {
        self.permits(Scope::Admin)
    }

    /// The path of an embedded file.
    #[must_use]
    pub fn asset(&self, name: &str) -> String {
        assets::path_of(name)
    }
}

async fn read_freezes(api: &Api) -> Result<Option<Vec<FreezeView>>, Failure> {
    match api.get::<Page<FreezeView>>("/freezes?open=true").await {
        Ok(open) => {
            let in_force = open.items.into_iter().filter(|freeze| freeze.state == FreezeState::InForce);
            Ok(Some(in_force.collect()))
        }
        Err(failure) if failure.names_field("team_id") => Ok(None),
        Err(failure) => Err(failure),
    }
}
