//! Edits like those of the app's handlers: one transaction, with the app's own statements.

use std::sync::atomic::{AtomicU64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use db::Transaction;
use schedule::WorkflowId;
use serde_json::{Value, json};
use workflows::audit::Edit;
use workflows::definition::body::{WorkflowBody, patch_workflow};
use workflows::definition::patch::PatchKind;
use workflows::definition::spec::Bounds;
use workflows::{create_workflow, erase_workflow, lock_workflow, save_workflow};

use crate::world::World;

impl World {
    pub(crate) async fn create(&self, cron: &str, timezone: &str) -> WorkflowId {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let id = self.create_in(&mut tx, json!({"cron_schedule": cron, "timezone": timezone})).await;
        tx.commit().await.unwrap();
        id
    }

    pub(crate) async fn create_in(&self, tx: &mut Transaction, fields: Value) -> WorkflowId {
        let mut body = json!({"name": any_name(), "action": {"type": "log", "message": "hello"}});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let body: WorkflowBody = serde_json::from_value(body).unwrap();
        let spec = body.into_spec(None, &bounds(self.clock.now())).unwrap();
        create_workflow(tx, self.team, spec, None, &self.edit()).await.unwrap().id
    }

    /// An edit like PATCH, committed.
    pub(crate) async fn patch(&self, id: WorkflowId, fields: Value) {
        let tx = self.open_patch(id, fields).await;
        tx.commit().await.unwrap();
    }

    /// An edit that is not committed yet.
    pub(crate) async fn open_patch(&self, id: WorkflowId, fields: Value) -> Transaction {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let before = lock_workflow(&mut tx, id, None, self.clock.now()).await.unwrap().unwrap();
        let fields = fields.as_object().unwrap().clone();
        let bounds = bounds(self.clock.now());
        let spec = patch_workflow(&before.spec, fields, PatchKind::Merge, &bounds).unwrap();
        let next = workflows::Workflow { spec, ..before.clone() };
        save_workflow(&mut tx, &before, next, "update", &self.edit()).await.unwrap();
        tx
    }

    pub(crate) async fn set_state(&self, id: WorkflowId, state: workflows::State) {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let before = lock_workflow(&mut tx, id, None, self.clock.now()).await.unwrap().unwrap();
        let next = workflows::Workflow { state, ..before.clone() };
        save_workflow(&mut tx, &before, next, "state", &self.edit()).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) async fn delete(&self, id: WorkflowId) {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let before = lock_workflow(&mut tx, id, None, self.clock.now()).await.unwrap().unwrap();
        erase_workflow(&mut tx, &before, &self.edit()).await.unwrap();
        tx.commit().await.unwrap();
    }

    fn edit(&self) -> Edit {
        Edit::without_request("test", self.clock.now())
    }
}

fn any_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("w{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn bounds(now: DateTime<Utc>) -> Bounds {
    Bounds { now, retention: TimeDelta::days(90) }
}
