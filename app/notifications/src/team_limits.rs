//! Step 7 of 7: how much of what all teams share a team may use, whatever channels it has and had.
//!
//! The limits of a channel limit no team: it may delete the channel and create another one.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// How many tests of its channels a team sends at once; it has them all again after an hour. So no hour has more than twice as many.
pub const TESTS_AT_ONCE: i64 = 30;
/// After how many seconds it has one of them again.
pub const SECS_PER_TEST: u32 = 120;
/// How many e-mails a team sends in an hour at most: as many as one channel may.
const MAILS_OF_A_TEAM: i64 = 1_000;
/// A channel with fewer e-mails in an hour than this does not wait for the others of its team.
const MAILS_OF_A_CHANNEL: i64 = 20;
/// Also not until all channels of the team, of which it has 50 at most, can have had so many. A team that deletes and creates channels sends no more.
const MOST_MAILS_OF_A_TEAM: i64 = MAILS_OF_A_TEAM + 50 * MAILS_OF_A_CHANNEL;

/// Counts a test of a channel of a team, if the team may send one now. The row of the team stays locked until the commit.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn take_channel_test(tx: &mut PgConnection, team_id: i64, now: DateTime<Utc>) -> sqlx::Result<bool> {
    let taken = sqlx::query!(
        r#"
        -- count a test of a channel: concurrent ones of the team wait for its row, and find what the others have taken. A time far
        -- ahead is from before a step of the clock
        UPDATE teams
           SET channel_tests_until = CASE WHEN channel_tests_until > $2::timestamptz + INTERVAL '2 hours' THEN $2
                                          ELSE GREATEST(channel_tests_until, $2) END
                                     + INTERVAL '1 hour' / $3::bigint
         WHERE id = $1
           AND (channel_tests_until > $2::timestamptz + INTERVAL '2 hours'
                OR GREATEST(channel_tests_until, $2) + INTERVAL '1 hour' / $3::bigint <= $2 + INTERVAL '1 hour')
        "#,
        team_id,
        now,
        TESTS_AT_ONCE,
    )
    .execute(tx)
    .await?;
    Ok(taken.rows_affected() > 0)
}

/// Whether a team has sent fewer e-mails since a time, at most an hour ago, than it may, by a channel that has had `of_channel` messages
/// since then. So one channel takes not all e-mails of its team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn may_send_mail(
    db: &mut PgConnection,
    team_id: i64,
    since: DateTime<Utc>,
    of_channel: i64,
) -> sqlx::Result<bool> {
    let limit = if of_channel < MAILS_OF_A_CHANNEL { MOST_MAILS_OF_A_TEAM } else { MAILS_OF_A_TEAM };
    sqlx::query_scalar!(
        r#"
        -- whether a team has had fewer e-mails since a time than it may. Those to a deleted channel count, too
        SELECT count(*) < $3 AS "may_send!"
          FROM (SELECT FROM notification_messages m
                  LEFT JOIN notification_channels c ON c.id = m.channel_id
                 WHERE m.team_id = $1 AND m.id >= uuid_v7_floor($2) AND m.created_on > $2 AND m.event <> 'test'
                   AND COALESCE(m.is_mail, c.kind = 'email', false)
                 LIMIT $3) AS mails
        "#,
        team_id,
        since,
        limit,
    )
    .fetch_one(db)
    .await
}
