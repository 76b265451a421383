//! Editors: each makes one edit with the app's own statements, and stops at the points between them.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgPool, Transaction};
use schedule::{Clock, WorkflowId};
use serde_json::{Value, json};
use workflows::audit::Edit;
use workflows::definition::body::{WorkflowBody, patch_workflow};
use workflows::definition::patch::PatchKind;
use workflows::definition::spec::Bounds;
use workflows::{State, Workflow, create_workflow, erase_workflow, lock_workflow, save_workflow};

use crate::publishing::oracle::{CRONS, Committed, EVERY_MINUTE, Oracle, TIMEZONES};
use crate::random::Dice;
use crate::turnstile::Turnstile;

/// The kinds of edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Cron,
    Timezone,
    Pause,
    Resume,
    Clear,
    Archive,
    Delete,
    /// Changes the start and the end of the window, or removes them.
    Window,
    /// Saves the workflow without a change.
    Nothing,
    /// Three edits in a row.
    Burst,
    /// A fire of a deleted workflow, for which the app requests a repair.
    CleanUp,
}

/// When an edit notifies the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emission {
    /// In the transaction of the edit, as shipped.
    Within,
    /// After its commit, as in a naive design.
    AfterCommit,
}

/// An actor that makes edits.
#[derive(Clone)]
pub(crate) struct Editor {
    pub(crate) pool: PgPool,
    pub(crate) team: i64,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    pub(crate) turnstile: Turnstile,
    pub(crate) oracle: Arc<Mutex<Oracle>>,
    pub(crate) emission: Emission,
}

impl Editor {
    /// Makes the edit. A cut database connection ends it, like a failed request.
    pub(crate) async fn edit(self, verb: Verb) {
        let done = match verb {
            Verb::Create => self.create().await,
            Verb::CleanUp => self.clean_up().await,
            Verb::Burst => {
                let target = self.any();
                self.change(target, Verb::Cron).await.ok();
                self.change(target, Verb::Timezone).await.ok();
                self.change(target, Verb::Cron).await
            }
            verb => self.change(self.any(), verb).await,
        };
        drop(done);
    }

    async fn create(&self) -> sqlx::Result<()> {
        let cron = self.cron();
        let (timezone, name) = (self.timezone(), format!("w{}", self.dice.between(0, u64::MAX)));
        let body = json!({"name": name, "action": {"type": "log", "message": "m"}, "cron_schedule": cron, "timezone": timezone});
        let body: WorkflowBody = serde_json::from_value(body).unwrap();
        let spec = body.into_spec(None, &bounds(self.clock.now())).unwrap();
        let mut tx = db::begin_transaction(&self.pool).await?;
        self.turnstile.wait("E1").await;
        let made = create_workflow(&mut tx, self.team, spec, None, &self.how()).await?;
        self.finish(tx, &made, None).await
    }

    async fn change(&self, target: Option<i64>, verb: Verb) -> sqlx::Result<()> {
        let Some(target) = target else { return Ok(()) };
        let mut tx = db::begin_transaction(&self.pool).await?;
        let locked = lock_workflow(&mut tx, WorkflowId(target), None, self.clock.now()).await?;
        let Some(before) = locked else { return Ok(()) };
        self.turnstile.wait("E1").await;
        if verb == Verb::Delete {
            erase_workflow(&mut tx, &before, &self.how()).await?;
            return self.finish(tx, &before, Some("deleted")).await;
        }
        // An archived workflow does not change any more.
        if before.state == State::Archived {
            return Ok(());
        }
        // The only valid edit of an ended workflow is another window.
        let Some(next) = self.changed(&before, verb) else { return Ok(()) };
        save_workflow(&mut tx, &before, next.clone(), "update", &self.how()).await?;
        self.finish(tx, &next, None).await
    }

    fn changed(&self, before: &Workflow, verb: Verb) -> Option<Workflow> {
        let next = before.clone();
        Some(match verb {
            Verb::Pause => Workflow { state: State::Paused, ..next },
            Verb::Resume => Workflow { state: State::Active, ..next },
            Verb::Archive => Workflow { state: State::Archived, ..next },
            Verb::Timezone => self.patched(next, json!({"timezone": self.timezone()}))?,
            Verb::Clear => self.patched(next, json!({"cron_schedule": null}))?,
            Verb::Window => self.patched(next, self.window())?,
            Verb::Nothing => next,
            _ => self.patched(next, json!({"cron_schedule": self.cron()}))?,
        })
    }

    fn patched(&self, next: Workflow, fields: Value) -> Option<Workflow> {
        let (fields, bounds) = (fields.as_object().unwrap().clone(), bounds(self.clock.now()));
        let spec = patch_workflow(&next.spec, fields, PatchKind::Merge, &bounds).ok()?;
        Some(Workflow { spec, ..next })
    }

    /// A start near the current time, and an end within the history or years later.
    fn window(&self) -> Value {
        let now = self.clock.now();
        let start = now + TimeDelta::seconds(*self.dice.pick(&[-86_400, -30, 30, 600, 86_400]).unwrap_or(&0));
        let end = *self.dice.pick(&[Some(45), Some(900), Some(86_400 * 1000), None]).unwrap_or(&None);
        let end = end.map(|secs| now.max(start) + TimeDelta::seconds(secs));
        json!({"cron_schedule": EVERY_MINUTE.0, "starts_at": self.dice.chance(0.7).then_some(start), "ends_at": end})
    }

    async fn clean_up(&self) -> sqlx::Result<()> {
        let ever = self.oracle.lock().unwrap_or_else(PoisonError::into_inner).ever();
        let Some(target) = self.dice.pick(&ever) else { return Ok(()) };
        let mut tx = db::begin_transaction(&self.pool).await?;
        workflows::outbox::enqueue_orphan_cleanup(&mut tx, WorkflowId(*target), self.clock.now()).await?;
        self.turnstile.wait("E2").await;
        tx.commit().await
    }

    /// Commits, and informs the oracle in the same step.
    async fn finish(&self, mut tx: Transaction, now: &Workflow, state: Option<&'static str>) -> sqlx::Result<()> {
        let withheld = match self.emission {
            Emission::Within => Vec::new(),
            Emission::AfterCommit => crate::publishing::ablations::after_commit::withhold(&mut tx, now.id).await?,
        };
        self.turnstile.wait("E2").await;
        tx.commit().await?;
        let as_text = match now.state {
            State::Active => "active",
            State::Paused => "paused",
            State::Archived => "archived",
        };
        let timing = &now.spec.timing;
        let committed = Committed {
            cron: timing.cron.clone(),
            timezone: timing.timezone.clone(),
            state: state.unwrap_or(as_text),
            starts_at: timing.starts_at,
            ends_at: timing.ends_at,
        };
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner).commit(now.id.0, committed);
        self.turnstile.wait("E3").await;
        crate::publishing::ablations::after_commit::emit(&self.pool, withheld).await
    }

    fn how(&self) -> Edit {
        Edit::without_request("torture", self.clock.now())
    }

    fn any(&self) -> Option<i64> {
        let alive = self.oracle.lock().unwrap_or_else(PoisonError::into_inner).alive();
        self.dice.pick(&alive).copied()
    }

    fn cron(&self) -> &'static str {
        self.dice.pick(&CRONS).map_or("0 9 * * *", |(cron, _)| cron)
    }

    fn timezone(&self) -> &'static str {
        self.dice.pick(&TIMEZONES).copied().unwrap_or("UTC")
    }
}

fn bounds(now: DateTime<Utc>) -> Bounds {
    Bounds { now, retention: TimeDelta::days(90) }
}
