//! Step 1 of 7: which team owns an object. A person of several teams acts in that team.

use db::PgConnection;
use uuid::Uuid;

/// An object that belongs to a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedObject {
    /// A workflow, and its schedule.
    Workflow(i64),
    /// A run.
    Run(Uuid),
    /// A backfill.
    Backfill(Uuid),
    /// A bulk operation.
    Bulk(Uuid),
    /// A freeze; one of all teams belongs to none.
    Freeze(Uuid),
    /// A dead letter; one whose workflow is not known belongs to none.
    DeadLetter(i64),
    /// A channel for notifications.
    NotificationChannel(i64),
    /// A rule for notifications.
    NotificationRule(i64),
    /// A notification.
    Notification(i64),
    /// A message about notifications.
    NotificationMessage(Uuid),
    /// The team itself.
    Team(i64),
}

/// Returns the team that owns an object; `None` if the object does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_owner(db: &mut PgConnection, object: OwnedObject) -> sqlx::Result<Option<i64>> {
    match object {
        OwnedObject::Team(id) => Ok(Some(id)),
        OwnedObject::Workflow(id) => owner_of_workflow(db, id).await,
        OwnedObject::Run(id) => owner_of_run(db, id).await,
        OwnedObject::Backfill(id) => owner_of_backfill(db, id).await,
        OwnedObject::Bulk(id) => owner_of_bulk(db, id).await,
        OwnedObject::Freeze(id) => owner_of_freeze(db, id).await,
        OwnedObject::DeadLetter(id) => owner_of_dead_letter(db, id).await,
        OwnedObject::NotificationChannel(id) => owner_of_channel(db, id).await,
        OwnedObject::NotificationRule(id) => owner_of_rule(db, id).await,
        OwnedObject::Notification(id) => owner_of_notification(db, id).await,
        OwnedObject::NotificationMessage(id) => owner_of_message(db, id).await,
    }
}

async fn owner_of_workflow(db: &mut PgConnection, id: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a workflow
        SELECT team_id FROM workflows WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_run(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a run
        SELECT w.team_id FROM runs r JOIN workflows w ON w.id = r.workflow_id WHERE r.id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_backfill(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a backfill
        SELECT w.team_id FROM backfills b JOIN workflows w ON w.id = b.workflow_id WHERE b.id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_bulk(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a bulk operation
        SELECT team_id FROM bulk_operations WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_freeze(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<i64>> {
    let owner = sqlx::query_scalar!(
        r#"
        -- the team that owns a freeze
        SELECT team_id FROM freezes WHERE id = $1
        "#,
        id,
    );
    Ok(owner.fetch_optional(db).await?.flatten())
}

async fn owner_of_dead_letter(db: &mut PgConnection, id: i64) -> sqlx::Result<Option<i64>> {
    let owner = sqlx::query_scalar!(
        r#"
        -- the team that owns a dead letter
        SELECT team_id FROM dead_letters WHERE id = $1
        "#,
        id,
    );
    Ok(owner.fetch_optional(db).await?.flatten())
}

async fn owner_of_channel(db: &mut PgConnection, id: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a channel for notifications
        SELECT team_id FROM notification_channels WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_rule(db: &mut PgConnection, id: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a rule for notifications
        SELECT team_id FROM notification_rules WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_notification(db: &mut PgConnection, id: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a notification
        SELECT team_id FROM notifications WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

async fn owner_of_message(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the team that owns a message about notifications
        SELECT team_id FROM notification_messages WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}
