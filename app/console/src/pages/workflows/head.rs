//! What all pages of one workflow have: its name, its state, its acts and the tabs.

use api_types::workflows::{PausedBy, State, WorkflowView};
use schedule::Cron;

use crate::api::Api;
use crate::failure::Failure;

/// The head of a page of a workflow.
pub(super) struct Head {
    /// The workflow.
    pub(super) workflow: WorkflowView,
    /// The cron in words.
    pub(super) times: Option<String>,
    /// The tab of the page.
    pub(super) tab: Tab,
}

/// The tabs of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Ledger,
    Runs,
    Next,
    Settings,
    History,
    Sync,
}

impl Tab {
    const ALL: [Self; 6] = [Self::Ledger, Self::Runs, Self::Next, Self::Settings, Self::History, Self::Sync];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Ledger => "Ledger",
            Self::Runs => "Runs",
            Self::Next => "Next",
            Self::Settings => "Settings",
            Self::History => "History",
            Self::Sync => "Sync",
        }
    }

    /// Its page, below that of the workflow.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Ledger => "",
            Self::Runs => "/runs",
            Self::Next => "/next",
            Self::Settings => "/settings",
            Self::History => "/history",
            Self::Sync => "/sync",
        }
    }
}

impl Head {
    /// Reads the workflow.
    pub(super) async fn read(api: &Api, id: i64, tab: Tab) -> Result<Self, Failure> {
        let workflow: WorkflowView = api.get(&format!("/workflows/{id}")).await?;
        let cron = workflow.cron_schedule.as_deref().and_then(|text| Cron::parse(text).ok());
        Ok(Self { times: cron.map(|cron| cron.describe_times()), workflow, tab })
    }

    pub(super) fn tabs(&self) -> [Tab; 6] {
        Tab::ALL
    }

    pub(super) fn is_archived(&self) -> bool {
        self.workflow.state == State::Archived
    }

    pub(super) fn is_paused(&self) -> bool {
        self.workflow.state == State::Paused
    }

    /// Who paused it, as a subject.
    pub(super) fn paused_by(&self) -> &'static str {
        match self.workflow.paused_by {
            Some(PausedBy::Cronbox) => "cronbox paused it",
            Some(PausedBy::Client) => "A person or a program paused it",
            None => "It is paused",
        }
    }
}
