//! What attacks share: a database with two teams, and their keys and runs.

use std::time::{Duration, Instant};

use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use uuid::Uuid;

/// A stack whose own app executes no run, so that the attacked process does.
pub(crate) async fn idle_story() -> Story {
    Story::with(StackOptions { app: |config| config.executor_slots = 0, ..StackOptions::default() }).await
}

/// A new key, as the API shows it once: `id`, `key`, `prefix`.
pub(crate) async fn create_key(s: &Story, body: Value) -> Value {
    s.admin().post("/api/v1/keys", &body).await.expect(201).json
}

/// The text of a new key of a team.
pub(crate) async fn team_key(s: &Story, team: i64, role: &str) -> String {
    let name = format!("{role} {}", Uuid::new_v4());
    let key = create_key(s, json!({"name": name, "kind": "team", "team_id": team, "role": role})).await;
    key["key"].as_str().unwrap().to_owned()
}

/// The id of a new team.
pub(crate) async fn create_team(s: &Story, name: &str) -> i64 {
    s.admin().post("/api/v1/teams", &json!({"name": name})).await.expect(201).id()
}

/// Fires a workflow as the team's editor; returns the id of its run.
pub(crate) async fn fire(s: &Story, workflow: WorkflowId) -> Uuid {
    let fired = s.editor().post_empty(&format!("/api/v1/schedules/{workflow}:fire")).await.expect(202);
    fired.json["run_id"].as_str().unwrap().parse().unwrap()
}

/// The row of a run that has ended, or `None` if it does not end.
pub(crate) async fn ended_run(s: &Story, run: Uuid) -> Option<Value> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let read = "SELECT to_jsonb(r) FROM runs r WHERE id = $1 AND finished_on IS NOT NULL";
        let row: Option<Value> = sqlx::query_scalar(read).bind(run).fetch_optional(&s.pool).await.unwrap();
        if row.is_some() {
            return row;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// Replaces the action of a workflow by a statement, as if an older version with fewer checks had saved it.
pub(crate) async fn force_action(s: &Story, workflow: WorkflowId, action: &Value) {
    let write = "UPDATE workflows SET action = $2 WHERE id = $1";
    sqlx::query(write).bind(workflow.0).bind(action).execute(&s.pool).await.unwrap();
}
