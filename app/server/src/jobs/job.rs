//! Step 7 of 7: a background job, and the result of a turn of it.

use futures::future::BoxFuture;

use crate::App;
use crate::cadence::When;

/// The function of a job.
pub type JobFunction = fn(App) -> BoxFuture<'static, anyhow::Result<Did>>;

/// One job, as this instance defines it.
#[derive(Clone)]
pub struct Job {
    /// Its key in the table `jobs`.
    pub name: &'static str,
    /// When it is due again.
    pub when: When,
    /// Its function.
    pub run: JobFunction,
    /// Jobs of one group do the same, so that instances can share it: an instance executes one of them at a time.
    pub group: Option<&'static str>,
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// There was nothing to do.
    Nothing,
    /// Everything was processed; one sentence for the log.
    All(String),
    /// A full batch was processed: more may remain, so the next turn follows at once.
    Some(String),
    /// Another transaction had locked a part: the next turn follows within a minute.
    Waits(String),
}
