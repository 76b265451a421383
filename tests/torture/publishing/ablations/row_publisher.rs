//! The common part of the row-wise publishers: they read the current workflow, and call EventBridge.

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::error::ProvideErrorMetadata;
use aws_sdk_scheduler::types::{
    DeadLetterConfig, FlexibleTimeWindow, FlexibleTimeWindowMode, RetryPolicy, ScheduleState, Target,
};
use db::PgConnection;
use serde_json::json;

use crate::publishing::oracle::{CRONS, DESCRIPTION};
use crate::turnstile::Turnstile;

/// A publisher that claims rows.
#[derive(Clone)]
pub(crate) struct RowPublisher {
    pub(crate) pool: db::PgPool,
    pub(crate) client: Client,
    pub(crate) turnstile: Turnstile,
}

/// The schedule that a workflow wants.
pub(crate) struct Wanted {
    id: i64,
    /// Expression, timezone and state; `None` = no schedule.
    schedule: Option<(&'static str, String, ScheduleState)>,
}

/// Whether EventBridge has accepted the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    No,
}

pub(crate) async fn read_wanted(db: &mut PgConnection, id: i64) -> sqlx::Result<Wanted> {
    let row: Option<(Option<String>, Option<String>, String)> =
        sqlx::query_as("SELECT cron_schedule, timezone, state FROM workflows WHERE id = $1 AND state <> 'archived'")
            .bind(id)
            .fetch_optional(db)
            .await?;
    let schedule = row.and_then(|(cron, timezone, state)| {
        let expression = CRONS.iter().find(|(known, _)| Some(*known) == cron.as_deref())?.1;
        let state = if state == "paused" { ScheduleState::Disabled } else { ScheduleState::Enabled };
        Some((expression, timezone.unwrap_or_else(|| "UTC".to_owned()), state))
    });
    Ok(Wanted { id, schedule })
}

impl RowPublisher {
    pub(crate) async fn call(&self, wanted: Wanted) -> Done {
        let name = format!("wf-{}-dev", wanted.id);
        self.turnstile.wait("P6").await;
        let Some((expression, timezone, state)) = wanted.schedule else {
            let deleted = self.client.delete_schedule().name(name).group_name("cronbox-test").send().await;
            self.turnstile.wait("P8").await;
            return deleted.map_or_else(|error| gone(error.code()), |_| Done::Yes);
        };
        let window = FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap();
        let create = self.client.create_schedule().name(&name).group_name("cronbox-test");
        let create =
            create.schedule_expression(expression).schedule_expression_timezone(&timezone).state(state.clone());
        let create = create.description(DESCRIPTION).flexible_time_window(window.clone()).target(target(wanted.id));
        let created = create.send().await;
        self.turnstile.wait("P8").await;
        match created {
            Ok(_) => Done::Yes,
            Err(error) if error.code() == Some("ConflictException") => {
                let update = self.client.update_schedule().name(&name).group_name("cronbox-test");
                let update =
                    update.schedule_expression(expression).schedule_expression_timezone(&timezone).state(state);
                let update = update.description(DESCRIPTION).flexible_time_window(window).target(target(wanted.id));
                let updated = update.send().await;
                self.turnstile.wait("P8").await;
                updated.map_or(Done::No, |_| Done::Yes)
            }
            Err(_) => Done::No,
        }
    }
}

fn gone(code: Option<&str>) -> Done {
    if code == Some("ResourceNotFoundException") { Done::Yes } else { Done::No }
}

fn target(id: i64) -> Target {
    let input = json!({
        "workflow_id": id,
        "scheduled_time": "<aws.scheduler.scheduled-time>",
        "execution_id": "<aws.scheduler.execution-id>",
        "attempt": "<aws.scheduler.attempt-number>",
        "schedule_arn": "<aws.scheduler.schedule-arn>",
    });
    Target::builder()
        .arn("arn:aws:lambda:us-east-1:123456789012:function:runner")
        .role_arn("arn:aws:iam::123456789012:role/scheduler")
        .dead_letter_config(DeadLetterConfig::builder().arn("arn:aws:sqs:us-east-1:123456789012:schedules-dlq").build())
        .retry_policy(RetryPolicy::builder().maximum_event_age_in_seconds(1800).maximum_retry_attempts(5).build())
        .input(input.to_string())
        .build()
        .unwrap()
}
