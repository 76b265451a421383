//! One part is down for an hour. After its return, each time has one decision, and `verify` finds no difference.

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use local::stack::{Database, Ground, KeysFrom, RUNNER, StackOptions};
use schedule::{Fire, WorkflowId};
use serde_json::{Value, json};
use stand_in::scheduler::faults::Plan;
use tests::{Story, Way};

/// The part that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Nothing,
    /// No schedule fires, and no call is answered.
    EventBridge,
    /// Fires do not reach the app.
    Runner,
    /// Fires do not reach the app, and no job runs.
    App,
    /// All statements fail.
    Postgres,
}

/// A stack with proxies in front of its database and its app, and a workflow for each policy.
struct Place {
    s: Story,
    to_database: Way,
    to_app: Way,
    none: WorkflowId,
    skip: WorkflowId,
    run_all: WorkflowId,
}

impl Place {
    /// A place at 09:05, after the fire of 09:00.
    async fn at_five_past_nine() -> Place {
        let dsn = Database::clone_template().await.unwrap().dsn();
        let to_database = Way::to(&dsn).await;
        let any_port = || app::bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
        let ground = Ground {
            database: Database::Elsewhere(to_database.dsn(&dsn)),
            app: any_port(),
            scheduler: any_port(),
            keys: KeysFrom::Nowhere,
        };
        let now = Some("2026-03-02T08:55:00Z".parse().unwrap());
        let s = Story::on(ground, StackOptions { now, ..StackOptions::default() }).await;
        let to_app = Way::to(s.url().trim_start_matches("http://")).await;
        s.deliver_to(&to_app.dsn(s.url())).unwrap();
        let half_hourly = |policy: &str| json!({"cron_schedule": "*/30 * * * *", "catch_up_policy": policy});
        let none = s.create_with(half_hourly("none")).await;
        let skip = s.create_with(half_hourly("skip")).await;
        let run_all = s.create_with(half_hourly("run_all")).await;
        let place = Place { s, to_database, to_app, none, skip, run_all };
        place.pass_until("2026-03-02T09:05:00Z", Away::Nothing).await;
        place
    }

    /// Advances the clock minute by minute: delivers the fires, and runs the jobs of the parts that are up.
    async fn pass_until(&self, until: &str, away: Away) {
        let until: DateTime<Utc> = until.parse().unwrap();
        while self.s.clock.now() < until {
            let minute = self.s.clock.now() + TimeDelta::minutes(1);
            while away != Away::EventBridge
                && let Some(due) = self.s.stand_in.fires.next_due(minute)
            {
                self.set_clock(due.max(self.s.clock.now()), away).await;
                self.s.stand_in.fires.fire_and_deliver(self.s.clock.now()).await;
            }
            self.set_clock(minute, away).await;
            if !matches!(away, Away::App | Away::Postgres) {
                self.turns().await;
            }
        }
    }

    /// Delivers the first tries and the retries that are due at this time.
    async fn deliver_at(&self, now: &str) {
        self.s.now_is(now).await;
        self.s.stand_in.fires.fire_and_deliver(self.s.clock.now()).await;
    }

    /// Runs the publisher and the jobs that the app runs every minute.
    async fn turns(&self) {
        self.s.publish().await;
        self.s.job("watchdog").await;
        self.s.job("queue").await;
        self.s.runs_end().await;
    }

    async fn set_clock(&self, now: DateTime<Utc>, away: Away) {
        match away {
            // The clock for stories is in the database, so only the local one can be set.
            Away::Postgres => self.s.clock.set(now),
            _ => self.s.set_clock(now).await,
        }
    }

    /// For example, `09:00 fired, 09:30 missed`.
    async fn decisions(&self, workflow: WorkflowId) -> String {
        let minute = |line: &str| format!("{}{}", &line[11..16], &line[17..]);
        self.s.occurrences(workflow).await.lines().map(minute).collect::<Vec<_>>().join(", ")
    }

    /// How many runs of the schedule have succeeded, and how many there are.
    async fn runs(&self, workflow: WorkflowId) -> (usize, usize) {
        let runs = self.s.runs(workflow).await;
        (runs.lines().filter(|line| line.ends_with("succeeded")).count(), runs.lines().count())
    }

    /// Waits until no fire of these times is being decided, because callers with the same workflow and time share one
    /// decision.
    async fn until_refused(&self, times: &[&str]) {
        let fire = |wf: WorkflowId, time| json!({"workflow_id": wf.0, "scheduled_time": time});
        let all = [self.none, self.skip, self.run_all].into_iter();
        let fires: Vec<_> =
            all.flat_map(|wf| times.iter().map(move |time| Fire::from_event(&fire(wf, *time)).unwrap())).collect();
        let decided = join_all(fires.iter().map(|fire| self.s.app().decider.decide_fire(fire))).await;
        assert!(decided.iter().all(Result::is_err), "{decided:?}");
    }

    /// Delivers every dead letter again; returns their number.
    async fn redrive(&self) -> usize {
        let messages = self.s.stand_in.dead_letters.all_messages();
        for message in &messages {
            let payload = match message.body.get("requestPayload") {
                Some(payload) => payload.clone(),
                // Scheduler's dead letter contains the request that failed, with its payload as text.
                None => serde_json::from_str(message.body["Payload"].as_str().unwrap()).unwrap(),
            };
            self.s.stand_in.lambda.invoke_function(RUNNER, payload, self.s.clock.now()).unwrap();
        }
        self.s.stand_in.fires.fire_and_deliver(self.s.clock.now()).await;
        messages.len()
    }

    /// No time was decided for an hour. Then 10:00 is caught up, and 09:30 only under `run_all`.
    async fn assert_decided_at_return(&self) {
        assert_eq!(self.decisions(self.none).await, "09:00 fired, 09:30 missed, 10:00 missed, 10:30 fired");
        assert_eq!(self.decisions(self.skip).await, "09:00 fired, 09:30 missed, 10:00 caught_up, 10:30 fired");
        assert_eq!(self.decisions(self.run_all).await, "09:00 fired, 09:30 caught_up, 10:00 caught_up, 10:30 fired");
        assert_eq!(self.redrive().await, 6, "what fired thrice in vain lies in the runner's queue");
        assert_eq!((self.runs(self.none).await, self.runs(self.skip).await), ((2, 2), (3, 3)));
        assert_eq!(self.runs(self.run_all).await, (4, 4));
        self.assert_clean(12).await;
    }

    /// Asserts that the proof of the three workflows from 09:00 to 10:30 finds `due` due times and no difference.
    async fn assert_clean(&self, due: i64) {
        let span = "from=2026-03-02T09:00:00Z&to=2026-03-02T10:31:00Z";
        let verified = self.s.admin().get(&format!("/api/v1/verify?{span}")).await.expect(200);
        assert_eq!(verified.json["differences"], json!([]));
        assert_eq!((&verified.json["due"], &verified.json["decided"]), (&json!(due), &json!(due)));
        assert_eq!(verified.json["next_cursor"], Value::Null);
    }
}

/// The app is down for two tries of Lambda. EventBridge makes the first of them in the last second of the minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_third_try_is_still_on_time() {
    let mut place = Place::at_five_past_nine().await;
    place.to_app.cut().await;
    place.deliver_at("2026-03-02T09:30:59Z").await;
    place.deliver_at("2026-03-02T09:31:59Z").await;
    place.to_app.mend().await;
    place.deliver_at("2026-03-02T09:33:59Z").await;
    place.s.runs_end().await;
    for workflow in [place.none, place.skip, place.run_all] {
        assert_eq!(place.decisions(workflow).await, "09:00 fired, 09:30 fired");
        assert_eq!(place.runs(workflow).await, (2, 2));
    }
    assert_eq!(place.redrive().await, 0, "no fire is a dead letter");
    place.s.end().await;
}

/// For an hour no fire reaches the app, but its jobs run. The dead letters of that hour run nothing again.
#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_catches_up_during_runner_outages() {
    let mut place = Place::at_five_past_nine().await;
    place.to_app.cut().await;
    place.pass_until("2026-03-02T10:05:00Z", Away::Runner).await;
    place.to_app.mend().await;
    place.pass_until("2026-03-02T10:45:00Z", Away::Nothing).await;
    // The watchdog needs no fire, so it was never more than one time behind.
    assert_eq!(place.decisions(place.none).await, "09:00 fired, 09:30 missed, 10:00 missed, 10:30 fired");
    for runs_late in [place.skip, place.run_all] {
        assert_eq!(place.decisions(runs_late).await, "09:00 fired, 09:30 caught_up, 10:00 caught_up, 10:30 fired");
        assert_eq!(place.runs(runs_late).await, (4, 4));
    }
    assert_eq!(place.redrive().await, 6, "what fired thrice in vain lies in the runner's queue");
    assert_eq!(place.runs(place.run_all).await, (4, 4), "and what was caught up does not run again");
    place.assert_clean(12).await;
    place.s.end().await;
}

/// For an hour no fire reaches the app, and no job runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_outage_is_decided_at_return() {
    let mut place = Place::at_five_past_nine().await;
    place.to_app.cut().await;
    place.pass_until("2026-03-02T10:05:00Z", Away::App).await;
    place.to_app.mend().await;
    place.pass_until("2026-03-02T10:45:00Z", Away::Nothing).await;
    place.assert_decided_at_return().await;
    place.s.end().await;
}

/// For an hour all statements fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_outage_is_decided_at_return() {
    let mut place = Place::at_five_past_nine().await;
    // The app believes a key for four seconds only, so it must have read that of the runner just now.
    place.s.app().gate.forget_all();
    assert_eq!(place.s.invoke(place.skip, "2026-03-02T09:00:00Z").await.status, 200);
    place.to_database.cut().await;
    let known = place.s.invoke(place.skip, "2026-03-02T09:00:00Z").await;
    assert_eq!((known.status, known.body["reason"].as_str()), (200, Some("duplicate")), "it was answered before");
    place.pass_until("2026-03-02T10:05:00Z", Away::Postgres).await;
    // All requests wait equally long for a connection. After this one is refused, those of the outage are refused, too,
    // or being decided.
    let refused = place.s.invoke(place.none, "2026-03-02T09:31:00Z").await;
    assert_eq!((refused.status, refused.code()), (503, "database_unavailable"));
    place.until_refused(&["2026-03-02T09:30:00Z", "2026-03-02T10:00:00Z"]).await;
    place.to_database.mend().await;
    place.pass_until("2026-03-02T10:45:00Z", Away::Nothing).await;
    place.assert_decided_at_return().await;
    place.s.end().await;
}

/// For an hour EventBridge fires nothing and answers no call. Then it fires times that are already caught up.
#[tokio::test(flavor = "multi_thread")]
async fn an_eventbridge_outage_runs_no_time_twice() {
    let place = Place::at_five_past_nine().await;
    place.s.stand_in.scheduler.plan_faults(errors());
    place.pass_until("2026-03-02T09:20:00Z", Away::EventBridge).await;
    place.s.edit(place.none, json!({"cron_schedule": "15,45 * * * *"})).await;
    place.pass_until("2026-03-02T10:05:00Z", Away::EventBridge).await;
    assert_eq!(place.s.schedule(place.none), "cron(0/30 * * * ? *) UTC ENABLED");
    assert_eq!(place.s.workflow(place.none).await["sync"]["status"], "pending");
    place.s.stand_in.scheduler.plan_faults(Plan::default());
    // An operator who knows that EventBridge is back need not wait for the publisher's next try.
    let waiting = place.s.admin().get(&format!("/api/v1/outbox?status=pending&workflow_id={}", place.none)).await;
    let row = &waiting.expect(200).json["items"][0]["id"];
    place.s.admin().post(&format!("/api/v1/outbox/{row}:retry"), &json!({})).await.expect(200);
    // EventBridge fires 10:00 now. 09:30 is older than half an hour, so it becomes a dead letter.
    place.pass_until("2026-03-02T10:45:00Z", Away::Nothing).await;

    assert_eq!(place.s.schedule(place.none), "cron(15,45 * * * ? *) UTC ENABLED");
    assert_eq!(place.decisions(place.none).await, "09:00 fired, 09:45 missed, 10:15 fired, 10:45 fired");
    for runs_late in [place.skip, place.run_all] {
        assert_eq!(place.decisions(runs_late).await, "09:00 fired, 09:30 caught_up, 10:00 caught_up, 10:30 fired");
        assert_eq!(place.runs(runs_late).await, (4, 4));
    }
    assert_eq!(place.redrive().await, 3);
    assert_eq!(place.runs(place.skip).await, (4, 4));
    place.assert_clean(3 + 4 + 4).await;
    place.s.end().await;
}

/// EventBridge answers every call with 500.
fn errors() -> Plan {
    serde_json::from_value(json!({"faults": [{"kind": "error_before", "chance": 1.0}]})).unwrap()
}
