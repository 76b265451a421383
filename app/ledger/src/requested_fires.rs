//! Step 7 of 7: how many runs a minute the callers of a team start: by `:fire`, by `:retry` and by backfills.
//!
//! The fires of a team's crons are limited when the crons are edited, so none of them is counted or refused here. Each
//! requested run takes a minute divided by the limit. It may start if all that is taken then ends within a minute, so a
//! team that has started nothing for a minute may start as many runs at once as its limit.
//!
//! All instances share the row of a team, and the callers of one team commit one after another. An edit may wait for the
//! row, because a team has a share of the connections for edits. A backfill must not: all teams share its connections.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;

/// How far ahead a team may take time.
const WINDOW: TimeDelta = TimeDelta::minutes(1);

/// Runs a minute of a team for which no admin has set a limit; 0 = no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefaultRate(pub i64);

/// Whether a requested run may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPermit {
    /// It may, and is counted if the transaction commits.
    Granted,
    /// The team has started as many runs as it may.
    Exhausted {
        /// Its limit of runs a minute.
        per_minute: i64,
        /// After how many seconds the next run may start.
        retry_secs: u32,
    },
}

/// Whether the row of a team is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamRow {
    /// This transaction has locked it, or none is needed.
    Free,
    /// Another transaction has locked it.
    Busy,
}

/// Locks the row of a team without a wait. [`take_requested_fire`] does not wait after it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn try_lock_team(tx: &mut PgConnection, team_id: i64, default: DefaultRate) -> sqlx::Result<TeamRow> {
    if read_limit(tx, team_id, default).await? <= 0 {
        return Ok(TeamRow::Free);
    }
    let is_busy = sqlx::query_scalar!(
        r#"
        -- lock a team's requested fires: a team that has requested none yet has no row
        SELECT EXISTS (SELECT FROM team_requested_fires WHERE team_id = $1)
               AND (SELECT TRUE FROM team_requested_fires WHERE team_id = $1 FOR UPDATE SKIP LOCKED) IS NULL AS "is_busy!"
        "#,
        team_id,
    )
    .fetch_one(tx)
    .await?;
    Ok(if is_busy { TeamRow::Busy } else { TeamRow::Free })
}

/// Counts a requested run of a team, if its limit permits the run now. The team's row stays locked until the commit.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn take_requested_fire(
    tx: &mut PgConnection,
    team_id: i64,
    default: DefaultRate,
    now: DateTime<Utc>,
) -> sqlx::Result<StartPermit> {
    let per_minute = read_limit(tx, team_id, default).await?;
    if per_minute <= 0 {
        return Ok(StartPermit::Granted);
    }
    let share = share_of_a_run(per_minute);
    if add_share(tx, team_id, share, now).await? {
        return Ok(StartPermit::Granted);
    }
    let taken_until = read_taken_until(tx, team_id).await?;
    Ok(StartPermit::Exhausted { per_minute, retry_secs: wait_secs(taken_until, share, now) })
}

/// The time that one run takes. Rounded down, so that as many runs as the limit fit into the window.
fn share_of_a_run(per_minute: i64) -> TimeDelta {
    TimeDelta::microseconds(60_000_000 / per_minute.max(1))
}

/// After how many seconds there is time for one more run.
fn wait_secs(taken_until: DateTime<Utc>, share: TimeDelta, now: DateTime<Utc>) -> u32 {
    let millis = (taken_until + share - now - WINDOW).num_milliseconds();
    u32::try_from((millis.max(1) + 999) / 1000).unwrap_or(1)
}

async fn read_limit(tx: &mut PgConnection, team_id: i64, default: DefaultRate) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- the limit of a team's fires a minute
        SELECT COALESCE((SELECT fires_per_minute FROM team_limits WHERE team_id = $1), $2) AS "limit!"
        "#,
        team_id,
        default.0,
    )
    .fetch_one(tx)
    .await
}

/// Returns whether there was time for the run.
async fn add_share(tx: &mut PgConnection, team_id: i64, share: TimeDelta, now: DateTime<Utc>) -> sqlx::Result<bool> {
    let added = sqlx::query!(
        r#"
        -- count a requested run: concurrent callers of the team wait for its row, and find what the others have taken. A
        -- time far ahead is from before a step of the clock
        INSERT INTO team_requested_fires AS f (team_id, taken_until)
        VALUES ($1, $2::timestamptz + $3::bigint * INTERVAL '1 microsecond')
        ON CONFLICT (team_id) DO UPDATE
           SET taken_until = CASE WHEN f.taken_until > $2 + INTERVAL '2 minutes' THEN $2 ELSE GREATEST(f.taken_until, $2) END
                             + $3 * INTERVAL '1 microsecond'
         WHERE f.taken_until > $2 + INTERVAL '2 minutes'
            OR GREATEST(f.taken_until, $2) + $3 * INTERVAL '1 microsecond' <= $2 + INTERVAL '1 minute'
        "#,
        team_id,
        now,
        share.num_microseconds().unwrap_or_default(),
    )
    .execute(tx)
    .await?;
    Ok(added.rows_affected() > 0)
}

async fn read_taken_until(tx: &mut PgConnection, team_id: i64) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar!(
        r#"
        -- up to when the requested runs of a team take time: its row exists, and the statement before has locked it
        SELECT taken_until FROM team_requested_fires WHERE team_id = $1
        "#,
        team_id,
    )
    .fetch_one(tx)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A share that was rounded up would refuse the last one of seven.
    #[test]
    fn as_many_runs_fit_as_permitted() {
        for per_minute in [1, 2, 7, 60, 1_000, 999_983] {
            let share = share_of_a_run(per_minute).num_microseconds().unwrap();
            assert!(share * per_minute <= 60_000_000, "{per_minute}");
            assert!((share + 1) * (per_minute + 1) > 60_000_000, "{per_minute}");
        }
    }

    #[test]
    fn waits_are_whole_seconds() {
        let now: DateTime<Utc> = "2026-03-02T12:00:00Z".parse().unwrap();
        let share = share_of_a_run(2);
        assert_eq!(wait_secs(now + WINDOW, share, now), 30);
        assert_eq!(wait_secs(now + WINDOW - TimeDelta::milliseconds(1), share, now), 30);
        assert_eq!(wait_secs(now + WINDOW, share_of_a_run(1_000), now), 1);
    }
}
