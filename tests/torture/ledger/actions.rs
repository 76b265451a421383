//! The actions of the app's instances: requests of runners and people, jobs, and execution.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::Method;
use chrono::TimeDelta;
use executor::Step;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use schedule::Moment;
use serde_json::{Value, json};

use super::event_bridge::{EventBridge, Known, record_answer};
use super::history::{History, Profile};
use super::instance::{Caller, Instance};
use super::oracle::CRONS;

/// One action of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create,
    Edit,
    Fire,
    FireManually,
    /// A manual fire, cancellation, retry or backfill.
    Manual,
    Execute,
    /// A random job.
    Job,
    The(&'static str),
}

impl Action {
    /// The actions of the calm phase.
    pub(super) const ROUND: [Action; 6] = [
        Action::The("watchdog"),
        Action::The("recovery"),
        Action::The("timeouts"),
        Action::The("queue"),
        Action::The("backfills"),
        Action::Execute,
    ];
}

/// The point before an executor renews its leases.
pub(super) const BEAT: &str = "beat";
/// The point before it claims more, or hands over what it executes.
pub(super) const STEP: &str = "step";
/// The point before fires arrive at an instance while it executes.
pub(super) const FIRE: &str = "fire";

/// An action that is ready to run.
pub(super) struct Life {
    pub(super) what: String,
    pub(super) run: LocalBoxFuture<'static, ()>,
}

impl History<'_> {
    /// Prepares an action; `None` if it has no target.
    pub(super) async fn life(&self, action: Action, actor: usize, instance: &Instance) -> Option<Life> {
        match action {
            Action::Create => Some(self.create(instance)),
            Action::Edit => self.edit(instance).await,
            Action::Fire => self.fire(instance).await,
            Action::FireManually => self.fire_manually(instance).await,
            Action::Manual => self.request_manually(instance).await,
            Action::Execute => Some(self.execute(actor, instance).await),
            Action::Job => {
                let jobs = app::jobs::all_jobs(&instance.app.config);
                // A history has no bulk operation, no client that follows its events, and no receiver of pings.
                let left_out = ["prune", "bulk", "events", "heartbeat"];
                let names: Vec<&str> =
                    jobs.iter().map(|job| job.name).filter(|name| !left_out.contains(name)).collect();
                job(self.dice.pick(&names)?, instance)
            }
            Action::The(name) => job(name, instance),
        }
    }

    fn create(&self, instance: &Instance) -> Life {
        let action = if self.dice.chance(0.8) {
            json!({"type": "http", "method": "POST", "url": format!("http://{}/", self.stage.receives_at),
                   "headers": {"authorization": super::PASSWORD}})
        } else {
            json!({"type": "log", "message": "m"})
        };
        let body = json!({
            "name": format!("w{}", self.dice.between(0, u64::MAX)),
            "team_id": self.stage.team,
            "action": action,
            "cron_schedule": self.cron(),
            "overlap_policy": self.overlap_policy(),
            "max_concurrent": self.dice.between(1, 3),
            "catch_up_policy": self.dice.pick(&["none", "skip", "run_all"]),
            "catch_up_window_secs": self.dice.pick(&[60, 600, 1_500]),
            "max_attempts": self.dice.pick(&[1, 1, 3]),
            "timeout_secs": self.dice.pick(&[60, 3_600]),
            "on_lost": self.dice.pick(&["retry", "retry", "abandon"]),
            "spread_secs": self.dice.pick(&[0, 0, 20]),
        });
        self.request(instance, Caller::Operator, Method::POST, "/workflows".to_owned(), Some(body))
    }

    fn overlap_policy(&self) -> &'static str {
        let any = ["skip", "queue", "queue_one", "replace", "concurrent"];
        // Many concurrent runs test leases best.
        let many = self.profile == Profile::Leases && self.dice.chance(0.6);
        if many { "concurrent" } else { self.dice.pick(&any).copied().unwrap_or("skip") }
    }

    async fn edit(&self, instance: &Instance) -> Option<Life> {
        let Known { id, .. } = self.any_workflow().await?;
        let now = self.clock.now();
        let verb = self.dice.weighted(&[
            (5, "cron"),
            (1, "timezone"),
            (2, "window"),
            (3, "pause"),
            (3, "pause until"),
            (5, "resume"),
            (1, "archive"),
        ])?;
        let patch = |body: Value| (Method::PATCH, format!("/workflows/{id}"), Some(body));
        let act = |verb: &str, body: Value| (Method::POST, format!("/workflows/{id}:{verb}"), Some(body));
        let (method, path, body) = match verb {
            "cron" => patch(json!({"cron_schedule": self.cron()})),
            "timezone" => patch(json!({"timezone": self.dice.pick(&["UTC", "Europe/Paris", "America/New_York"])})),
            "window" => {
                let start = now + TimeDelta::seconds(*self.dice.pick(&[-600, -30, 90])?);
                let end = now + TimeDelta::seconds(*self.dice.pick(&[200, 900, 86_400])?);
                patch(json!({"starts_at": start, "ends_at": end}))
            }
            "pause" => act("pause", json!({})),
            "pause until" => {
                let secs = self.dice.between(20, 600);
                act("pause", json!({"until": now + TimeDelta::seconds(i64::try_from(secs).unwrap_or_default())}))
            }
            verb => act(verb, json!({})),
        };
        Some(self.request(instance, Caller::Operator, method, path, body))
    }

    async fn fire(&self, instance: &Instance) -> Option<Life> {
        let (scheduler, instance) = (self.event_bridge(), instance.clone());
        let fire = scheduler.next_fire(self.any_workflow().await?)?;
        let what = format!("fires {} at {}", fire.workflow, fire.time);
        let run = async move { scheduler.send_fire(&instance, fire).await };
        Some(Life { what, run: run.boxed_local() })
    }

    fn event_bridge(&self) -> EventBridge {
        EventBridge { dice: self.dice.clone(), clock: self.clock.clone(), observed: Arc::clone(&self.observed) }
    }

    /// The instance claims and executes, renews its leases, and sometimes claims more or hands over what it executes. If
    /// it offers its slots, fires arrive meanwhile, sometimes several at once.
    async fn execute(&self, actor: usize, instance: &Instance) -> Life {
        let (executor, turnstile, dice) = (instance.executor.clone(), self.turnstile.clone(), self.dice.clone());
        let (passed, start, hand_over_chance) =
            (Arc::clone(&self.passed), Moment::now(), self.profile.hand_over_chance());
        let (is_calm, offers_slots) = (self.is_calm, instance.offers_slots);
        let times = if offers_slots && !is_calm { self.dice.between(1, 6) } else { 0 };
        let workflows = if times > 0 { self.all_workflows().await } else { Vec::new() };
        let (scheduler, fired) = (self.event_bridge(), instance.clone());
        let run = async move {
            // An instance has heartbeats also while it executes nothing.
            if is_calm {
                executor.release_stopped_attempts().await;
            }
            let now = || start + Duration::from_secs(passed.load(Ordering::Relaxed));
            let step = async || {
                turnstile.wait_as(actor, STEP).await;
                if dice.chance(hand_over_chance) { Step::HandOver } else { Step::Claim }
            };
            let firing = async {
                for _ in 0..times {
                    // As with the first heartbeat below: this is no move.
                    turnstile.wait_beside(actor, FIRE).await;
                    scheduler.fire_some(&workflows, &fired).await;
                }
            };
            let working = async {
                if offers_slots {
                    executor.execute_beside_fires(step, firing).await;
                } else {
                    executor.execute_stepwise(step).await;
                }
            };
            // Before the first claim there is no lease to renew.
            let is_first = Cell::new(true);
            let beat = async || {
                let waiting = if is_first.replace(false) {
                    turnstile.wait_beside(actor, BEAT)
                } else {
                    turnstile.wait_as(actor, BEAT)
                };
                waiting.await;
            };
            let beating = executor.keep_leases(beat, &now);
            tokio::select! {
                () = working => {}
                () = beating => {}
            }
        };
        let lease = instance.app.config.lost_after_secs;
        let offers = if offers_slots { ", and offers its slots" } else { "" };
        Life { what: format!("executes, with leases of {lease} s{offers}"), run: run.boxed_local() }
    }

    async fn fire_manually(&self, instance: &Instance) -> Option<Life> {
        let path = format!("/schedules/{}:fire", self.any_workflow().await?.id);
        Some(self.request(instance, Caller::Operator, Method::POST, path, Some(json!({}))))
    }

    async fn request_manually(&self, instance: &Instance) -> Option<Life> {
        let post = |path: String, body: Value| self.request(instance, Caller::Operator, Method::POST, path, Some(body));
        match self.dice.between(0, 3) {
            0 => self.fire_manually(instance).await,
            1 => Some(post(format!("/runs/{}:cancel", self.any_run("finished_on IS NULL").await?), json!({}))),
            2 => Some(post(format!("/runs/{}:retry", self.any_run("finished_on IS NOT NULL").await?), json!({}))),
            _ => {
                let (id, now) = (self.any_workflow().await?.id, self.clock.now());
                let timing = self.dice.pick(&["then", "now"]);
                let body = json!({"start": now - TimeDelta::minutes(15), "end": now, "only": "missing",
                                  "timing": timing, "max_concurrent": 2});
                Some(post(format!("/schedules/{id}:backfill"), body))
            }
        }
    }

    fn request(&self, instance: &Instance, caller: Caller, method: Method, path: String, body: Option<Value>) -> Life {
        let (instance, observed) = (instance.clone(), Arc::clone(&self.observed));
        let what = format!("{method} {path} {}", body.clone().unwrap_or_default());
        let run = async move {
            let answer = instance.call(caller, method, &path, body).await;
            record_answer(&observed, &path, &answer);
        };
        Life { what, run: run.boxed_local() }
    }

    async fn any_workflow(&self) -> Option<Known> {
        let all = self.all_workflows().await;
        let place = self.dice.below(all.len().max(1));
        all.into_iter().nth(place)
    }

    async fn all_workflows(&self) -> Vec<Known> {
        sqlx::query_as("SELECT id, revision FROM workflows ORDER BY id")
            .fetch_all(&mut *self.stage.ground.admin.connection().await)
            .await
            .unwrap()
    }

    async fn any_run(&self, which: &'static str) -> Option<uuid::Uuid> {
        let sql = format!("SELECT id FROM runs WHERE {which} ORDER BY created_on, scheduled_time, id");
        let all: Vec<uuid::Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_all(&mut *self.stage.ground.admin.connection().await)
            .await
            .unwrap();
        self.dice.pick(&all).copied()
    }

    fn cron(&self) -> &'static str {
        let cron = if self.dice.chance(0.5) { CRONS.first() } else { self.dice.pick(&CRONS) };
        cron.map_or("* * * * *", |(cron, _)| cron)
    }
}

fn job(name: &str, instance: &Instance) -> Option<Life> {
    let job = app::jobs::all_jobs(&instance.app.config).into_iter().find(|job| job.name == name)?;
    let app = instance.app.clone();
    // A cut connection ends a turn, and the next turn does the rest.
    let run = async move { (job.run)(app).await.map_or((), drop) }.boxed_local();
    Some(Life { what: format!("job {name}"), run })
}
