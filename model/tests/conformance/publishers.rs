//! The model of steps 1 to 4 against edits, two real publishers, and the stand-in for EventBridge.
//!
//! A publisher stops where the model's does: after its claim, after its read, behind a signed request, after the
//! answer, and after its settle. Connections do not break here: without answers they time out.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use local::clock_and_zones::stand_in_clock;
use model::publishing::state::{
    Action, Content, Due, Lease, PUBLISHERS, Publishing, Remedy, Request, Stage, State, Workflow,
};
use model::walk::{Dice, take_step};
use publisher::{Config, Hook, Point, Publisher, Stopwatch};
use schedule::{ScheduleName, WorkflowId};
use serde_json::{Value, json};
use stand_in::scheduler::groups::NewGroup;
use stand_in::scheduler::{Options, Scheduler, api};
use stateright::Model as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::ground::{Ground, PATIENCE};
use crate::wire::{Reply, Sent, Stop, client};

/// How many walks there are.
const WALKS: u64 = 500;
/// How long [`Action::EndLeases`] takes: longer than a lease and than the first backoffs.
const MINUTE: Duration = Duration::from_secs(61);
/// How long [`Action::PassSignature`] takes: half of what a verify pass waits for.
const HALF_OF_VERIFY: Duration = Duration::from_secs(8 * 60);
/// The deadline of a drain is later than the end of a walk.
const LONG: Duration = Duration::from_secs(1_000_000);
const GROUP: &str = "cronbox-model";
/// The crons of the contents; the first content has none.
const CRONS: [Option<&str>; 3] = [None, Some("0 9 * * *"), Some("0 10 * * *")];
/// What EventBridge has for them.
const EXPRESSIONS: [&str; 3] = ["", "cron(0 9 * * ? *)", "cron(0 10 * * ? *)"];

/// Two edits: after three failures that an edit superseded, an edit does not end the backoff, which the model does not have.
const SHIPPED: Publishing<1> = Publishing { edits: 2, faults: 3, has_broken_connections: false, without: None };

/// 500 walks of edits, claims, requests, answers, kills and settles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_follow_their_model() {
    let ground = Ground::new().await;
    let (router, pools) = (eventbridge(&ground), [ground.pool_of_process(), ground.pool_of_process()]);
    let mut steps = 0;
    for seed in 0..WALKS {
        steps += Walk::begin(&ground, &router, &pools).await.follow(SHIPPED, seed).await.unwrap();
    }
    println!("publishing: {WALKS} walks with {steps} steps follow the model");
    assert!(steps > 20 * usize::try_from(WALKS).unwrap(), "{steps} steps in {WALKS} walks prove little");
}

/// A model without the fence expects settles that the code refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_epochs_is_refuted() {
    let ground = Ground::new().await;
    let (router, pools) = (eventbridge(&ground), [ground.pool_of_process(), ground.pool_of_process()]);
    let without = Some(Remedy::EpochFence);
    for seed in 0..WALKS {
        let model = Publishing { without, ..SHIPPED };
        if Walk::begin(&ground, &router, &pools).await.follow(model, seed).await.is_err() {
            return;
        }
    }
    panic!("{WALKS} walks do not show the difference");
}

/// The stand-in's API, with the schedule group.
fn eventbridge(ground: &Ground) -> Router {
    let scheduler = Scheduler::new(Options::default(), stand_in_clock(&ground.clock));
    let group = NewGroup { name: GROUP.to_owned(), tags: Vec::new(), client_token: None };
    scheduler.lock_store().create_group(group, ground.clock.now()).unwrap();
    api::scheduler_router(scheduler)
}

/// One walk.
struct Walk<'a> {
    ground: &'a Ground,
    router: &'a Router,
    stopwatch: Stopwatch,
    workflow: WorkflowId,
    publishers: [Process; PUBLISHERS],
    /// Requests whose publisher does not wait any more, each with what it writes.
    late: Vec<(Request, Content, Sent)>,
    claims: i64,
    /// The hash of each content, as soon as one is known.
    hashes: [Option<String>; 3],
}

/// A publisher, and where it has stopped.
struct Process {
    publisher: Publisher,
    stops: UnboundedReceiver<Stop>,
    drain: Option<JoinHandle<()>>,
    parked: Parked,
}

/// Where a publisher has stopped.
enum Parked {
    Nowhere,
    At(oneshot::Sender<()>),
    OnWire { sent: Sent, answer: oneshot::Sender<Option<Reply>>, reply: Option<Reply> },
}

/// What can be compared of a workflow. A verify pass is due, or not yet.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    desired: i64,
    applied: i64,
    epoch: i64,
    lease: Lease,
    spec_hash: Option<Content>,
    is_named: bool,
    is_verify_due: Option<bool>,
    due: Due,
    rows: i64,
    processed: i64,
    scheduled: Content,
}

impl Process {
    async fn new(pool: &db::PgPool, ground: &Ground, stopwatch: &Stopwatch) -> Self {
        let (sender, stops) = unbounded_channel();
        let client = client(sender.clone()).await;
        let at = Arc::new(move |point| {
            let (pass, passed) = oneshot::channel();
            sender.send(Stop::At(point, pass)).ok();
            passed.map(|_| ()).boxed()
        });
        let hook = Hook { at, stopwatch: stopwatch.clone(), seed: 1 };
        let config = Config {
            letters: publisher::DeadLetterSettings::default(),
            env: "dev".parse().unwrap(),
            runner_lambda_arn: "arn:aws:lambda:us-east-1:123456789012:function:runner".to_owned(),
            scheduler_role_arn: "arn:aws:iam::123456789012:role/scheduler".to_owned(),
            schedule_group: GROUP.to_owned(),
            schedule_dlq_arn: "arn:aws:sqs:us-east-1:123456789012:schedules-dlq".to_owned(),
            batch_size: 1,
            max_attempts: 10,
            api_concurrency: 1,
            api_tps: 1_000_000,
            config_generation: 0,
            fault: None,
        };
        let publisher = Publisher::with_hook(config, pool.clone(), client, ground.clock.clone(), hook);
        Self { publisher, stops, drain: None, parked: Parked::Nowhere }
    }

    /// Starts a drain, which stops at its first point.
    fn start(&mut self, stopwatch: &Stopwatch) {
        let (publisher, deadline) = (self.publisher.clone(), stopwatch.now() + LONG);
        self.drain = Some(tokio::spawn(async move {
            publisher.drain_outbox(deadline).await.unwrap();
        }));
    }

    /// Waits until it stops; `None` = the drain is at one of its points.
    async fn stop(&mut self) -> Option<Point> {
        let stop = tokio::time::timeout(PATIENCE, self.stops.recv()).await.expect("the publisher stops nowhere");
        match stop.expect("the publisher has ended") {
            Stop::At(point, pass) => {
                self.parked = Parked::At(pass);
                Some(point)
            }
            Stop::OnWire(sent, answer) => {
                self.parked = Parked::OnWire { sent, answer, reply: None };
                None
            }
        }
    }

    /// Lets it continue: from its point, or with the answer, if there is one.
    fn go_on(&mut self) {
        match std::mem::replace(&mut self.parked, Parked::Nowhere) {
            Parked::Nowhere => {}
            Parked::At(pass) => pass.send(()).unwrap(),
            Parked::OnWire { answer, reply, .. } => drop(answer.send(reply)),
        }
    }

    /// Lets it continue up to a point.
    async fn go_to(&mut self, point: Point) {
        loop {
            self.go_on();
            if self.stop().await == Some(point) {
                return;
            }
            assert!(matches!(self.parked, Parked::At(_)), "a request on the way to {point:?}");
        }
    }

    /// Ends it, as a kill does: it has no open transaction where it stops.
    async fn end(&mut self) {
        self.parked = Parked::Nowhere;
        if let Some(drain) = self.drain.take() {
            drain.abort();
            drain.await.ok();
        }
        while self.stops.try_recv().is_ok() {}
    }
}

impl<'a> Walk<'a> {
    async fn begin(ground: &'a Ground, router: &'a Router, pools: &[db::PgPool; PUBLISHERS]) -> Self {
        let stopwatch = Stopwatch::new_stopped();
        let body = json!({
            "name": Uuid::new_v4().to_string(), "action": {"type": "log", "message": "m"}, "cron_schedule": CRONS[1],
            "timezone": "UTC",
        });
        let [first, second] = pools;
        Self {
            workflow: ground.create(body).await,
            publishers: [Process::new(first, ground, &stopwatch).await, Process::new(second, ground, &stopwatch).await],
            ground,
            router,
            stopwatch,
            late: Vec::new(),
            claims: 0,
            hashes: [Some("none".to_owned()), None, None],
        }
    }

    /// Walks until nothing can happen any more; returns the number of steps.
    ///
    /// # Errors
    /// The first difference between the model and the database, and the actions up to it.
    async fn follow(mut self, model: Publishing<1>, seed: u64) -> Result<usize, String> {
        let (mut dice, mut path) = (Dice::new(seed), Vec::new());
        let mut state = model.init_states().remove(0);
        while let Some((action, next)) = take_step(&model, &state, &mut dice, |_| 1) {
            path.push(action);
            self.do_action(action, &state, &next).await;
            let expected = self.expected(&next.workflows[0]);
            let found = self.row(&next.workflows[0]).await;
            if found != expected {
                self.end().await;
                return Err(format!("seed {seed}: {path:#?}: expected {expected:?}, found {found:?}"));
            }
            state = next;
        }
        self.end().await;
        Ok(path.len())
    }

    async fn end(&mut self) {
        for process in &mut self.publishers {
            process.end().await;
        }
    }

    async fn do_action(&mut self, action: Action, before: &State<1>, after: &State<1>) {
        match action {
            Action::SaveWorkflow { content, .. } => {
                let cron = CRONS[usize::from(content)];
                self.ground.patch(self.workflow, json!({"cron_schedule": cron})).await;
            }
            Action::ClaimDue { publisher, .. } => self.claim_due(publisher).await,
            Action::ReadWorkflow { publisher } => self.publishers[publisher].go_to(Point::P5).await,
            Action::SignRequest { publisher } => self.sign_request(publisher, &after.publishers[publisher]).await,
            Action::ExecuteRequest { publisher } => {
                if let Parked::OnWire { sent, reply, .. } = &mut self.publishers[publisher].parked {
                    *reply = Some(sent.execute(self.router).await);
                }
            }
            Action::RefuseRequest { publisher } => self.refuse_request(publisher, &before.publishers[publisher]),
            Action::ReceiveAnswer { publisher } => self.publishers[publisher].go_to(Point::P8).await,
            Action::MissAnswer { publisher } => {
                self.keep_late(publisher, &before.publishers[publisher]);
                if let Parked::OnWire { reply, .. } = &mut self.publishers[publisher].parked {
                    *reply = None;
                }
                self.publishers[publisher].go_to(Point::P8).await;
            }
            Action::SettleClaim { publisher } => {
                self.publishers[publisher].go_to(Point::P10).await;
                self.publishers[publisher].end().await;
            }
            Action::ExecuteLate { nth } => {
                let late = before.late[nth];
                let is_it = |(request, content, _): &(Request, Content, Sent)| {
                    *request == late.request && *content == late.content
                };
                let place = self.late.iter().position(is_it).expect("the request was sent");
                self.late.swap_remove(place).2.execute(self.router).await;
            }
            Action::KillPublisher { publisher } => {
                self.keep_late(publisher, &before.publishers[publisher]);
                self.publishers[publisher].end().await;
            }
            Action::EndLeases => self.advance(MINUTE).await,
            Action::PassSignature => self.advance(HALF_OF_VERIFY).await,
            Action::RepeatRequest { .. } => unreachable!("connections do not break here"),
        }
    }

    /// Stops the publisher after the claim that takes the workflow; a suspect is taken by the second claim.
    async fn claim_due(&mut self, publisher: usize) {
        self.claims += 1;
        let process = &mut self.publishers[publisher];
        process.start(&self.stopwatch);
        loop {
            let point = process.stop().await;
            if point == Some(Point::P4) && epoch(self.ground, self.workflow).await == self.claims {
                return;
            }
            assert!(point.is_some() && point != Some(Point::P12), "nothing was claimed");
            process.go_on();
        }
    }

    /// Continues to the request; the reads that precede a delete, or follow a refused create, pass. A publisher whose
    /// lease has ended stays where it is: from there it settles without a request.
    async fn sign_request(&mut self, publisher: usize, after: &Stage) {
        let Stage::Waiting { request, .. } = after else { return };
        let process = &mut self.publishers[publisher];
        loop {
            process.go_on();
            if process.stop().await.is_some() {
                continue;
            }
            let Parked::OnWire { sent, reply, .. } = &mut process.parked else { continue };
            let is_verify = *request == Request::Get;
            if (sent.method == "GET") == is_verify {
                assert_eq!(sent.method, method(*request));
                return;
            }
            *reply = Some(sent.execute(self.router).await);
        }
    }

    fn refuse_request(&mut self, publisher: usize, before: &Stage) {
        let Stage::Waiting { age, .. } = before else { return };
        let Parked::OnWire { reply, .. } = &mut self.publishers[publisher].parked else { return };
        *reply = Some(if *age > 1 {
            Reply::refusal(403, "InvalidSignatureException", "Signature expired")
        } else {
            Reply::refusal(429, "ThrottlingException", "Rate exceeded")
        });
    }

    /// Keeps the request of a publisher that does not wait any more, unless it was executed.
    fn keep_late(&mut self, publisher: usize, before: &Stage) {
        let Stage::Waiting { request, wanted, answer: None, .. } = before else { return };
        if let Parked::OnWire { sent, .. } = &self.publishers[publisher].parked {
            self.late.push((*request, wanted.content, sent.clone()));
        }
    }

    async fn advance(&self, by: Duration) {
        self.ground.advance(by).await;
        self.stopwatch.advance_by(by);
    }

    fn expected(&self, model: &Workflow) -> Row {
        Row {
            desired: model.desired.into(),
            applied: model.applied.into(),
            epoch: self.claims,
            lease: model.lease,
            spec_hash: model.spec_hash,
            is_named: model.is_named,
            is_verify_due: model.verify.map(|left| left == 0),
            due: model.due,
            rows: model.rows.into(),
            processed: model.processed.into(),
            scheduled: model.scheduled,
        }
    }

    async fn row(&mut self, model: &Workflow) -> Row {
        let query = "
            SELECT workflows.revision, COALESCE(applied_revision, 0), epoch, lease_until > cronbox_now(), spec_hash,
                   schedule_name IS NOT NULL, verify_at <= cronbox_now(),
                   CASE WHEN due_at IS NULL THEN 'never' WHEN due_at <= cronbox_now() THEN 'now'
                        WHEN due_at = verify_at THEN 'verify' ELSE 'backoff' END,
                   (SELECT count(*) FROM outbox_events WHERE aggregate_id = workflow_id),
                   (SELECT count(*) FROM outbox_events WHERE aggregate_id = workflow_id AND processed_on IS NOT NULL)
              FROM publications JOIN workflows ON workflows.id = workflow_id AND workflows.revision = desired_revision
             WHERE workflow_id = $1";
        type Columns = (i64, i64, i64, Option<bool>, Option<String>, bool, Option<bool>, String, i64, i64);
        let mut connection = self.ground.pool.acquire().await.unwrap();
        let row: Columns = sqlx::query_as(query).bind(self.workflow.0).fetch_one(&mut *connection).await.unwrap();
        let (desired, applied, epoch, is_live, spec_hash, is_named, is_verify_due, due, rows, processed) = row;
        let lease = match is_live {
            None => Lease::None,
            Some(true) => Lease::Live,
            Some(false) => Lease::Ended,
        };
        let due = match &*due {
            "never" => Due::Never,
            "now" => Due::Now,
            "verify" => Due::AtVerify,
            _ => Due::AfterBackoff,
        };
        let spec_hash = spec_hash.map(|hash| self.content_of(hash, model.spec_hash));
        let scheduled = self.scheduled().await;
        Row { desired, applied, epoch, lease, spec_hash, is_named, is_verify_due, due, rows, processed, scheduled }
    }

    /// The content of a hash. A hash that is new belongs to the content that the model expects, if that has none yet.
    fn content_of(&mut self, hash: String, expected: Option<Content>) -> Content {
        let known = self.hashes.iter().position(|known| known.as_ref() == Some(&hash));
        let place = known.or_else(|| {
            let expected = expected.map(usize::from).filter(|content| self.hashes[*content].is_none())?;
            self.hashes[expected] = Some(hash);
            Some(expected)
        });
        u8::try_from(place.expect("the hash is of another content")).unwrap()
    }

    async fn scheduled(&self) -> Content {
        let name = ScheduleName::new(self.workflow, &"dev".parse().unwrap());
        let reply = Sent::get(format!("/schedules/{name}?groupName={GROUP}")).execute(self.router).await;
        if reply.status == 404 {
            return 0;
        }
        let schedule: Value = serde_json::from_slice(&reply.body).unwrap();
        let expression = schedule["ScheduleExpression"].as_str().unwrap();
        u8::try_from(EXPRESSIONS.iter().position(|known| *known == expression).unwrap()).unwrap()
    }
}

async fn epoch(ground: &Ground, workflow: WorkflowId) -> i64 {
    let query = sqlx::query_scalar("SELECT epoch FROM publications WHERE workflow_id = $1").bind(workflow.0);
    query.fetch_one(&mut *ground.pool.acquire().await.unwrap()).await.unwrap()
}

fn method(request: Request) -> &'static str {
    match request {
        Request::Get => "GET",
        Request::Create => "POST",
        Request::Update => "PUT",
        Request::Delete => "DELETE",
    }
}
