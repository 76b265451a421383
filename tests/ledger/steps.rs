//! Steps of the ledger's stories.

use chrono::{DateTime, Utc};
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;

/// A stack without an executor: accepted runs stay accepted until the story ends them.
pub(crate) async fn standing_still(now: &str) -> Story {
    let app = |config: &mut app::Config| config.executor_slots = 0;
    Story::with(StackOptions { now: Some(now.parse().unwrap()), app, ..StackOptions::default() }).await
}

/// A workflow that fires every hour, with these policies.
pub(crate) async fn hourly(s: &Story, policies: Value) -> WorkflowId {
    let mut fields = json!({"cron_schedule": "0 * * * *", "timezone": "UTC"});
    fields.as_object_mut().unwrap().extend(policies.as_object().unwrap().clone());
    s.create_with(fields).await
}

/// Delivers a fire; returns `accepted`, or the reason why there is no run.
pub(crate) async fn fire(s: &Story, wf: WorkflowId, time: &str) -> String {
    let answer = s.invoke(wf, time).await;
    match answer.status {
        202 => "accepted".to_owned(),
        200 => answer.body["reason"].as_str().unwrap_or("?").to_owned(),
        status => format!("{status} {}", answer.code()),
    }
}

/// Delivers a fire five seconds after its scheduled time.
pub(crate) async fn fire_on_time(s: &Story, wf: WorkflowId, time: &str) -> String {
    s.set_clock(time.parse::<DateTime<Utc>>().unwrap() + chrono::TimeDelta::seconds(5)).await;
    fire(s, wf, time).await
}

/// Claims a workflow's accepted runs, as an executor does.
pub(crate) async fn claimed(s: &Story, wf: WorkflowId) {
    let claim =
        "UPDATE runs SET state = 'running', attempt = attempt + 1, started_on = $2, locked_by = gen_random_uuid(),
                                 locked_at = cronbox_now()
                  WHERE workflow_id = $1 AND state = 'accepted'";
    sqlx::query(claim).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
}

/// Ends a workflow's accepted and running runs, so that the next may start.
pub(crate) async fn ended(s: &Story, wf: WorkflowId) {
    let end = "UPDATE runs SET state = 'succeeded', finished_on = $2, locked_by = NULL, locked_at = NULL
                WHERE workflow_id = $1 AND state IN ('accepted', 'running')";
    sqlx::query(end).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    app::queue::advance(&s.pool, wf, s.clock.now()).await.unwrap();
}

/// Starts a run that is not a fire of the schedule; returns its state.
pub(crate) async fn begun(s: &Story, wf: WorkflowId, trigger: app::runs::Trigger, time: &str) -> String {
    let now = s.clock.now();
    let mut tx = db::begin(&s.pool).await.unwrap();
    let workflow = app::workflows::lock(&mut tx, wf, None, now).await.unwrap().unwrap();
    let state = match app::overlap::verdict(&mut tx, &workflow, trigger, now).await.unwrap().state() {
        Ok(state) => state,
        Err(reason) => return reason.to_owned(),
    };
    let run = app::runs::New {
        id: app::id::at(now),
        workflow_id: wf,
        team_id: workflow.team_id,
        occurrence_id: None,
        trigger,
        state,
        scheduled_time: Some(time.parse().unwrap()),
        run_after: now,
        inputs: None,
        backfill_id: None,
        now,
    };
    app::runs::accept(&mut tx, &run).await.unwrap();
    tx.commit().await.unwrap();
    format!("{state:?}").to_lowercase()
}
