//! Steps 1, 4 and 7 of 7: the events that clients follow: edits, syncs, decisions and ends of runs.
//!
//! The transaction that makes a change writes its event: a trigger for decisions and ends, a statement after the audit
//! entry for edits, the settle of the publisher for syncs. They do so only while a client follows.
//!
//! A reader reads the events of transactions below the oldest one that is open. So it skips no event of a transaction
//! that commits later than another one with a higher number.
//!
//! A job removes events after an hour, whether a client follows or not.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use uuid::Uuid;

/// How long events are kept, and how long they are written after the last request for them.
const KEPT_SECS: f64 = 3_600.0;
/// A statement may have begun before it got its transaction number; none does so for longer.
const MARGIN: Duration = Duration::from_secs(1);
/// How often a reader looks whether all earlier transactions have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Name of the job that removes old events in the table `jobs`.
pub const JOB: &str = "events";
/// How often it does, in seconds.
pub const REMOVED_EVERY_SECS: u64 = 60;
/// How many events [`remove_old`] removes at most.
pub const MOST_REMOVED: u64 = REMOVED.unsigned_abs() * REMOVALS;
/// How many old events one statement removes.
const REMOVED: i64 = 10_000;
/// How many such statements follow one another.
const REMOVALS: u64 = 20;

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Where it is in the stream.
    pub position: Position,
    /// When it was written.
    pub created_on: DateTime<Utc>,
    /// What kind of change it is.
    pub kind: EventKind,
    /// The verb of the edit, `synced` or `failed`, the decision, or the final state of the run.
    pub what: String,
    /// The team; `None`: an object of the operators.
    pub team_id: Option<i64>,
    /// The workflow.
    pub workflow_id: Option<i64>,
    /// The run.
    pub run_id: Option<Uuid>,
    /// The due time.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// The revision that EventBridge has, or that made the time due.
    pub revision: Option<i64>,
    /// The object of an edit.
    pub subject: Option<String>,
    /// Who made the edit.
    pub actor: Option<String>,
}

/// What kind of change an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An entry of the audit log.
    Edit,
    /// EventBridge has a revision, or its publication has failed permanently.
    Sync,
    /// A due time was decided, or its decision has changed.
    Decision,
    /// A run has ended.
    RunEnd,
}

impl EventKind {
    /// The word of the API and of the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Edit => "edit",
            Self::Sync => "sync",
            Self::Decision => "decision",
            Self::RunEnd => "run_end",
        }
    }
}

/// A place in the stream: all events up to it have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    transaction: i64,
    nth: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.transaction, self.nth)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (transaction, nth) = text.split_once('.').ok_or(())?;
        let number = |text: &str| text.parse().ok().filter(|number| *number >= 0).ok_or(());
        Ok(Self { transaction: number(transaction)?, nth: number(nth)? })
    }
}

/// Whether the events after a position are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of them are stored.
    Complete,
    /// Some are removed, or were not written; or the position is of another database.
    Incomplete,
}

/// Some events, in their order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Whether the events after the position were complete when they were read. If not, none was read.
    pub kept: Kept,
    /// The events that the reader may see.
    pub events: Vec<Event>,
    /// Up to where the stream was read.
    pub through: Position,
    /// Whether more may follow at once.
    pub may_be_more: bool,
}

/// Begins to follow. When it returns, every change of a transaction before the position is visible, and every later one
/// has an event after it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn begin_following(pool: &PgPool) -> sqlx::Result<Position> {
    let mut db = pool.acquire().await?;
    if keep_writing(&mut db).await? == Writing::JustBegun {
        drop(db);
        tokio::time::sleep(MARGIN).await;
        db = pool.acquire().await?;
        mark_complete(&mut db).await?;
    }
    let (mut oldest, next) = read_snapshot(&mut db).await?;
    drop(db);
    while oldest < next {
        tokio::time::sleep(LOOK_AGAIN).await;
        (oldest, _) = read_snapshot(&mut *pool.acquire().await?).await?;
    }
    Ok(Position { transaction: next, nth: 0 })
}

/// Whether the events after a position are complete; the caller goes on to follow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn follow_on(db: &mut PgConnection, after: Position) -> sqlx::Result<Kept> {
    keep_writing(db).await?;
    Ok(read_kept(db, after).await?.0)
}

/// Whether the events after a position are complete, and the lowest number of a transaction in progress.
async fn read_kept(db: &mut PgConnection, after: Position) -> sqlx::Result<(Kept, i64)> {
    let read = sqlx::query!(
        r#"
        -- are the events after a position complete: not before the first that is stored, nor after the present, as in a database
        -- that was restored; and which transactions are in progress
        SELECT COALESCE(l.complete_from <= $1, FALSE) AND $1 <= pg_snapshot_xmax(seen)::text::bigint AS "is_complete!",
               pg_snapshot_xmin(seen)::text::bigint AS "oldest!"
          FROM event_listeners l, pg_current_snapshot() AS seen
        "#,
        after.transaction,
    )
    .fetch_one(db)
    .await?;
    Ok((if read.is_complete { Kept::Complete } else { Kept::Incomplete }, read.oldest))
}

/// An event, as it is stored.
struct StoredEvent {
    transaction: i64,
    nth: i64,
    created_on: DateTime<Utc>,
    kind: EventKind,
    what: String,
    team_id: Option<i64>,
    workflow_id: Option<i64>,
    run_id: Option<Uuid>,
    scheduled_time: Option<DateTime<Utc>>,
    revision: Option<i64>,
    subject: Option<String>,
    actor: Option<String>,
}

impl From<StoredEvent> for Event {
    fn from(stored: StoredEvent) -> Self {
        Self {
            position: Position { transaction: stored.transaction, nth: stored.nth },
            created_on: stored.created_on,
            kind: stored.kind,
            what: stored.what,
            team_id: stored.team_id,
            workflow_id: stored.workflow_id,
            run_id: stored.run_id,
            scheduled_time: stored.scheduled_time,
            revision: stored.revision,
            subject: stored.subject,
            actor: stored.actor,
        }
    }
}

/// Selects events by a comment, which of them in their order, and the arguments. `query_as!` accepts only literals.
macro_rules! select_events {
    ($comment:tt, $which:tt, $($arguments:tt)*) => {
        sqlx::query_as!(
            StoredEvent,
            $comment
                + r#"
        SELECT transaction, nth, created_on, kind AS "kind: EventKind", what, team_id, workflow_id, run_id, scheduled_time,
               revision, subject, actor
          FROM events
         WHERE "#
                + $which
                + " LIMIT $1",
            $($arguments)*
        )
    };
}

/// Reads the events after a position: those of these teams, or all. It reads no event of another team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement, or if one takes longer than [`db::READ_LIMIT_SECS`].
pub async fn read_events(pool: &PgPool, after: Position, teams: Option<&[i64]>, limit: i64) -> sqlx::Result<Batch> {
    // In one snapshot: what is below the oldest open transaction is the same for each team, and no event that the job removes
    // meanwhile is passed over.
    let mut tx = db::begin_read(pool).await?;
    let (kept, oldest) = read_kept(&mut tx, after).await?;
    let events = match (kept, teams) {
        (Kept::Incomplete, _) => return Ok(Batch { kept, events: Vec::new(), through: after, may_be_more: false }),
        (Kept::Complete, Some(teams)) => read_of_teams(&mut tx, teams, after, oldest, limit).await?,
        (Kept::Complete, None) => read_of_all(&mut tx, after, oldest, limit).await?,
    };
    tx.commit().await?;
    let is_cut = i64::try_from(events.len()).unwrap_or(i64::MAX) >= limit;
    // Without a cut, all events below the oldest open transaction are read; an event of that transaction has a number above 0.
    let all = Position { transaction: oldest, nth: 0 }.max(after);
    let through = events.last().filter(|_| is_cut).map_or(all, |event| event.position);
    Ok(Batch { kept, events, through, may_be_more: is_cut })
}

/// Reads the first events of several teams. Each event among the first ones is among the first ones of its team.
async fn read_of_teams(
    db: &mut PgConnection,
    teams: &[i64],
    after: Position,
    oldest: i64,
    limit: i64,
) -> sqlx::Result<Vec<Event>> {
    let mut events = Vec::new();
    for team in teams {
        events.extend(read_of_team(db, *team, after, oldest, limit).await?);
    }
    events.sort_by_key(|event: &Event| event.position);
    events.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(events)
}

/// A comparison of rows reads only the index of its columns: in the order of all events, a quiet team would pass over those of
/// all others.
async fn read_of_team(
    db: &mut PgConnection,
    team: i64,
    after: Position,
    oldest: i64,
    limit: i64,
) -> sqlx::Result<Vec<Event>> {
    let stored = select_events!(
        "-- read the events of a team, by idx_events_team\n",
        "(team_id, transaction, nth) > ($2, $3, $4) AND (team_id, transaction, nth) < ($2, $5, 0::bigint)
         ORDER BY team_id, transaction, nth",
        limit,
        team,
        after.transaction,
        after.nth,
        oldest,
    );
    Ok(stored.fetch_all(db).await?.into_iter().map(Event::from).collect())
}

async fn read_of_all(db: &mut PgConnection, after: Position, oldest: i64, limit: i64) -> sqlx::Result<Vec<Event>> {
    let stored = select_events!(
        "-- read the events of all teams\n",
        "(transaction, nth) > ($2, $3) AND transaction < $4 ORDER BY transaction, nth",
        limit,
        after.transaction,
        after.nth,
        oldest,
    );
    Ok(stored.fetch_all(db).await?.into_iter().map(Event::from).collect())
}

/// Writes the event of an edit, in its transaction.
pub(crate) async fn write_edit(
    tx: &mut PgConnection,
    verb: &str,
    team_id: Option<i64>,
    subject: &str,
    actor: &str,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- write the event of an edit
        INSERT INTO events (kind, what, team_id, workflow_id, subject, actor)
        VALUES ('edit', $1, $2, substring($3 FROM '^workflow:([0-9]{1,18})$')::bigint, $3, $4)
        "#,
        verb,
        team_id,
        subject,
        actor,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Removes events that are older than they are kept, the oldest first, at most [`MOST_REMOVED`]; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement; earlier ones remain removed.
pub async fn remove_old(db: &mut PgConnection) -> sqlx::Result<u64> {
    let (mut removed, mut after) = (0, Position { transaction: 0, nth: 0 });
    for _ in 0..REMOVALS {
        let Some(batch) = remove_batch(db, after).await? else { break };
        removed += batch.events;
        after = batch.through;
        if batch.events < REMOVED.unsigned_abs() {
            break;
        }
    }
    Ok(removed)
}

/// Events that one statement removed.
struct RemovedBatch {
    events: u64,
    /// The last one of them.
    through: Position,
}

/// Removes the oldest events after a position; `None`: none is old.
async fn remove_batch(db: &mut PgConnection, after: Position) -> sqlx::Result<Option<RemovedBatch>> {
    let removed = sqlx::query!(
        r#"
        -- remove old events: the oldest first, and then no reader may begin before the last of them. It begins after the batch
        -- before, whose rows are dead, but are in the index until a vacuum
        WITH old AS MATERIALIZED (
            SELECT transaction, nth, created_on
              FROM events
             WHERE (transaction, nth) > ($3, $4)
             ORDER BY transaction, nth
             LIMIT $1
        ), removed AS (
            DELETE FROM events e USING old
             WHERE e.transaction = old.transaction AND e.nth = old.nth
               AND old.created_on < clock_timestamp() - make_interval(secs => $2)
            RETURNING e.transaction, e.nth
        ), marked AS (
            UPDATE event_listeners
               SET complete_from = GREATEST(complete_from, (SELECT max(transaction) + 1 FROM removed))
             WHERE complete_from IS NOT NULL AND EXISTS (SELECT FROM removed)
        )
        SELECT transaction AS "transaction!", nth AS "nth!", (SELECT count(*) FROM removed) AS "events!"
          FROM removed
         ORDER BY transaction DESC, nth DESC
         LIMIT 1
        "#,
        REMOVED,
        KEPT_SECS,
        after.transaction,
        after.nth,
    )
    .fetch_optional(db)
    .await?;
    Ok(removed.map(|last| RemovedBatch {
        events: last.events.unsigned_abs(),
        through: Position { transaction: last.transaction, nth: last.nth },
    }))
}

/// Whether changes wrote events before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// They do so from now on.
    JustBegun,
    /// They did.
    GoesOn,
}

/// Makes changes write events for another hour.
async fn keep_writing(db: &mut PgConnection) -> sqlx::Result<Writing> {
    sqlx::query!(
        r#"
        -- keep writing events: once a minute, so that readers do not wait for each other
        UPDATE event_listeners
           SET complete_from = CASE WHEN live_until > clock_timestamp() THEN complete_from END,
               live_until = clock_timestamp() + make_interval(secs => $1)
         WHERE live_until < clock_timestamp() + make_interval(secs => $1) - interval '60 s'
        "#,
        KEPT_SECS,
    )
    .execute(&mut *db)
    .await?;
    let is_complete = sqlx::query_scalar!(
        r#"
        -- are the events complete
        SELECT complete_from IS NOT NULL AS "is!" FROM event_listeners
        "#
    )
    .fetch_one(db)
    .await?;
    Ok(if is_complete { Writing::GoesOn } else { Writing::JustBegun })
}

/// Every transaction that begins from now on has written its events.
async fn mark_complete(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- events are complete from here on
        UPDATE event_listeners
           SET complete_from = pg_snapshot_xmax(pg_current_snapshot())::text::bigint
         WHERE complete_from IS NULL
        "#
    )
    .execute(db)
    .await
    .map(drop)
}

/// The lowest number of a transaction in progress, and the number that the next transaction gets.
async fn read_snapshot(db: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    let read = sqlx::query!(
        r#"
        -- which transactions are in progress
        SELECT pg_snapshot_xmin(seen)::text::bigint AS "oldest!", pg_snapshot_xmax(seen)::text::bigint AS "next!"
          FROM pg_current_snapshot() AS seen
        "#
    )
    .fetch_one(db)
    .await?;
    Ok((read.oldest, read.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        let position = Position { transaction: 12, nth: 3 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for text in ["", "12", "12.", ".3", "-1.3", "12.-3", "a.b", "1.2.3"] {
            assert_eq!(text.parse::<Position>(), Err(()), "{text}");
        }
    }
}
