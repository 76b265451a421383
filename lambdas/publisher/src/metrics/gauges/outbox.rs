//! Step 3 of 7: the age of the oldest open edit.
//!
//! Like a claim, the reading begins at a mark, because a snapshot that stays open keeps the index entries of all edits
//! that were published since.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use db::PgPool;
use tokio::time::Instant;

/// How often the index is read from its beginning: an operator may reopen an old row.
const COMPLETE_EVERY: Duration = Duration::from_secs(600);
/// How many rows before the newest one transactions in progress may still commit.
const IN_PROGRESS: i64 = 10_000;

/// Before which row no edit is open.
#[derive(Debug, Default)]
pub(crate) struct OutboxMark(Mutex<Mark>);

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// `None` = not known.
    id: Option<i64>,
    /// When the complete index was last read, or could not be read in time.
    completed_at: Option<Instant>,
}

/// From which row the index is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Beginning,
    Row(i64),
    /// The complete index could not be read in time, and there is no mark.
    Recent,
}

impl OutboxMark {
    /// Returns the age of the oldest edit that is neither published nor failed, 0 if there is none.
    pub(super) async fn lag_secs(&self, pool: &PgPool) -> sqlx::Result<f64> {
        let from = self.next_from(Instant::now());
        let Oldest { newest, id, secs } = read_oldest(pool, from).await?;
        self.lock().id = Some(id.unwrap_or(newest).min(newest - IN_PROGRESS));
        // The edit's time is from the app's clock, this one from the database's.
        Ok(secs.unwrap_or_default().max(0.0))
    }

    fn next_from(&self, now: Instant) -> Start {
        let mut mark = self.lock();
        if mark.completed_at.is_none_or(|at| now.saturating_duration_since(at) >= COMPLETE_EVERY) {
            mark.completed_at = Some(now);
            return Start::Beginning;
        }
        mark.id.map_or(Start::Recent, Start::Row)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Mark> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest row, and the oldest open one.
struct Oldest {
    newest: i64,
    id: Option<i64>,
    secs: Option<f64>,
}

async fn read_oldest(pool: &PgPool, from: Start) -> sqlx::Result<Oldest> {
    let from = match from {
        Start::Beginning => Some(i64::MIN),
        Start::Row(id) => Some(id),
        Start::Recent => None,
    };
    sqlx::query_as!(
        Oldest,
        r#"
        -- lag: by id, which the index has; the lowest id is the oldest edit, except for the duration of a commit. The
        -- newest id is the sequence's: an index with the entries of all rows that were settled since would be read for it
        SELECT newest.id AS "newest!", oldest.id AS "id?", oldest.secs AS "secs?"
          FROM (SELECT last_value AS id FROM outbox_events_id_seq) AS newest
          LEFT JOIN LATERAL (
               SELECT id, EXTRACT(EPOCH FROM (SELECT cronbox_now()) - created_on)::float8 AS secs
                 FROM outbox_events
                WHERE processed_on IS NULL
                  AND failed_on IS NULL
                  AND outbox_events.id >= COALESCE($1, newest.id - 1000000)
                ORDER BY outbox_events.id
                LIMIT 1
          ) AS oldest ON TRUE
        "#,
        from,
    )
    .fetch_one(pool)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_begin_at_the_mark() {
        let (mark, began) = (OutboxMark::default(), Instant::now());
        assert_eq!(mark.next_from(began), Start::Beginning);
        assert_eq!(mark.next_from(began), Start::Recent, "the complete reading took too long");
        mark.lock().id = Some(7);
        assert_eq!(mark.next_from(began), Start::Row(7));
        assert_eq!(mark.next_from(began + COMPLETE_EVERY), Start::Beginning);
        assert_eq!(mark.next_from(began + COMPLETE_EVERY), Start::Row(7));
    }
}
