//! The actions and checks of a test, in the terms of the domain.

use std::time::{Duration, Instant};

use anyhow::Result;
use app::jobs::Did;
use chrono::{DateTime, Utc};
use publisher::Report;
use reqwest::Method;
use schedule::{ScheduleName, WorkflowId};
use serde_json::{Value, json};
use stand_in::scheduler::stored_schedule::{Key, Schedule};

use super::answer::{Answer, send_request};
use super::parts::{GROUP, PATIENCE, parse_environment};
use super::{Stack, database};

/// Edits and fires.
impl Stack {
    /// Creates a workflow of the stack's team with a `log` action.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn create(&self, cron: &str, timezone: &str) -> WorkflowId {
        self.create_with(json!({ "cron_schedule": cron, "timezone": timezone })).await
    }

    /// Creates a workflow; by default it has a unique name and a `log` action.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn create_with(&self, fields: Value) -> WorkflowId {
        let mut body = json!({
            "name": format!("workflow {}", uuid::Uuid::new_v4()),
            "action": { "type": "log", "message": "hello" },
        });
        merge(&mut body, fields);
        let made = self.send_as_editor(Method::POST, "/workflows", Some(body)).await;
        assert_eq!(made.status, 201, "{}", made.body);
        WorkflowId(made.body["id"].as_i64().unwrap_or_default())
    }

    /// Changes a workflow by a merge patch, in which null restores a default; the last writer wins.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn edit(&self, workflow: WorkflowId, fields: Value) -> Answer {
        let url = format!("{}/api/v1/workflows/{workflow}", self.url());
        let request = self.http.patch(url).header("X-API-Key", &self.keys.editor);
        let edited = send_request(request.header("Content-Type", "application/merge-patch+json").json(&fields)).await;
        let edited = edited.unwrap_or_else(|error| panic!("no answer to the edit: {error:#}"));
        assert_eq!(edited.status, 200, "{}", edited.body);
        edited
    }

    /// Pauses a workflow.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn pause(&self, workflow: WorkflowId) {
        let paused = self
            .send_as_editor(Method::POST, &format!("/workflows/{workflow}:pause"), Some(json!({"reason": "test"})))
            .await;
        assert_eq!(paused.status, 200, "{}", paused.body);
    }

    /// Resumes a workflow.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn resume(&self, workflow: WorkflowId) {
        let resumed = self.send_as_editor(Method::POST, &format!("/workflows/{workflow}:resume"), None).await;
        assert_eq!(resumed.status, 200, "{}", resumed.body);
    }

    /// Archives a workflow.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn archive(&self, workflow: WorkflowId) {
        let archived = self.send_as_editor(Method::POST, &format!("/workflows/{workflow}:archive"), None).await;
        assert_eq!(archived.status, 200, "{}", archived.body);
    }

    /// Deletes a workflow permanently.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn delete(&self, workflow: WorkflowId) {
        let url = format!("{}/api/v1/workflows/{workflow}", self.url());
        let deleted = self.send_with_key(Method::DELETE, &url, &self.keys.admin, None).await;
        assert!(deleted.status < 300, "{} {}", deleted.status, deleted.body);
    }

    /// Calls `:invoke` as the runner would.
    ///
    /// # Panics
    /// Panics if the app does not answer.
    pub async fn invoke(&self, workflow: WorkflowId, scheduled_time: &str) -> Answer {
        self.invoke_at(self.url(), workflow, json!({ "scheduled_time": scheduled_time })).await
    }

    /// Calls `:invoke` of one of the apps.
    ///
    /// # Panics
    /// Panics if the app does not answer.
    pub async fn invoke_at(&self, app: &str, workflow: WorkflowId, body: Value) -> Answer {
        let url = format!("{app}/api/v1/cron/workflows/{workflow}:invoke");
        self.send_with_key(Method::POST, &url, &self.keys.scheduler, Some(body)).await
    }

    /// Publishes all workflows that are due.
    ///
    /// # Panics
    /// Panics if the publisher fails.
    pub async fn publish(&self) -> Report {
        self.publisher.publish_once().await.unwrap_or_else(|error| panic!("the publisher failed: {error:#}"))
    }

    /// Runs one turn of a background job of the app now.
    ///
    /// # Panics
    /// Panics if the job does not exist or fails.
    pub async fn job(&self, name: &str) -> Did {
        self.try_job(name).await.unwrap_or_else(|error| panic!("{name} failed: {error:#}"))
    }

    /// Runs one turn of a background job that may fail.
    ///
    /// # Errors
    /// Fails like the job.
    ///
    /// # Panics
    /// Panics if the job does not exist.
    pub async fn try_job(&self, name: &str) -> anyhow::Result<Did> {
        let jobs = app::jobs::all_jobs(&self.app().config);
        let Some(job) = jobs.into_iter().find(|job| job.name == name) else { panic!("there is no job {name}") };
        (job.run)(self.app().clone()).await
    }

    /// Advances both clocks to every time at which a schedule fires or a delivery is retried, and delivers.
    ///
    /// Returns after all runs of these fires have ended.
    ///
    /// # Panics
    /// Panics if the stack's clock was not set, or if a run does not end.
    pub async fn clock_to(&self, until: &str) {
        let until: DateTime<Utc> = until.parse().unwrap_or_else(|error| panic!("{until} is no time: {error}"));
        while let Some(due) = self.stand_in.fires.next_due(until) {
            self.set_clock(due.max(self.clock.now())).await;
            self.stand_in.fires.fire_and_deliver(due).await;
            self.runs_end().await;
        }
        self.set_clock(until).await;
        self.runs_end().await;
    }

    /// Sets both clocks, and fires nothing.
    ///
    /// # Panics
    /// Panics if the stack's clock was not set, or if the database cannot be reached.
    pub async fn set_clock(&self, now: DateTime<Utc>) {
        self.clock.set(now);
        let set = database::set_clock(&self.pool, now).await;
        set.unwrap_or_else(|error| panic!("cronbox_now() cannot be set: {error}"));
    }

    /// Sets only the database's clock, and makes the app sample it; the machine's clock does not change.
    ///
    /// # Panics
    /// Panics if the database cannot be reached.
    pub async fn set_database_clock(&self, now: DateTime<Utc>) {
        let set = database::take_clock(&self.pool, now).await;
        set.unwrap_or_else(|error| panic!("cronbox_now() cannot be set: {error}"));
        let sampled = self.app().database_time().await;
        sampled.unwrap_or_else(|error| panic!("the app cannot sample the database's time: {error}"));
    }

    /// Returns after every run that may start has ended.
    ///
    /// # Panics
    /// Panics if a run does not end.
    pub async fn runs_end(&self) {
        let count = "SELECT count(*) FROM runs WHERE finished_on IS NULL AND run_after <= $1";
        let started = Instant::now();
        loop {
            let going: sqlx::Result<i64> = sqlx::query_scalar(count).bind(self.clock.now()).fetch_one(&self.pool).await;
            match going {
                Ok(0) => return,
                Ok(going) => assert!(started.elapsed() < PATIENCE, "{going} runs do not end"),
                Err(error) => panic!("the runs cannot be counted: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The results.
impl Stack {
    /// A workflow's runs, oldest first, one line each: `2026-03-29T07:00Z schedule succeeded`.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn runs(&self, workflow: WorkflowId) -> String {
        self.history(workflow, "runs", &["trigger", "state"]).await
    }

    /// A workflow's occurrences, oldest first, one line each: `2026-03-29T07:00Z fired`.
    ///
    /// # Panics
    /// Panics if the app refuses the request.
    pub async fn occurrences(&self, workflow: WorkflowId) -> String {
        self.history(workflow, "occurrences", &["decision"]).await
    }

    /// The schedule in the stand-in: `cron(0 9 * * ? *) Europe/Paris ENABLED`, or `none`.
    pub fn schedule(&self, workflow: WorkflowId) -> String {
        match self.read_schedule(workflow) {
            Ok(schedule) => {
                let spec = &schedule.spec;
                format!("{} {} {}", spec.expression_text, spec.timezone.name(), spec.state.as_str())
            }
            Err(_) => "none".to_owned(),
        }
    }

    /// Returns the schedule of a workflow in the stand-in.
    ///
    /// # Errors
    /// Fails if none exists.
    pub fn read_schedule(&self, workflow: WorkflowId) -> Result<std::sync::Arc<Schedule>> {
        let name = ScheduleName::new(workflow, &parse_environment()?).as_str().to_owned();
        let found = self.stand_in.scheduler.lock_store().get(&Key { group: GROUP.to_owned(), name });
        found.map_err(|_| anyhow::anyhow!("workflow {workflow} has no schedule"))
    }

    /// A workflow as the API shows it.
    ///
    /// # Panics
    /// Panics if the app does not answer.
    pub async fn workflow(&self, workflow: WorkflowId) -> Value {
        self.send_as_editor(Method::GET, &format!("/workflows/{workflow}"), None).await.body
    }

    /// How many outbox rows a workflow has had.
    ///
    /// # Panics
    /// Panics if the database cannot be reached.
    pub async fn outbox_rows(&self, workflow: WorkflowId) -> i64 {
        let count = "SELECT count(*) FROM outbox_events WHERE aggregate_id = $1";
        let rows = sqlx::query_scalar(count).bind(workflow.0).fetch_one(&self.pool).await;
        rows.unwrap_or_else(|error| panic!("the outbox cannot be counted: {error}"))
    }

    async fn history(&self, workflow: WorkflowId, what: &str, fields: &[&str]) -> String {
        let listed = self.send_as_editor(Method::GET, &format!("/schedules/{workflow}/{what}?limit=200"), None).await;
        assert_eq!(listed.status, 200, "{}", listed.body);
        let items = listed.body["items"].as_array().cloned().unwrap_or_default();
        let mut lines: Vec<String> = items.iter().map(|item| line(item, fields)).collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

fn line(item: &Value, fields: &[&str]) -> String {
    let time = item["scheduled_time"].as_str().and_then(|time| time.parse::<DateTime<Utc>>().ok());
    let time = time.map_or_else(|| "untimed".to_owned(), |time| time.format("%FT%RZ").to_string());
    let rest = fields.iter().map(|field| item[*field].as_str().unwrap_or("?"));
    std::iter::once(time.as_str()).chain(rest).collect::<Vec<_>>().join(" ")
}

fn merge(body: &mut Value, fields: Value) {
    if let (Value::Object(body), Value::Object(fields)) = (body, fields) {
        body.extend(fields);
    }
}
