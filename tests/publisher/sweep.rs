//! The sweep finds and repairs changes in EventBridge that cronbox did not make.

mod brake;
mod foreign_schedules;
mod generations;
mod missing_schedules;
mod orphans;
mod repairs;
mod restore;
mod tombstones;
mod turns;
mod vanished_workflows;

use std::time::Duration;

use chrono::TimeDelta;
use publisher::{Findings, Swept};
use reqwest::Method;
use schedule::{Clock, WorkflowId};
use serde_json::{Value, json};

use crate::world::{LIST, World, soon};

/// After this time a published schedule counts as settled.
const SETTLED: Duration = Duration::from_secs(120);

impl World {
    /// A requested sweep by a new publisher.
    pub(crate) async fn sweep(&self) -> Findings {
        match self.sweep_on_request().await {
            Swept::Done(findings) => findings,
            other => panic!("not done: {other:?}"),
        }
    }

    async fn sweep_on_request(&self) -> Swept {
        let publisher = self.publisher().await;
        publisher.request_sweep("test").await.unwrap();
        publisher.sweep_schedules(soon()).await.unwrap()
    }

    /// `count` workflows whose schedules are settled and known to the sweep.
    async fn in_step(&self, count: usize) -> Vec<WorkflowId> {
        let workflows = self.published(count).await;
        self.skip(SETTLED).await;
        assert_eq!(self.sweep().await.total_drift(), 0);
        self.front.take_calls();
        workflows
    }

    async fn published(&self, count: usize) -> Vec<WorkflowId> {
        let mut workflows = Vec::new();
        for minute in 0..count {
            workflows.push(self.create(&format!("{} 9 * * *", minute % 60), "UTC").await);
        }
        self.publish().await;
        workflows
    }

    /// Advances EventBridge's clock, so that later changes get another modification date.
    fn later(&self) {
        match &self.clock {
            Clock::Fixed(hand) => hand.advance_by(TimeDelta::minutes(1)),
            Clock::System | Clock::Sampled(_) => {}
        }
    }

    /// The schedule in EventBridge, without its dates.
    async fn shown(&self, id: WorkflowId) -> Option<Value> {
        let mut schedule = self.schedule(id).await?;
        for date in ["CreationDate", "LastModificationDate"] {
            schedule.as_object_mut().unwrap().remove(date);
        }
        Some(schedule)
    }

    /// An operator changes some fields of a schedule in the console.
    async fn change(&self, id: WorkflowId, fields: Value) {
        let mut body = self.shown(id).await.unwrap();
        for its_own in ["Arn", "Name"] {
            body.as_object_mut().unwrap().remove(its_own);
        }
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.meddle(Method::PUT, id, body).await;
    }

    async fn remove(&self, id: WorkflowId) {
        self.meddle(Method::DELETE, id, json!({})).await;
    }

    /// A statement of a program other than the app.
    async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }

    /// A sweep that an operator forces.
    async fn force_sweep(&self) -> Findings {
        self.execute("INSERT INTO sweeps (requested_by, force, requested_on) VALUES ('key:x', TRUE, cronbox_now())")
            .await;
        self.sweep().await
    }

    /// How many of these workflows' schedules exist.
    pub(crate) async fn existing(&self, workflows: &[WorkflowId]) -> usize {
        let mut existing = 0;
        for id in workflows {
            existing += usize::from(self.schedule(*id).await.is_some());
        }
        existing
    }

    /// How many GET calls with such a name were made since the last count.
    fn count_calls(&self, is: impl Fn(&str) -> bool) -> usize {
        self.front.take_calls().iter().filter(|call| call.method == "GET" && is(&call.name)).count()
    }

    fn count_lists(&self) -> usize {
        self.count_calls(|name| name == LIST)
    }
}
