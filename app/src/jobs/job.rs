//! Step 7 of 7: a background job, and what a turn of it came to.

use futures::future::BoxFuture;

use crate::App;
use crate::cadence::When;

/// What a job does.
pub type Work = fn(App) -> BoxFuture<'static, anyhow::Result<Did>>;

/// One job, as this instance knows it.
#[derive(Clone)]
pub struct Job {
    /// Its row in the table `jobs`.
    pub name: &'static str,
    /// When it is due again.
    pub when: When,
    /// What it does.
    pub run: Work,
}

/// What a turn of a job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// There was nothing to do.
    Nothing,
    /// All that there was; in a sentence, for the log.
    All(String),
    /// A full batch: there may be more, so the next turn is at once.
    Some(String),
}
