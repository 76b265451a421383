//! Step 3 of 7: where a claim begins to read the index of what is due.
//!
//! Each edit leaves entries in the index, at the times at which its workflow was due. Vacuum removes them, but not while a
//! snapshot stays open, for example that of a dump. A claim that reads the index from its beginning then reads every edit
//! since that snapshot. So this process keeps a mark for each lane: no publication is due before it.
//!
//! A mark may pass a time T only if no transaction can still commit a publication that was due at T. The statement that
//! reads the marks therefore also reads which transactions are in progress. When all of them have ended, what the same
//! statement shows is complete up to the earlier reading. A leased or locked publication stays due, so the mark stays
//! before it. What this rule cannot see (another program's UPDATE into the past, a transaction longer than
//! [`LONGEST_WRITER`]) is found by the complete reading that follows within a minute.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};

/// How often the marks move, at most.
const MOVE_EVERY: Duration = Duration::from_secs(1);
/// How often the index is read from its beginning, by the database's clock.
const COMPLETE_EVERY: TimeDelta = TimeDelta::seconds(60);
/// How long the marks wait for a transaction to end. Ours end earlier, by the timeouts of their connections.
const LONGEST_WRITER: TimeDelta = TimeDelta::seconds(30);
/// A transaction may read the clock shortly before it gets its number.
const MARGIN: TimeDelta = TimeDelta::seconds(1);
/// Where a process without marks begins if the complete index cannot be read in time.
const RECENT: Duration = Duration::from_secs(600);
/// SQLSTATE of a statement that exceeded its time limit.
const QUERY_CANCELED: &str = "57014";

/// The marks of this process, and what is needed to move them.
#[derive(Debug, Default)]
pub(crate) struct LowWater(Mutex<State>);

/// Before these times nothing is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// When they were read, by the database's clock. If that clock is earlier now, it was set back, and they do not count.
    pub(crate) read_on: Option<DateTime<Utc>>,
    /// The mark of the edits, `None` = not known.
    pub(crate) edits: Option<DateTime<Utc>>,
    /// The mark of the repairs, `None` = not known.
    pub(crate) repairs: Option<DateTime<Utc>>,
}

#[derive(Debug, Default)]
struct State {
    marks: Marks,
    /// When they were last moved, by the stopwatch.
    moved_at: Option<Instant>,
    /// When the complete index was last read, or could not be read in time, by the database's clock.
    completed_on: Option<DateTime<Utc>>,
    /// Readings whose transactions may not have ended yet, oldest first.
    readings: VecDeque<Pending>,
}

/// A reading: every publication that is due before `on` is visible once all transactions below `below` have ended.
#[derive(Clone, Copy, Debug)]
struct Pending {
    on: DateTime<Utc>,
    below: i64,
}

/// Which part of the index is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// From its beginning.
    Complete,
    /// From the marks on.
    FromMarks(Marks),
    /// Only the last minutes.
    Recent,
}

/// What one reading found.
#[derive(Clone, Copy, Debug)]
struct Reading {
    on: DateTime<Utc>,
    /// The lowest number of a transaction in progress.
    oldest: i64,
    /// The number that the next transaction gets.
    next: i64,
    /// When the first publication of each lane is due.
    edits: Option<DateTime<Utc>>,
    repairs: Option<DateTime<Utc>>,
}

impl LowWater {
    /// The marks as they were last moved.
    pub(crate) fn marks(&self) -> Marks {
        self.state().marks
    }

    /// Moves the marks if it is time, and returns them; `now` is by the stopwatch.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement; not if the complete reading takes too long.
    pub(crate) async fn move_marks(&self, pool: &PgPool, now: Instant) -> sqlx::Result<Marks> {
        let Some(extent) = self.next_extent(now) else { return Ok(self.marks()) };
        let reading = match read_marks(pool, extent).await {
            Err(error) if extent == Extent::Complete && is_timeout(&error) => {
                tracing::warn!(
                    "index of due publications not read completely: a transaction or a snapshot that stays open keeps \
                     its old entries; the publisher reads on from its low-water mark"
                );
                let marks = self.marks();
                let known = if marks.read_on.is_some() { Extent::FromMarks(marks) } else { Extent::Recent };
                let reading = read_marks(pool, known).await?;
                self.state().completed_on = Some(reading.on);
                self.state().apply(known, reading);
                return Ok(self.marks());
            }
            reading => reading?,
        };
        let mut state = self.state();
        state.apply(extent, reading);
        Ok(state.marks)
    }

    /// Which part to read now, `None` = it is too early.
    fn next_extent(&self, now: Instant) -> Option<Extent> {
        let mut state = self.state();
        let is_early = state.moved_at.is_some_and(|moved_at| now.saturating_duration_since(moved_at) < MOVE_EVERY);
        let Marks { read_on, edits, .. } = state.marks;
        // Without marks every claim reads the complete index, so the first ones are not delayed.
        if is_early && edits.is_some() {
            return None;
        }
        state.moved_at = Some(now);
        let is_due = match (state.completed_on, read_on) {
            (Some(completed_on), Some(read_on)) => read_on - completed_on >= COMPLETE_EVERY,
            _ => true,
        };
        Some(if is_due { Extent::Complete } else { Extent::FromMarks(state.marks) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, extent: Extent, reading: Reading) {
        let Reading { on, oldest, next, edits, repairs } = reading;
        if self.marks.read_on.is_some_and(|read_on| on < read_on) {
            // The database's clock was set back: what the marks say was due by the other clock.
            *self = State { moved_at: self.moved_at, ..State::default() };
        }
        if extent == Extent::Complete {
            self.completed_on = Some(on);
        }
        let mut complete_until = None;
        while let Some(pending) = self.readings.front()
            && (pending.below <= oldest || on - pending.on >= LONGEST_WRITER)
        {
            complete_until = Some(pending.on - MARGIN);
            self.readings.pop_front();
        }
        self.readings.push_back(Pending { on, below: next });
        let recent = (extent == Extent::Recent).then(|| on - RECENT);
        let moved = |mark: Option<DateTime<Utc>>, first: Option<DateTime<Utc>>| {
            let reached = mark.or(recent).max(complete_until)?;
            Some(first.map_or(reached, |first| first.min(reached)))
        };
        self.marks = Marks {
            read_on: Some(on),
            edits: moved(self.marks.edits, edits),
            repairs: moved(self.marks.repairs, repairs),
        };
    }
}

fn is_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() == Some(QUERY_CANCELED)
}

/// Reads the marks; the complete index only within a time limit, because the claim waits for it.
async fn read_marks(pool: &PgPool, extent: Extent) -> sqlx::Result<Reading> {
    if let Extent::FromMarks(marks) = extent {
        return select_marks(&mut *pool.acquire().await?, marks, None).await;
    }
    let within = (extent == Extent::Recent).then(|| RECENT.as_secs_f64());
    let mut tx = db::begin_transaction(pool).await?;
    limit_statement(&mut tx).await?;
    let reading = select_marks(&mut tx, Marks::default(), within).await?;
    tx.commit().await?;
    Ok(reading)
}

/// Reads from these marks on; without them what is due `within` these seconds; without both, the complete index.
async fn select_marks(db: &mut PgConnection, marks: Marks, within: Option<f64>) -> sqlx::Result<Reading> {
    let row = sqlx::query!(
        r#"
        -- read marks: the first publication that is due in each lane, in the order of the index, and which transactions
        -- this snapshot does not see. The clock is read after the snapshot is taken
        SELECT cronbox_now() AS "on!",
               pg_snapshot_xmin(seen)::text::bigint AS "oldest!",
               pg_snapshot_xmax(seen)::text::bigint AS "next!",
               (SELECT due_at
                  FROM publications
                 WHERE NOT is_repair
                   AND due_at >= COALESCE($1::timestamptz, (SELECT cronbox_now()) - make_interval(secs => $3), '-infinity')
                 ORDER BY due_at
                 LIMIT 1) AS edits,
               (SELECT due_at
                  FROM publications
                 WHERE is_repair
                   AND due_at >= COALESCE($2::timestamptz, (SELECT cronbox_now()) - make_interval(secs => $3), '-infinity')
                 ORDER BY due_at
                 LIMIT 1) AS repairs
          FROM pg_current_snapshot() AS seen
        "#,
        marks.edits,
        marks.repairs,
        within,
    )
    .fetch_one(db)
    .await?;
    Ok(Reading { on: row.on, oldest: row.oldest, next: row.next, edits: row.edits, repairs: row.repairs })
}

/// Limits the time of this transaction's statements.
async fn limit_statement(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- limit the statement
        SELECT set_config('statement_timeout', '3s', TRUE)
        "#
    )
    .fetch_one(tx)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + secs, 0).unwrap()
    }

    fn reading(on: i64, oldest: i64, next: i64, edits: Option<i64>) -> Reading {
        Reading { on: at(on), oldest, next, edits: edits.map(at), repairs: None }
    }

    /// Transaction 7 is in progress at the first reading, and has committed by the third.
    #[test]
    fn marks_wait_for_transactions_in_progress() {
        let mut state = State::default();
        state.apply(Extent::Complete, reading(0, 7, 9, None));
        assert_eq!(state.marks.edits, None, "nothing is known before a second reading");
        state.apply(Extent::Complete, reading(2, 7, 12, None));
        assert_eq!(state.marks.edits, None, "transaction 7 may commit what is due at 0");
        state.apply(Extent::Complete, reading(4, 11, 12, None));
        assert_eq!(state.marks.edits, Some(at(-1)), "those of the first reading have ended, 11 of the second has not");
        state.apply(Extent::FromMarks(state.marks), reading(6, 12, 13, Some(30)));
        assert_eq!(state.marks.edits, Some(at(3)), "what is due later does not stop the mark");
    }

    #[test]
    fn marks_stay_before_what_is_due() {
        let mut state = State::default();
        for on in [0, 10, 20, 30] {
            state.apply(Extent::Complete, reading(on, 100, 100, Some(5)));
        }
        assert_eq!(state.marks.edits, Some(at(5)), "it is leased, or waits for a claim");
        state.apply(Extent::Complete, reading(40, 100, 100, Some(-500)));
        assert_eq!(state.marks.edits, Some(at(-500)), "another program made it due in the past");
    }

    #[test]
    fn marks_wait_for_no_transaction_forever() {
        let mut state = State::default();
        state.apply(Extent::Complete, reading(0, 7, 9, None));
        state.apply(Extent::FromMarks(state.marks), reading(29, 7, 900, None));
        assert_eq!(state.marks.edits, None);
        state.apply(Extent::FromMarks(state.marks), reading(31, 7, 900, None));
        assert_eq!(state.marks.edits, Some(at(-1)));
    }

    #[test]
    fn clocks_set_back_forget_the_marks() {
        let mut state = State::default();
        for on in [0, 10, 20] {
            state.apply(Extent::Complete, reading(on, 100, 100, None));
        }
        assert_eq!(state.marks.edits, Some(at(9)));
        state.apply(Extent::FromMarks(state.marks), reading(5, 100, 100, None));
        assert_eq!((state.marks.edits, state.completed_on), (None, None));
    }

    #[test]
    fn a_complete_reading_follows_each_minute() {
        let low_water = LowWater::default();
        let began = Instant::now();
        let mut complete = Vec::new();
        for secs in 0..150 {
            let extent = low_water.next_extent(began + Duration::from_secs(secs)).unwrap();
            if extent == Extent::Complete {
                complete.push(secs);
            }
            let on = i64::try_from(secs).unwrap();
            low_water.state().apply(extent, reading(on, 100, 100, None));
        }
        assert_eq!(complete, [0, 61, 122], "the second after a minute has passed");
        assert_eq!(low_water.next_extent(began + Duration::from_millis(149_500)), None);
    }
}
