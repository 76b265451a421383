//! Which messages a carrier claims first, if the receivers of many teams are silent.

use notifications::delivery::{Carrier, Claimed, claim_messages};
use tests::Story;

use crate::receiver::NOON;

/// Ten teams, each with fifty messages that wait for an hour; half of them were tried before.
const TEN_SILENT_TEAMS: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, attempt_count, created_on)
    SELECT gen_random_uuid(), team, team, 'run_failed', 1, cronbox_now() - INTERVAL '1 hour', nth % 2, cronbox_now()
      FROM generate_series(1001, 1010) AS team, generate_series(1, 50) AS nth";
/// Two hundred teams, each with messages that are due again for an hour.
const MANY_SILENT_TEAMS: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, attempt_count, created_on)
    SELECT gen_random_uuid(), team, team, 'run_failed', 1, cronbox_now() - INTERVAL '1 hour', 3, cronbox_now()
      FROM generate_series(1001, 1200) AS team, generate_series(1, 5) AS nth";
/// A message of another team, due now.
const ONE_MORE: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on)
    VALUES (gen_random_uuid(), 2000, 2000, 'run_failed', 1, cronbox_now(), cronbox_now())";
/// A new message of a team that has messages to a silent receiver.
const ONE_OF_A_SILENT_TEAM: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on)
    VALUES (gen_random_uuid(), 2001, 1001, 'run_failed', 1, cronbox_now(), cronbox_now())";

async fn claim(s: &Story) -> Vec<Claimed> {
    let mut connection = s.pool.acquire().await.unwrap();
    claim_messages(&mut connection, Carrier::App).await.unwrap()
}

/// How many of these messages are of a team.
fn of_team(claimed: &[Claimed], team_id: i64) -> usize {
    claimed.iter().filter(|message| message.team_id == team_id).count()
}

#[tokio::test]
async fn silent_teams_delay_no_other_team() {
    let s = Story::at(NOON).await;
    s.execute(TEN_SILENT_TEAMS).await;
    let claimed = claim(&s).await;
    assert_eq!(claimed.len(), 32);
    assert!((1001..=1010).all(|team| (3..=4).contains(&of_team(&claimed, team))), "{claimed:?}");
    s.execute(ONE_MORE).await;
    assert_eq!(of_team(&claim(&s).await, 2000), 1, "in the next claim");
    s.end().await;
}

/// More teams are silent than a claim has messages.
#[tokio::test]
async fn new_messages_precede_retries_of_others() {
    let s = Story::at(NOON).await;
    s.execute(MANY_SILENT_TEAMS).await;
    assert_eq!(claim(&s).await.len(), 32);
    s.execute(ONE_MORE).await;
    s.execute(ONE_OF_A_SILENT_TEAM).await;
    let claimed = claim(&s).await;
    assert_eq!(of_team(&claimed, 2000), 1);
    let is_new = |message: &&Claimed| message.attempt_count == 1;
    assert_eq!(claimed.iter().filter(is_new).count(), 2, "also that of a team with silent receivers: {claimed:?}");
    s.end().await;
}

/// A team that always has new messages still repeats its old ones.
#[tokio::test]
async fn new_messages_and_retries_take_turns() {
    let s = Story::at(NOON).await;
    s.execute(TEN_SILENT_TEAMS).await;
    s.execute("DELETE FROM notification_messages WHERE team_id > 1001").await;
    let claimed = claim(&s).await;
    let mut attempts: Vec<i32> = claimed.iter().map(|message| message.attempt_count).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 1, 2, 2]);
    s.end().await;
}
