//! Step 1 of 7: the transaction of an edit, which waits for its turn in this process before it takes a connection.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use db::{PgConnection, Transaction};
use schedule::WorkflowId;

use super::auth::Caller;
use super::error::{Error, Limit};
use crate::App;
use crate::lines::{LineFull, Turn};

/// A transaction that edits one workflow. The next edit of the workflow begins after it.
pub(crate) struct EditTransaction {
    tx: Transaction,
    // The turns are declared after the transaction, because what is declared first is dropped first.
    _turn_of_row: Turn<(Option<i64>, WorkflowId)>,
    _turn_of_team: Option<Turn<i64>>,
}

impl EditTransaction {
    /// Waits for the turn of this edit and then for a connection.
    ///
    /// Another team has its own line for the same workflow: it may name any id.
    ///
    /// # Errors
    /// Returns 429 if too many edits of the workflow wait, 408 if they take longer than a request may, or the failure of
    /// the database.
    pub(crate) async fn begin(app: &App, caller: &Caller, id: WorkflowId) -> Result<Self, Error> {
        let turns = async {
            let turn_of_row = app.edits_of_row.wait_turn((caller.team_id, id)).await?;
            Ok::<_, Error>((turn_of_row, wait_team_turn(app, caller).await?))
        };
        // Its client was answered by then, and may have edited again with another key, whose edits have a line of their own.
        let longest = Duration::from_millis(app.config.request_timeout_ms);
        let turns = tokio::time::timeout(longest, turns).await.map_err(|_| Error::timeout())?;
        let (turn_of_row, turn_of_team) = turns?;
        let tx = db::begin_transaction(&app.pools.edits).await?;
        Ok(Self { tx, _turn_of_row: turn_of_row, _turn_of_team: turn_of_team })
    }

    /// Commits the changes.
    ///
    /// # Errors
    /// Fails if the database fails; after a connection error it is unknown whether the changes are committed.
    pub(crate) async fn commit(self) -> sqlx::Result<()> {
        self.tx.commit().await
    }
}

/// Waits until the team has less than its share of the connections for edits. An admin belongs to no team.
///
/// # Errors
/// Never fails, because any number of edits may wait; the limit of edits in flight is below it.
pub(crate) async fn wait_team_turn(app: &App, caller: &Caller) -> Result<Option<Turn<i64>>, Error> {
    match caller.team_id {
        Some(team_id) => Ok(Some(app.edits_of_team.wait_turn(team_id).await?)),
        None => Ok(None),
    }
}

impl Deref for EditTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.tx
    }
}

impl DerefMut for EditTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.tx
    }
}

impl From<LineFull> for Error {
    fn from(full: LineFull) -> Self {
        let quota = i64::try_from(full.most_waiting).unwrap_or(i64::MAX);
        let detail = format!("{quota} edits of this workflow wait already: wait for Retry-After seconds, then repeat");
        let limit = Limit { policy: "workflow-edits", quota, window_secs: None, retry_secs: 1 };
        Error::limited("edit_queue_full", detail, limit)
    }
}
