//! Step 7 of 7: lists notifications by key, the newest first.

use api_types::notifications::NotificationEvent;
use db::PgConnection;
use workflows::keyset::KeysetPage;

use crate::notification::Notification;

/// Which notifications a list has.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotificationFilter {
    /// Only of this team.
    pub team_id: Option<i64>,
    /// Only of this workflow.
    pub workflow_id: Option<i64>,
    /// Only of this event.
    pub event: Option<NotificationEvent>,
    /// Only those that are acknowledged, or not.
    pub is_acknowledged: Option<bool>,
}

/// The rows in whose order a page is read, each by its index.
#[derive(Clone, Copy)]
enum Scope {
    All,
    Team(i64),
    Workflow(i64),
}

/// Lists notifications, the newest first. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_notifications(
    db: &mut PgConnection,
    filter: NotificationFilter,
    before: Option<i64>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Notification, i64>> {
    let before = before.unwrap_or(i64::MAX);
    let rows = match filter.scope() {
        Scope::All => of_all(db, filter, before, limit).await?,
        Scope::Team(team) => of_team(db, team, filter, before, limit).await?,
        Scope::Workflow(workflow) => of_workflow(db, workflow, filter, before, limit).await?,
    };
    let mut page = KeysetPage::of_rows(rows, limit, |notification| notification.id);
    if page.next.is_none() && filter.passes_over() {
        page.next = match filter.scope() {
            Scope::All => end_of_scan(db, before).await?,
            Scope::Team(team) => end_of_scan_of_team(db, team, before).await?,
            Scope::Workflow(workflow) => end_of_scan_of_workflow(db, workflow, before).await?,
        };
    }
    Ok(page)
}

impl NotificationFilter {
    fn scope(self) -> Scope {
        match (self.workflow_id, self.team_id) {
            (Some(workflow), _) => Scope::Workflow(workflow),
            (None, Some(team)) => Scope::Team(team),
            (None, None) => Scope::All,
        }
    }

    /// Whether rows of the scope may be passed over.
    fn passes_over(self) -> bool {
        let is_of_both = self.workflow_id.is_some() && self.team_id.is_some();
        is_of_both || self.event.is_some() || self.is_acknowledged.is_some()
    }
}

/// Selects the notifications of a page by a comment, a condition on the rows that it reads, the order of their index, and
/// further arguments. `query_as!` accepts only literals.
macro_rules! select_notifications {
    ($comment:tt, $scope:tt, $order:tt, $filter:expr, $before:expr, $limit:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            Notification,
            $comment
                + r#"
        SELECT n.id, n.rule_id, n.team_id, n.workflow_id, w.name AS "workflow_name?", n.event, n.happened_on, n.run_id,
               n.scheduled_time, n.facts, n.state, n.acknowledged_by, n.acknowledged_on, n.created_on
          FROM (SELECT * FROM notifications WHERE "#
                + $scope
                + " ORDER BY "
                + $order
                + r#" LIMIT 5000) AS n
          LEFT JOIN workflows w ON w.id = n.workflow_id
         WHERE ($2::bigint IS NULL OR n.team_id = $2)
           AND ($3::text IS NULL OR n.event = $3)
           AND ($4::bool IS NULL OR (n.acknowledged_on IS NOT NULL) = $4)
         ORDER BY n.id DESC
         LIMIT $5
        "#,
            $before,
            $filter.team_id,
            $filter.event.map(NotificationEvent::as_str),
            $filter.is_acknowledged,
            $limit + 1,
            $($arguments)*
        )
    };
}

async fn of_all(
    db: &mut PgConnection,
    filter: NotificationFilter,
    before: i64,
    limit: i64,
) -> sqlx::Result<Vec<Notification>> {
    select_notifications!("-- list notifications by key\n", "id < $1", "id DESC", filter, before, limit,)
        .fetch_all(db)
        .await
}

async fn of_team(
    db: &mut PgConnection,
    team: i64,
    filter: NotificationFilter,
    before: i64,
    limit: i64,
) -> sqlx::Result<Vec<Notification>> {
    select_notifications!(
        "-- list the notifications of a team by key, by idx_notifications_team\n",
        "(team_id, id) < ($6, $1) AND (team_id, id) >= ($6, 0)",
        "team_id DESC, id DESC",
        filter,
        before,
        limit,
        team
    )
    .fetch_all(db)
    .await
}

async fn of_workflow(
    db: &mut PgConnection,
    workflow: i64,
    filter: NotificationFilter,
    before: i64,
    limit: i64,
) -> sqlx::Result<Vec<Notification>> {
    select_notifications!(
        "-- list the notifications of a workflow by key, by idx_notifications_workflow\n",
        "(workflow_id, id) < ($6, $1) AND (workflow_id, id) >= ($6, 0) AND workflow_id IS NOT NULL",
        "workflow_id DESC, id DESC",
        filter,
        before,
        limit,
        workflow
    )
    .fetch_all(db)
    .await
}

async fn end_of_scan(db: &mut PgConnection, before: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last notification that the list read; none: it read all
        SELECT id FROM notifications WHERE id < $1 ORDER BY id DESC OFFSET 4999 LIMIT 1
        "#,
        before,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_team(db: &mut PgConnection, team: i64, before: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last notification of the team that the list read; none: it read all
        SELECT id FROM notifications
         WHERE (team_id, id) < ($1, $2) AND (team_id, id) >= ($1, 0)
         ORDER BY team_id DESC, id DESC
        OFFSET 4999 LIMIT 1
        "#,
        team,
        before,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_workflow(db: &mut PgConnection, workflow: i64, before: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last notification of the workflow that the list read; none: it read all
        SELECT id FROM notifications
         WHERE (workflow_id, id) < ($1, $2) AND (workflow_id, id) >= ($1, 0) AND workflow_id IS NOT NULL
         ORDER BY workflow_id DESC, id DESC
        OFFSET 4999 LIMIT 1
        "#,
        workflow,
        before,
    )
    .fetch_optional(db)
    .await
}
