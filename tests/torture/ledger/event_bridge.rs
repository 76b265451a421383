//! EventBridge as the histories of the ledger have it: it fires the schedules that it has, which may be outdated.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use chrono::{DateTime, TimeDelta, Timelike, Utc};
use futures::future::join_all;
use schedule::Clock;
use serde_json::{Value, json};

use super::instance::{Answer, Caller, Instance};
use super::oracle::Observed;
use crate::random::Dice;

/// A workflow, as a caller knows it.
#[derive(Clone, Copy, sqlx::FromRow)]
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) revision: i64,
}

/// Fires workflows.
pub(super) struct EventBridge {
    pub(super) dice: Dice,
    pub(super) clock: Clock,
    pub(super) observed: Arc<Mutex<Observed>>,
}

/// A fire of a workflow.
pub(super) struct Fire {
    pub(super) workflow: i64,
    pub(super) time: DateTime<Utc>,
    body: Value,
}

impl EventBridge {
    /// Fires can be duplicate, late, or a little early.
    pub(super) fn next_fire(&self, Known { id, revision }: Known) -> Option<Fire> {
        let ago = self.dice.weighted(&[(8, (0, 0)), (4, (1, 1)), (2, (2, 4)), (2, (4, 12)), (1, (12, 60))])?;
        let ago = i64::try_from(self.dice.between(ago.0, ago.1)).unwrap_or_default();
        let ago = if self.dice.chance(0.04) { -1 } else { ago };
        let now = self.clock.now();
        let time = now.with_second(0)?.with_nanosecond(0)? - TimeDelta::minutes(ago);
        let spelled = match self.dice.between(0, 3) {
            0 => time.format("%Y-%m-%dT%H:%M:07.25Z").to_string(),
            1 => time.to_rfc3339(),
            2 => (time + TimeDelta::hours(2)).format("%Y-%m-%dT%H:%M:00+02:00").to_string(),
            _ => time.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
        };
        let revision = if self.dice.chance(0.7) { revision } else { (revision - 1).max(1) };
        let body = json!({"scheduled_time": spelled, "revision": revision, "execution_id": "e", "attempt": "1"});
        Some(Fire { workflow: id, time, body })
    }

    /// Fires one to three workflows at the same moment.
    pub(super) async fn fire_some(&self, workflows: &[Known], instance: &Instance) {
        let known = (0..self.dice.between(1, 3)).filter_map(|_| self.dice.pick(workflows).copied());
        let fires: Vec<Fire> = known.filter_map(|known| self.next_fire(known)).collect();
        join_all(fires.into_iter().map(|fire| self.send_fire(instance, fire))).await;
    }

    pub(super) async fn send_fire(&self, instance: &Instance, Fire { workflow, time, body }: Fire) {
        let path = format!("/cron/workflows/{workflow}:invoke");
        let answer = instance.call(Caller::Runner, Method::POST, &path, Some(body)).await;
        record_answer(&self.observed, &path, &answer);
        if let (202, Some(run)) = (answer.0, answer.1["run_id"].as_str().and_then(|run| run.parse().ok())) {
            self.observed.lock().unwrap().accepted.entry((workflow, time)).or_default().push(run);
        }
    }
}

/// An instance without a database answers 503; any other 5xx is an error.
pub(super) fn record_answer(observed: &Mutex<Observed>, path: &str, (status, body): &Answer) {
    if *status >= 500 && *status != 503 {
        observed.lock().unwrap().broken.push(format!("{path}: {status} {body}"));
    }
}
