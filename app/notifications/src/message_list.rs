//! Step 7 of 7: lists messages by key, the newest first.

use api_types::notifications::MessageState;
use db::PgConnection;
use uuid::Uuid;
use workflows::keyset::KeysetPage;

use crate::message::Message;

/// Which messages a list has.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageFilter {
    /// Only of this team.
    pub team_id: Option<i64>,
    /// Only to this channel.
    pub channel_id: Option<i64>,
    /// Only in this state.
    pub state: Option<MessageState>,
}

/// The rows in whose order a page is read, each by its index.
#[derive(Clone, Copy)]
enum Scope {
    All,
    Team(i64),
    FailedOfTeam(i64),
}

/// Lists messages, the newest first. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_messages(
    db: &mut PgConnection,
    filter: MessageFilter,
    before: Option<Uuid>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Message, Uuid>> {
    let before = before.unwrap_or(Uuid::max());
    let rows = match filter.scope() {
        Scope::All => of_all(db, filter, before, limit).await?,
        Scope::Team(team) => of_team(db, team, filter, before, limit).await?,
        Scope::FailedOfTeam(team) => failed_of_team(db, team, filter, before, limit).await?,
    };
    let mut page = KeysetPage::of_rows(rows, limit, |message| message.id);
    if page.next.is_none() && (filter.channel_id.is_some() || filter.state.is_some()) {
        page.next = match filter.scope() {
            Scope::All => end_of_scan(db, before).await?,
            Scope::Team(team) => end_of_scan_of_team(db, team, before).await?,
            Scope::FailedOfTeam(team) => end_of_scan_of_failed(db, team, before).await?,
        };
    }
    Ok(page)
}

impl MessageFilter {
    fn scope(self) -> Scope {
        match (self.team_id, self.state) {
            (Some(team), Some(MessageState::Failed)) => Scope::FailedOfTeam(team),
            (Some(team), _) => Scope::Team(team),
            (None, _) => Scope::All,
        }
    }
}

/// Selects the messages of a page by a comment, a condition on the rows that it reads, the order of their index, and further
/// arguments. `query_as!` accepts only literals.
macro_rules! select_messages {
    ($comment:tt, $scope:tt, $order:tt, $filter:expr, $before:expr, $limit:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            Message,
            $comment
                + r#"
        SELECT m.id, m.channel_id, m.team_id, m.event, m.items, m.state, m.due_at, m.attempt_count, m.last_error, m.created_on,
               m.sent_on, m.failed_on
          FROM (SELECT * FROM notification_messages WHERE "#
                + $scope
                + " ORDER BY "
                + $order
                + r#" LIMIT 5000) AS m
         WHERE ($2::bigint IS NULL OR m.channel_id = $2) AND ($3::text IS NULL OR m.state = $3)
         ORDER BY m.id DESC
         LIMIT $4
        "#,
            $before,
            $filter.channel_id,
            $filter.state.map(MessageState::as_str),
            $limit + 1,
            $($arguments)*
        )
    };
}

async fn of_all(db: &mut PgConnection, filter: MessageFilter, before: Uuid, limit: i64) -> sqlx::Result<Vec<Message>> {
    select_messages!("-- list messages by key\n", "id < $1", "id DESC", filter, before, limit,).fetch_all(db).await
}

async fn of_team(
    db: &mut PgConnection,
    team: i64,
    filter: MessageFilter,
    before: Uuid,
    limit: i64,
) -> sqlx::Result<Vec<Message>> {
    select_messages!(
        "-- list the messages of a team by key, by idx_notification_messages_team\n",
        "(team_id, id) < ($5, $1) AND (team_id, id) >= ($5, '00000000-0000-0000-0000-000000000000')",
        "team_id DESC, id DESC",
        filter,
        before,
        limit,
        team
    )
    .fetch_all(db)
    .await
}

async fn failed_of_team(
    db: &mut PgConnection,
    team: i64,
    filter: MessageFilter,
    before: Uuid,
    limit: i64,
) -> sqlx::Result<Vec<Message>> {
    select_messages!(
        "-- list the failed messages of a team by key, by idx_notification_messages_failed\n",
        "state = 'failed' AND (team_id, id) < ($5, $1) AND (team_id, id) >= ($5, '00000000-0000-0000-0000-000000000000')",
        "team_id DESC, id DESC",
        filter,
        before,
        limit,
        team
    )
    .fetch_all(db)
    .await
}

async fn end_of_scan(db: &mut PgConnection, before: Uuid) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- the last message that the list read; none: it read all
        SELECT id FROM notification_messages WHERE id < $1 ORDER BY id DESC OFFSET 4999 LIMIT 1
        "#,
        before,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_team(db: &mut PgConnection, team: i64, before: Uuid) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- the last message of the team that the list read; none: it read all
        SELECT id FROM notification_messages
         WHERE (team_id, id) < ($1, $2) AND (team_id, id) >= ($1, '00000000-0000-0000-0000-000000000000')
         ORDER BY team_id DESC, id DESC
        OFFSET 4999 LIMIT 1
        "#,
        team,
        before,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_failed(db: &mut PgConnection, team: i64, before: Uuid) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- the last failed message of the team that the list read; none: it read all
        SELECT id FROM notification_messages
         WHERE state = 'failed' AND (team_id, id) < ($1, $2)
           AND (team_id, id) >= ($1, '00000000-0000-0000-0000-000000000000')
         ORDER BY team_id DESC, id DESC
        OFFSET 4999 LIMIT 1
        "#,
        team,
        before,
    )
    .fetch_optional(db)
    .await
}
