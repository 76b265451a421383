//! Step 1 of 7: the transaction of an edit, which waits for its turn in this process before it takes a connection.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use db::{PgConnection, Transaction};
use schedule::WorkflowId;

use super::auth::Caller;
use super::error::{Error, Limit};
use crate::App;
use crate::lines::{LineFull, Turn};

/// A transaction of an edit, which has one of the connections that the edits of its team share.
pub(crate) struct EditTransaction {
    tx: Transaction,
    // The turns are declared after the transaction, because what is declared first is dropped first.
    _turns: Turns,
}

/// The turns of an edit, until they are dropped.
struct Turns {
    /// For the row of the workflow that it edits, if it edits one.
    _of_row: Option<Turn<(Option<i64>, WorkflowId)>>,
    /// Among the edits of its team.
    _of_team: Option<Turn<i64>>,
}

impl EditTransaction {
    /// Begins the edit of one workflow: it waits for its turn and then for a connection. The next edit of the workflow begins
    /// after it.
    ///
    /// Another team has its own line for the same workflow: it may name any id.
    ///
    /// # Errors
    /// Returns 429 if too many edits of the workflow wait, 408 if they take longer than a request may, or the failure of
    /// the database.
    pub(crate) async fn begin(app: &App, caller: &Caller, id: WorkflowId) -> Result<Self, Error> {
        let turns = async {
            let of_row = app.edits_of_row.wait_turn((caller.team_id, id)).await?;
            Ok::<_, Error>(Turns { _of_row: Some(of_row), _of_team: wait_team_turn(app, caller.team_id).await? })
        };
        Self::begin_after(app, turns).await
    }

    /// Begins another edit of a team: it waits until the team has less than its share of the connections, and then for one.
    /// `None`: the edit is of an admin, or of a client of which no team is known.
    ///
    /// # Errors
    /// Returns 408 if the edits of the team take longer than a request may, or the failure of the database.
    pub(crate) async fn begin_of_team(app: &App, team_id: Option<i64>) -> Result<Self, Error> {
        let turns = async { Ok::<_, Error>(Turns { _of_row: None, _of_team: wait_team_turn(app, team_id).await? }) };
        Self::begin_after(app, turns).await
    }

    async fn begin_after(app: &App, turns: impl Future<Output = Result<Turns, Error>>) -> Result<Self, Error> {
        // Its client was answered by then, and may have edited again with another key, whose edits have a line of their own.
        let longest = Duration::from_millis(app.config.request_timeout_ms);
        let turns = tokio::time::timeout(longest, turns).await.map_err(|_| Error::timeout())??;
        let tx = db::begin_transaction(&app.pools.edits).await?;
        Ok(Self { tx, _turns: turns })
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
pub(crate) async fn wait_team_turn(app: &App, team_id: Option<i64>) -> Result<Option<Turn<i64>>, Error> {
    match team_id {
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
