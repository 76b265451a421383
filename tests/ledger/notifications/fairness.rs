//! What a pass does first, if a team has a backlog or the receivers of many teams are silent.

use app::jobs::Did;
use notifications::delivery::{Carrier, Claimed, claim_messages};
use notifications::group::{Made, make_messages};
use notifications::route::{Routed, route_notifications};
use tests::Story;

use crate::database::query_plans::{one_connection, read_of};
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

/// Many messages of one team, half of which were tried before.
const MANY_DUE: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, attempt_count, created_on)
    SELECT gen_random_uuid(), 1001, 1001, 'run_failed', 1, cronbox_now() - n * INTERVAL '1 second', n % 2, cronbox_now()
      FROM generate_series(1, 50000) AS n";
/// Many new notifications of one team, and then one of another team. Their rules are deleted.
const MANY_NEW: &str = "
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on)
    SELECT 1, 1001, 'run_failed', n::text, cronbox_now() FROM generate_series(1, 5000) AS n;
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on)
    VALUES (1, 2000, 'run_failed', 'another', cronbox_now())";
/// The database refuses to route those of the first team.
const ONE_TEAM_IS_NOT_ROUTED: &str = "
    CREATE FUNCTION refuse_route() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not routed'; END $$;
    CREATE TRIGGER refuse_route BEFORE UPDATE ON notifications FOR EACH ROW
        WHEN (NEW.team_id = 1001) EXECUTE FUNCTION refuse_route()";
/// The new notifications of the other team.
const NEW_OF_THE_OTHER: &str = "SELECT count(*) FROM notifications WHERE team_id = 2000 AND state = 'new'";
/// A channel that is quiet until a minute before midnight, for which many notifications wait.
const QUIET_BACKLOG: &str = "
    INSERT INTO notification_channels (team_id, name, kind, max_per_hour, quiet_from, quiet_to, quiet_timezone, is_enabled, created_on, updated_on)
    SELECT min(id), 'quiet', 'aws', 60, 0, 1439, 'UTC', true, cronbox_now(), cronbox_now() FROM teams;
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT c.id, c.team_id, 'run_failed', n::text, cronbox_now(), 'routed' FROM notification_channels c, generate_series(1, 20000) AS n;
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
    SELECT id, rule_id, event, cronbox_now() - INTERVAL '1 hour' FROM notifications;
    ANALYZE";

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

#[tokio::test]
async fn a_claim_reads_no_backlog_of_a_team() {
    let s = Story::at(NOON).await;
    s.execute_long(MANY_DUE).await;
    s.execute(ONE_MORE).await;
    s.execute("ANALYZE notification_messages").await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "notification_messages").await;
    let mut one = pool.acquire().await.unwrap();
    let claimed = claim_messages(&mut one, Carrier::App).await.unwrap();
    drop(one);
    assert_eq!((of_team(&claimed, 1001), of_team(&claimed, 2000)), (4, 1));
    let read = read_of(&pool, "notification_messages").await - before;
    assert!(read < 200, "{read} of 50,001 messages");
    s.end().await;
}

#[tokio::test]
async fn a_round_routes_some_of_each_team() {
    let s = Story::at(NOON).await;
    s.execute(MANY_NEW).await;
    let round = route_notifications(&s.pool).await.unwrap();
    assert_eq!(round, Routed { notifications: 501, failed: 0, may_be_more: true });
    assert_eq!(s.count(NEW_OF_THE_OTHER).await, 0);
    s.job("notifications").await;
    // It begins rounds for five seconds.
    let left = "SELECT count(*) FROM notifications WHERE state = 'new'";
    assert!(s.count(left).await <= 3_500, "a turn has many rounds: {} of 4,500 are left", s.count(left).await);
    while let Did::Some(_) = s.job("notifications").await {}
    assert_eq!(s.count(left).await, 0);
    s.end().await;
}

#[tokio::test]
async fn a_failing_team_stops_no_other() {
    let s = Story::at(NOON).await;
    s.execute(MANY_NEW).await;
    s.execute(ONE_TEAM_IS_NOT_ROUTED).await;
    let failed = s.try_job("notifications").await.unwrap_err();
    assert!(failed.to_string().starts_with("1 teams or channels failed"), "{failed:#}");
    assert_eq!(s.count(NEW_OF_THE_OTHER).await, 0);
    s.end().await;
}

/// In each pass, for as long as the channel is quiet.
#[tokio::test]
async fn a_pass_reads_no_waiting_backlog() {
    let s = Story::at(NOON).await;
    s.execute_long(QUIET_BACKLOG).await;
    let pool = one_connection(&s).await;
    let before = read_of(&pool, "notification_items").await;
    assert_eq!(make_messages(&pool, s.clock.now()).await.unwrap(), Made::default());
    let read = read_of(&pool, "notification_items").await - before;
    assert!(read < 200, "{read} of 20,000 items");
    s.end().await;
}
