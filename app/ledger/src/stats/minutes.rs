//! Step 7 of 7: what was counted by minute of all teams together, from which the metrics make counters.

use chrono::{DateTime, Utc};
use db::PgConnection;

use crate::occurrences::Decision;
use crate::runs::RunState;

/// How many times got a decision, or how many runs ended in a state, in one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinuteCount<T> {
    /// The start of the minute.
    pub minute: DateTime<Utc>,
    /// The decision or the state.
    pub what: T,
    /// Negative if decisions of this minute were changed since, more than there are.
    pub count: i64,
}

type DecisionCount = MinuteCount<Decision>;
type EndCount = MinuteCount<RunState>;

/// The decisions of all teams from a minute on, by minute.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_decision_minutes(
    db: &mut PgConnection,
    from: DateTime<Utc>,
) -> sqlx::Result<Vec<MinuteCount<Decision>>> {
    sqlx::query_as!(
        DecisionCount,
        r#"
        -- read_decision_minutes: both tables have parts of the same counts; team 0 of the sums is all teams
        SELECT c.minute AS "minute!", c.decision AS "what!: Decision", sum(c.times)::bigint AS "count!"
          FROM (SELECT minute, decision, times FROM decision_minutes WHERE minute >= $1
                UNION ALL
                SELECT minute, decision, times FROM decision_sums WHERE minute >= $1 AND team_id = 0) AS c
         GROUP BY c.minute, c.decision
        "#,
        from,
    )
    .fetch_all(db)
    .await
}

/// The ends of runs of all teams from a minute on, by minute.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_end_minutes(db: &mut PgConnection, from: DateTime<Utc>) -> sqlx::Result<Vec<MinuteCount<RunState>>> {
    sqlx::query_as!(
        EndCount,
        r#"
        -- read_end_minutes: both tables have parts of the same counts; team 0 of the sums is all teams
        SELECT e.minute AS "minute!", e.state AS "what!: RunState", sum(e.runs)::bigint AS "count!"
          FROM (SELECT minute, state, runs FROM run_end_minutes WHERE minute >= $1
                UNION ALL
                SELECT minute, state, runs FROM run_end_sums WHERE minute >= $1 AND team_id = 0) AS e
         GROUP BY e.minute, e.state
        "#,
        from,
    )
    .fetch_all(db)
    .await
}
