//! Steps 1, 4 and 7 of 7: the events that clients follow: edits, syncs, decisions and ends of runs.
//!
//! The transaction that makes a change writes its event: a trigger for decisions and ends, a statement after the audit
//! entry for edits, the settle of the publisher for syncs. They do so only while a client follows.
//!
//! A reader reads the events of transactions below the oldest one that is open. So it skips no event of a transaction
//! that commits later than another one with a higher number.

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
/// How many events a read passes over at most, those of other teams included.
const SCANNED: i64 = 5_000;
/// How many old events one statement removes.
const REMOVED: i64 = 10_000;
/// How many such statements follow one another.
const REMOVALS: usize = 20;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let is_complete = sqlx::query_scalar!(
        r#"
        -- are the events after a position complete: not before the first that is stored, nor after the present, as in a database
        -- that was restored
        SELECT COALESCE(complete_from <= $1, FALSE) AND $1 <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS "is!"
          FROM event_listeners
        "#,
        after.transaction,
    )
    .fetch_one(db)
    .await?;
    Ok(if is_complete { Kept::Complete } else { Kept::Incomplete })
}

/// Reads the events after a position: those of these teams, or all.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_events(
    db: &mut PgConnection,
    after: Position,
    teams: Option<&[i64]>,
    limit: i64,
) -> sqlx::Result<Batch> {
    let rows = sqlx::query!(
        r#"
        -- read events: below the oldest open transaction, whose events may have lower places. As many as one page may have are
        -- passed over, so that a quiet team does not read those of all others again and again
        WITH passed AS MATERIALIZED (
            SELECT *
              FROM events
             WHERE (transaction, nth) > ($1, $2)
               AND transaction < (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
             ORDER BY transaction, nth
             LIMIT $5
        ), visible AS (
            SELECT * FROM passed WHERE $3::bigint[] IS NULL OR team_id = ANY($3) ORDER BY transaction, nth LIMIT $4
        )
        SELECT last.transaction AS "last_transaction!", last.nth AS "last_nth!", last.count AS "count!",
               v.transaction AS "transaction?", v.nth AS "nth?", v.created_on AS "created_on?", v.kind AS "kind?: EventKind",
               v.what AS "what?", v.team_id, v.workflow_id, v.run_id, v.scheduled_time, v.revision, v.subject, v.actor
          FROM (SELECT transaction, nth, (SELECT count(*) FROM passed) AS count
                  FROM passed ORDER BY transaction DESC, nth DESC LIMIT 1) AS last
          LEFT JOIN visible AS v ON TRUE
         ORDER BY v.transaction, v.nth
        "#,
        after.transaction,
        after.nth,
        teams,
        limit,
        SCANNED,
    )
    .fetch_all(db)
    .await?;
    let Some(first) = rows.first() else {
        return Ok(Batch { events: Vec::new(), through: after, may_be_more: false });
    };
    let last = Position { transaction: first.last_transaction, nth: first.last_nth };
    let was_full = first.count >= SCANNED;
    let events: Vec<Event> = rows
        .into_iter()
        .filter_map(|row| {
            Some(Event {
                position: Position { transaction: row.transaction?, nth: row.nth? },
                created_on: row.created_on?,
                kind: row.kind?,
                what: row.what?,
                team_id: row.team_id,
                workflow_id: row.workflow_id,
                run_id: row.run_id,
                scheduled_time: row.scheduled_time,
                revision: row.revision,
                subject: row.subject,
                actor: row.actor,
            })
        })
        .collect();
    let is_cut = i64::try_from(events.len()).unwrap_or(i64::MAX) >= limit;
    let through = events.last().filter(|_| is_cut).map_or(last, |event| event.position);
    Ok(Batch { events, through, may_be_more: was_full || is_cut })
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

/// Removes events that are older than they are kept; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn remove_old(db: &mut PgConnection) -> sqlx::Result<u64> {
    let mut removed = 0;
    for _ in 0..REMOVALS {
        let batch = remove_batch(db).await?;
        removed += batch;
        if batch < REMOVED.unsigned_abs() {
            break;
        }
    }
    Ok(removed)
}

async fn remove_batch(db: &mut PgConnection) -> sqlx::Result<u64> {
    let removed = sqlx::query_scalar!(
        r#"
        -- remove old events: the oldest first, and then no reader may begin before the last of them
        WITH old AS MATERIALIZED (
            SELECT transaction, nth, created_on FROM events ORDER BY transaction, nth LIMIT $1
        ), removed AS (
            DELETE FROM events e USING old
             WHERE e.transaction = old.transaction AND e.nth = old.nth
               AND old.created_on < clock_timestamp() - make_interval(secs => $2)
            RETURNING e.transaction
        ), marked AS (
            UPDATE event_listeners
               SET complete_from = GREATEST(complete_from, (SELECT max(transaction) + 1 FROM removed))
             WHERE complete_from IS NOT NULL AND EXISTS (SELECT FROM removed)
        )
        SELECT count(*) AS "count!" FROM removed
        "#,
        REMOVED,
        KEPT_SECS,
    )
    .fetch_one(db)
    .await?;
    Ok(removed.unsigned_abs())
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
