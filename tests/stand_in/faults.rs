//! The stand-in's faults and its clock: each fault follows its seed, and ends when the test removes it.

use std::time::Duration;

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_scheduler::types::{FlexibleTimeWindow, FlexibleTimeWindowMode, Target};
use chrono::{DateTime, Utc};
use local::client;
use serde_json::{Value, json};
use stand_in::invoke::UnknownFunction;
use stand_in::{Clock, Options, StandIn, StandInServer, invoke, scheduler};
use tests::PATIENCE;

/// A stand-in with its clients.
struct World {
    served: StandInServer,
    client: Client,
    http: reqwest::Client,
}

/// The result of a call: success, a refusal, or no answer.
type Said = Result<(), String>;

impl World {
    async fn at(clock: Clock, seed: Option<u64>) -> World {
        let options = Options {
            scheduler: scheduler::Options { seed, ..Default::default() },
            invoke: invoke::Options { unknown: UnknownFunction::Taken, ..Default::default() },
            ..Options::default()
        };
        let served = StandInServer::start_anywhere(StandIn::new(options, clock)).await.unwrap();
        let client = client::stand_in_client(&served.endpoint);
        World { served, client, http: reqwest::Client::new() }
    }

    async fn new() -> World {
        World::at(Clock::fixed(time("2026-03-02T10:00:00Z")), None).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let answer = self.http.post(format!("{}{path}", self.served.endpoint)).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn faults(&self, plan: Value) -> Value {
        let (status, progress) = self.post("/_faults", plan).await;
        assert_eq!(status, 200, "{progress}");
        progress
    }

    /// Sets one fault for the next call to which it applies.
    async fn next(&self, kind: &str) {
        self.faults(json!({"faults": [{"kind": kind, "chance": 1, "count": 1}]})).await;
    }

    async fn create(&self, cron: &str) -> Said {
        let put = self.client.create_schedule().name("wf-1-dev").schedule_expression(cron);
        said(put.flexible_time_window(punctual()).target(target()).send().await)
    }

    async fn update(&self, cron: &str) -> Said {
        let put = self.client.update_schedule().name("wf-1-dev").schedule_expression(cron);
        said(put.flexible_time_window(punctual()).target(target()).send().await)
    }

    async fn delete(&self) -> Said {
        said(self.client.delete_schedule().name("wf-1-dev").send().await)
    }

    async fn cron(&self) -> Option<String> {
        let got = self.client.get_schedule().name("wf-1-dev").send().await;
        got.ok().and_then(|schedule| schedule.schedule_expression)
    }

    /// The result of a call after its fault has happened; the call may still have no answer then.
    async fn until(&self, call: impl Future<Output = Said>, happened: impl AsyncFn(&World) -> bool) -> Said {
        let mut call = std::pin::pin!(call);
        let seen = async {
            while !happened(self).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            said = &mut call => said,
            seen = tokio::time::timeout(PATIENCE, seen) => {
                seen.expect("it never happens");
                futures::FutureExt::now_or_never(call).unwrap_or_else(|| Err("no answer".to_owned()))
            }
        }
    }

    /// How often the first fault was injected.
    async fn injected(&self) -> u64 {
        self.progress().await["faults"][0]["injected"].as_u64().unwrap()
    }

    async fn progress(&self) -> Value {
        let reply = self.http.get(format!("{}/_faults", self.served.endpoint)).send().await.unwrap();
        reply.json().await.unwrap()
    }

    async fn listed(&self) -> usize {
        self.client.list_schedules().send().await.unwrap().schedules.len()
    }
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn punctual() -> FlexibleTimeWindow {
    FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap()
}

fn target() -> Target {
    let runner = "arn:aws:lambda:us-east-1:123456789012:function:runner";
    Target::builder().arn(runner).role_arn("arn:aws:iam::123456789012:role/scheduler").build().unwrap()
}

fn said<T, E: ProvideErrorMetadata + std::fmt::Debug>(
    answer: Result<T, SdkError<E, aws_sdk_scheduler::config::http::HttpResponse>>,
) -> Said {
    match answer {
        Ok(_) => Ok(()),
        Err(SdkError::TimeoutError(_)) => Err("no answer".to_owned()),
        Err(error) => {
            let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
            Err(format!("{status} {}: {}", error.code().unwrap_or_default(), error.message().unwrap_or_default()))
        }
    }
}

const NINE: &str = "cron(0 9 * * ? *)";
const TEN: &str = "cron(0 10 * * ? *)";

/// A refused call changes nothing.
#[tokio::test]
async fn refusals_have_the_texts_of_aws() {
    let world = World::new().await;
    world.next("throttle").await;
    assert_eq!(world.create(NINE).await, Err("429 ThrottlingException: Rate exceeded".to_owned()));
    world.next("error_before").await;
    assert_eq!(world.create(NINE).await, Err("500 InternalServerException: Unexpected error.".to_owned()));
    world.next("assume_role").await;
    let role = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.";
    assert_eq!(world.create(NINE).await, Err(format!("400 ValidationException: {role}")));
    world.next("missing_group").await;
    assert!(world.create(NINE).await.unwrap_err().starts_with("404 ResourceNotFoundException: Schedule group"));
    assert_eq!(world.listed().await, 0);

    world.create(NINE).await.unwrap();
    for refused in [world.conflicted(world.update(TEN)).await, world.conflicted(world.delete()).await] {
        assert!(refused.unwrap_err().starts_with("409 ConflictException: "));
    }
    assert_eq!(world.cron().await.as_deref(), Some(NINE));
}

impl World {
    async fn conflicted(&self, call: impl Future<Output = Said>) -> Said {
        self.next("conflict").await;
        call.await
    }
}

#[tokio::test]
async fn faults_after_the_change_keep_the_change() {
    let world = World::new().await;
    world.next("error_after").await;
    assert!(world.create(NINE).await.unwrap_err().starts_with("500 "));
    assert_eq!(world.cron().await.as_deref(), Some(NINE));
    world.next("timeout_after").await;
    let done = async |world: &World| world.cron().await.as_deref() == Some(TEN);
    assert_eq!(world.until(world.update(TEN), done).await, Err("no answer".to_owned()));
}

#[tokio::test]
async fn late_requests_arrive_before_signatures_expire() {
    let world = World::new().await;
    world.create(NINE).await.unwrap();
    world.next("late").await;
    let sent = async |world: &World| world.progress().await["waiting"] == 1;
    assert_eq!(world.until(world.update(TEN), sent).await, Err("no answer".to_owned()));
    assert_eq!(world.cron().await.as_deref(), Some(NINE), "still on its way");
    assert_eq!(world.injected().await, 1);

    world.post("/_clock", json!({"advance_secs": 900})).await;
    assert_eq!(world.cron().await.as_deref(), Some(TEN));
}

#[tokio::test]
async fn late_requests_follow_the_machines_clock() {
    let world = World::at(Clock::System, None).await;
    world.create(NINE).await.unwrap();
    let late = json!({"late_secs": 1, "faults": [{"kind": "late", "chance": 1, "count": 1}]});
    world.faults(late).await;
    let met = async |world: &World| world.injected().await == 1;
    assert_eq!(world.until(world.update(TEN), met).await, Err("no answer".to_owned()));
    while world.served.stand_in.scheduler.next_arrival(time("2999-01-01T00:00:00Z")).is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.cron().await.as_deref(), Some(TEN));
}

#[tokio::test]
async fn stale_reads_show_earlier_states() {
    let world = World::new().await;
    world.create(NINE).await.unwrap();
    // There was only one change, so every stale read shows the state before it: no schedule.
    world.faults(json!({"faults": [{"kind": "stale", "chance": 1}]})).await;
    assert_eq!((world.cron().await, world.listed().await), (None, 0));
    for cron in [TEN, NINE, TEN] {
        world.update(cron).await.unwrap();
    }
    assert_eq!(world.listed().await, 1);
    let mut seen = Vec::new();
    for _ in 0..20 {
        seen.extend(world.cron().await);
    }
    assert!(seen.iter().any(|cron| cron == NINE) && seen.iter().any(|cron| cron == TEN), "{seen:?}");
    world.delete().await.unwrap();
    assert_eq!((world.cron().await.is_some(), world.listed().await), (true, 1), "deleted, and yet listed");
    world.faults(json!({})).await;
    assert_eq!((world.cron().await, world.listed().await), (None, 0));
}

#[tokio::test]
async fn slow_calls_are_delayed_and_executed() {
    let world = World::new().await;
    world.faults(json!({"slow_ms": 60_000, "faults": [{"kind": "slow", "chance": 1, "count": 2}]})).await;
    let met = async |world: &World| world.injected().await == 1;
    assert_eq!(world.until(world.create(NINE), met).await, Err("no answer".to_owned()));
    world.faults(json!({"slow_ms": 20, "faults": [{"kind": "slow", "chance": 1}]})).await;
    let _first = world.create(NINE).await;
    world.update(TEN).await.unwrap();
    assert_eq!(world.cron().await.as_deref(), Some(TEN));
}

/// The results of 50 updates.
async fn fifty(seed: u64) -> Vec<Said> {
    let world = World::at(Clock::fixed(time("2026-03-02T10:00:00Z")), Some(seed)).await;
    world.create(NINE).await.unwrap();
    let plan = json!({"faults": [
        {"kind": "throttle", "chance": 0.2}, {"kind": "error_after", "chance": 0.2}, {"kind": "conflict", "chance": 0.2}
    ]});
    world.faults(plan).await;
    let mut met = Vec::new();
    for _ in 0..50 {
        met.push(world.update(TEN).await);
    }
    met
}

/// Another seed makes others.
#[tokio::test]
async fn equal_seeds_make_equal_faults() {
    let met = fifty(7).await;
    assert_eq!(met, fifty(7).await);
    assert_ne!(met, fifty(8).await);
    for kind in ["429", "500", "409"] {
        assert!(met.iter().any(|said| said.as_ref().is_err_and(|said| said.starts_with(kind))), "no {kind}");
    }
}

/// A new plan replaces all faults.
#[tokio::test]
async fn faults_have_operations_and_a_count() {
    let world = World::new().await;
    let rule = json!({"kind": "throttle", "chance": 1, "operations": ["CreateSchedule"], "count": 2});
    world.faults(json!({"faults": [rule]})).await;
    assert_eq!(world.listed().await, 0);
    for _ in 0..2 {
        assert!(world.create(NINE).await.is_err());
    }
    world.create(NINE).await.unwrap();
    world.faults(json!({"faults": [{"kind": "error_before", "chance": 1}]})).await;
    assert!(world.update(TEN).await.is_err());
    let ended = world.faults(json!({})).await;
    assert_eq!(
        ended,
        json!({"seed": 0, "late_secs": 900, "slow_ms": 1000, "group_delete_secs": 0, "faults": [], "waiting": 0})
    );
    world.update(TEN).await.unwrap();
}

#[tokio::test]
async fn impossible_plans_are_refused_by_field() {
    let world = World::new().await;
    let one = |rule: Value| json!({"faults": [rule]});
    for (plan, field, message) in [
        (one(json!({"kind": "late", "chance": 1.5})), "faults[0].chance", "1.5 is not between 0 and 1"),
        (one(json!({"kind": "lost", "chance": 1})), "faults[0].kind", "unknown variant `lost`, expected one of"),
        (one(json!({"kind": "late", "chanse": 1})), "faults[0].chanse", "unknown field `chanse`, expected one of"),
        (
            one(json!({"kind": "stale", "chance": 1, "operations": ["CreateSchedule"]})),
            "faults[0].operations",
            "CreateSchedule never meets this fault",
        ),
        (json!({"group_delete_secs": 86_401}), "group_delete_secs", "86401 is above 86400"),
        (json!({"late_secs": 901}), "late_secs", "901 is above 900: no signature lives longer"),
        (
            json!({"faults": [{"kind": "throttle", "chance": 0.6}, {"kind": "slow", "chance": 0.6}]}),
            "faults",
            "the chances of CreateSchedule add up to 1.20, above 1",
        ),
    ] {
        let (status, refusal) = world.post("/_faults", plan).await;
        assert_eq!((status, &refusal["field"]), (400, &json!(field)), "{refusal}");
        assert!(refusal["message"].as_str().unwrap().starts_with(message), "{refusal}");
    }
}

#[tokio::test]
async fn a_set_clock_fires_what_becomes_due() {
    let world = World::new().await;
    world.create("cron(0 11 * * ? *)").await.unwrap();
    let (_, moved) = world.post("/_clock", json!({"now": "2026-03-03T12:00:00Z"})).await;
    assert_eq!(moved, json!({"now": "2026-03-03T12:00:00Z"}));
    assert_eq!(world.served.stand_in.fires.recent_fires().len(), 2);
    for (to, field) in [
        (json!({"now": "2026-03-03T11:00:00Z"}), "now"),
        (json!({"advance": 1}), "advance"),
        (json!({"advance_secs": -1}), "advance_secs"),
        (json!({}), ""),
    ] {
        let (status, refusal) = world.post("/_clock", to).await;
        assert_eq!((status, &refusal["field"]), (400, &json!(field)), "{refusal}");
    }
}

/// Follows AWS's documentation: the group is DELETING until all its schedules are deleted, and they may fire until
/// then.
#[tokio::test]
async fn deleting_a_group_takes_its_time() {
    let world = World::new().await;
    world.client.create_schedule_group().name("cronbox").send().await.unwrap();
    let create = async |name: &str| {
        let put = world.client.create_schedule().group_name("cronbox").name(name).schedule_expression(NINE);
        said(put.flexible_time_window(punctual()).target(target()).send().await)
    };
    create("wf-1-dev").await.unwrap();
    world.faults(json!({"group_delete_secs": 24 * 3600})).await;
    world.client.delete_schedule_group().name("cronbox").send().await.unwrap();

    let group = world.client.get_schedule_group().name("cronbox").send().await.unwrap();
    assert_eq!(group.state().unwrap().as_str(), "DELETING");
    let put = world.client.update_schedule().group_name("cronbox").name("wf-1-dev").schedule_expression(TEN);
    for refused in [
        create("wf-2-dev").await,
        said(put.flexible_time_window(punctual()).target(target()).send().await),
        said(world.client.delete_schedule().group_name("cronbox").name("wf-1-dev").send().await),
        said(world.client.create_schedule_group().name("cronbox").send().await),
        said(world.client.delete_schedule_group().name("cronbox").send().await),
    ] {
        assert!(refused.as_ref().is_err_and(|said| said.starts_with("409 ConflictException: ")), "{refused:?}");
    }
    assert_eq!(world.listed().await, 1);

    world.post("/_clock", json!({"now": "2026-03-04T12:00:00Z"})).await;
    assert_eq!(world.served.stand_in.fires.recent_fires().len(), 1, "the last one before it was deleted");
    assert_eq!(world.listed().await, 0);
    let gone = said(world.client.get_schedule_group().name("cronbox").send().await);
    assert!(gone.as_ref().is_err_and(|said| said.starts_with("404 ")), "{gone:?}");
    world.client.create_schedule_group().name("cronbox").send().await.unwrap();
}

#[tokio::test]
async fn the_machines_clock_is_not_moved() {
    let world = World::at(Clock::System, None).await;
    let (status, refusal) = world.post("/_clock", json!({"advance_secs": 1})).await;
    let said = "the stand-in follows the machine's clock: start it with --clock to set the clock";
    assert_eq!((status, &refusal["message"]), (409, &json!(said)));
}
