//! Step 7 of 7: notifications, one event of one rule each: reads and acknowledges them.

use api_types::notifications::{NotificationEvent, NotificationState, NotificationView};
use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::{Value, json};
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};

use crate::text::{self, Said};

/// A notification as it is stored, with the name of its workflow as it is now.
#[derive(Clone, Debug)]
pub struct Notification {
    /// Its id.
    pub id: i64,
    pub(crate) rule_id: i64,
    /// The team.
    pub team_id: i64,
    pub(crate) workflow_id: Option<i64>,
    pub(crate) workflow_name: Option<String>,
    pub(crate) event: String,
    pub(crate) happened_on: DateTime<Utc>,
    pub(crate) run_id: Option<Uuid>,
    pub(crate) scheduled_time: Option<DateTime<Utc>>,
    pub(crate) facts: Value,
    pub(crate) state: String,
    pub(crate) acknowledged_by: Option<String>,
    pub(crate) acknowledged_on: Option<DateTime<Utc>>,
    pub(crate) created_on: DateTime<Utc>,
}

impl Notification {
    /// What happened. The rules permit no other word.
    pub(crate) fn event(&self) -> NotificationEvent {
        NotificationEvent::parse(&self.event).unwrap_or(NotificationEvent::RunFailed)
    }

    /// What its sentence says.
    pub(crate) fn said(&self) -> Said<'_> {
        Said {
            event: self.event(),
            workflow_name: self.workflow_name.as_deref(),
            workflow_id: self.workflow_id,
            scheduled_time: self.scheduled_time,
            facts: &self.facts,
        }
    }

    /// Its facts for the channels of its team: those of a failed edit have a sentence in place of the words of EventBridge.
    pub(crate) fn facts_for_team(&self) -> Value {
        let mut facts = self.facts.clone();
        if self.event() == NotificationEvent::SyncFailed
            && let Some(members) = facts.as_object_mut()
        {
            members.insert("error".to_owned(), text::sync_error_of(&self.facts).into());
        }
        facts
    }

    /// The view of the API.
    #[must_use]
    pub fn view(&self) -> NotificationView {
        NotificationView {
            id: self.id,
            rule_id: self.rule_id,
            team_id: self.team_id,
            workflow_id: self.workflow_id,
            workflow_name: self.workflow_name.clone(),
            event: self.event(),
            text: text::sentence(&self.said()),
            happened_on: self.happened_on,
            run_id: self.run_id,
            scheduled_time: self.scheduled_time,
            state: NotificationState::parse(&self.state).unwrap_or(NotificationState::New),
            acknowledged_by: self.acknowledged_by.clone(),
            acknowledged_on: self.acknowledged_on,
            created_on: self.created_on,
        }
    }
}

/// Finds a notification of a team, or of any team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_notification(
    db: &mut PgConnection,
    id: i64,
    team_id: Option<i64>,
) -> sqlx::Result<Option<Notification>> {
    sqlx::query_as!(
        Notification,
        r#"
        -- find a notification
        SELECT n.id, n.rule_id, n.team_id, n.workflow_id, w.name AS "workflow_name?", n.event, n.happened_on, n.run_id,
               n.scheduled_time, n.facts, n.state, n.acknowledged_by, n.acknowledged_on, n.created_on
          FROM notifications n LEFT JOIN workflows w ON w.id = n.workflow_id
         WHERE n.id = $1 AND ($2::bigint IS NULL OR n.team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Acknowledges a notification. A repeated request changes nothing.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn acknowledge_notification(
    tx: &mut PgConnection,
    notification: &Notification,
    edit: &Edit,
) -> sqlx::Result<()> {
    let by = edit.actor_name.as_deref().unwrap_or(&edit.actor);
    let changed = sqlx::query!(
        r#"
        -- acknowledge a notification, once
        UPDATE notifications SET acknowledged_by = $2, acknowledged_on = $3 WHERE id = $1 AND acknowledged_on IS NULL
        "#,
        notification.id,
        by,
        edit.now,
    )
    .execute(&mut *tx)
    .await?;
    if changed.rows_affected() == 0 {
        return Ok(());
    }
    let subject = format!("notification:{}", notification.id);
    let after = Some(json!({"acknowledged_by": by}));
    let entry = Entry { verb: "acknowledge", subject, team_id: Some(notification.team_id), before: None, after };
    audit::record_entry(tx, edit, entry).await
}

/// The notifications of a message, in their order; at most `limit`.
pub(crate) async fn list_of_message(
    db: &mut PgConnection,
    message: Uuid,
    limit: i64,
) -> sqlx::Result<Vec<Notification>> {
    sqlx::query_as!(
        Notification,
        r#"
        -- the notifications of a message
        SELECT n.id, n.rule_id, n.team_id, n.workflow_id, w.name AS "workflow_name?", n.event, n.happened_on, n.run_id,
               n.scheduled_time, n.facts, n.state, n.acknowledged_by, n.acknowledged_on, n.created_on
          FROM notification_items i
          JOIN notifications n ON n.id = i.notification_id
          LEFT JOIN workflows w ON w.id = n.workflow_id
         WHERE i.message_id = $1
         ORDER BY n.id
         LIMIT $2
        "#,
        message,
        limit,
    )
    .fetch_all(db)
    .await
}
