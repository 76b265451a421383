//! The instances of the app, each with its own connection, which a history can step, cut or kill.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use access::keys::{Holder, create_key};
use access::teams::create_team;
use app::{App, api};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use chrono::{DateTime, TimeDelta, Utc};
use clap::Parser;
use egress::Client;
use egress::allowed::Allowed;
use executor::Executor;
use local::postgres::Login;
use schedule::Clock;
use serde_json::Value;
use tower::ServiceExt;
use workflows::audit::Edit;

use super::ablation::Ablation;
use super::receiver::Receiver;
use crate::database::{Ground, Process};
use crate::leaked_secrets::watch_secret;
use crate::random::Dice;
use crate::tap::Tap;

/// What the histories of one thread share.
pub(crate) struct Stage {
    pub(crate) ground: Ground,
    pub(crate) receiver: Receiver,
    pub(crate) receives_at: SocketAddr,
    pub(crate) team: i64,
    pub(super) ablation: Ablation,
    config: app::Config,
    client: Client,
    admin: String,
    scheduler: String,
    instances: AtomicUsize,
    /// The connections of instances that ended normally, because a new backend is slow at first.
    idle: Mutex<Vec<(Process, Tap)>>,
}

/// One process of the app.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) app: App,
    pub(crate) process: Process,
    pub(crate) tap: Tap,
    /// Its executor, which keeps its runs between the actions of the instance.
    pub(crate) executor: Executor,
    /// Whether fires that this instance decides start runs in the slots of its executor.
    pub(crate) offers_slots: bool,
    /// Whether the next action panics at its end.
    pub(crate) panics: Arc<AtomicBool>,
    /// How much the deciding clock of this instance differs from the database's.
    skew: TimeDelta,
    router: Router,
    admin: String,
    scheduler: String,
}

/// The role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Operator,
    Runner,
}

/// Status and body.
pub(crate) type Answer = (u16, Value);

/// Violations that triggers record in the statement that causes them.
///
/// S7: an ended run does not change its state. S14: no run is taken over before its lease has ended. S17: no time is
/// missed or caught up before it is due. If a clock goes back, a time that was late does not become early.
///
/// They also record the runs that the decisions of their fires start, and the statements that end several runs.
const FINDINGS: &str = "
    CREATE TABLE torture_findings (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, finding text NOT NULL);
    GRANT INSERT ON torture_findings TO PUBLIC;
    CREATE FUNCTION torture_note() RETURNS trigger LANGUAGE plpgsql AS '
        BEGIN
            INSERT INTO torture_findings (finding) VALUES (format(TG_ARGV[0], NEW.id));
            RETURN NULL;
        END';
    CREATE TRIGGER torture_s7 AFTER UPDATE OF state ON runs FOR EACH ROW
        WHEN (OLD.finished_on IS NOT NULL AND NEW.state <> OLD.state)
        EXECUTE FUNCTION torture_note('S7: run %s had ended, and its state has changed');
    CREATE TRIGGER torture_s14 AFTER UPDATE OF recoveries ON runs FOR EACH ROW
        WHEN (NEW.recoveries > OLD.recoveries AND OLD.lease_until > torture_latest())
        EXECUTE FUNCTION torture_note('S14: run %s was taken over while its lease lasted');
    CREATE TRIGGER torture_s17 AFTER INSERT OR UPDATE OF decision ON occurrences FOR EACH ROW
        WHEN (NEW.decision IN ('missed', 'caught_up') AND NEW.scheduled_time > torture_latest())
        EXECUTE FUNCTION torture_note('S17: occurrence %s was decided before it was due');
    CREATE TABLE torture_started (id uuid PRIMARY KEY);
    GRANT SELECT, INSERT ON torture_started TO PUBLIC;
    CREATE FUNCTION torture_note_start() RETURNS trigger LANGUAGE plpgsql AS '
        BEGIN
            INSERT INTO torture_started VALUES (NEW.id);
            RETURN NULL;
        END';
    CREATE TRIGGER torture_start AFTER INSERT ON runs FOR EACH ROW
        WHEN (NEW.state = 'running') EXECUTE FUNCTION torture_note_start();
    CREATE TABLE torture_batches (ends bigint NOT NULL);
    GRANT INSERT ON torture_batches TO PUBLIC;
    CREATE FUNCTION torture_note_batch() RETURNS trigger LANGUAGE plpgsql AS '
        BEGIN
            INSERT INTO torture_batches SELECT count(*) FROM ended
             WHERE position(''-- finish runs'' IN current_query()) > 0 HAVING count(*) > 1;
            RETURN NULL;
        END';
    CREATE TRIGGER torture_batch AFTER INSERT ON runs_ended REFERENCING NEW TABLE AS ended
        FOR EACH STATEMENT EXECUTE FUNCTION torture_note_batch();
";

/// Rules for all events that a history makes, so that S19 can be checked.
const RULES: &str = "
    INSERT INTO notification_channels (team_id, name, kind, max_per_hour, is_enabled, created_on, updated_on)
    SELECT id, 'torture', 'aws', 1000, true, cronbox_now(), cronbox_now() FROM teams;
    INSERT INTO notification_rules (team_id, event, threshold, group_secs, is_enabled, created_on, updated_on)
    SELECT t.id, e.event, e.threshold, 0, true, cronbox_now(), cronbox_now()
      FROM teams t, (VALUES ('run_failed', NULL), ('abandoned', NULL), ('missed', NULL), ('auto_paused', NULL),
                            ('failures_in_a_row', 2), ('recovered', 2), ('skipped_overlap', 2)) AS e (event, threshold);
    INSERT INTO notification_rule_channels SELECT r.id, c.id FROM notification_rules r JOIN notification_channels c USING (team_id);
";

#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    config: app::Config,
}

/// The differences between the instances of a history: the length of their leases in seconds, and their executor slots.
pub(super) const LEASES: [u64; 3] = [60, 120, 600];
const SLOTS: [usize; 3] = [2, 8, 256];

impl Stage {
    pub(crate) async fn new(ablation: Ablation) -> Stage {
        let ground = Ground::new().await;
        sqlx::raw_sql(FINDINGS).execute(&mut *ground.admin.connection().await).await.unwrap();
        let how = Edit::without_request("torture", "2026-01-01T00:00:00Z".parse().unwrap());
        let process = ground.process(Some(Login::App));
        let mut tx = db::begin_transaction(&process.pool).await.unwrap();
        let (team, signing) =
            create_team(&mut tx, "ledger", &workflows::secrets::Secrets::default(), &how).await.unwrap();
        let (_, admin) = create_key(&mut tx, Holder::Admin, "operator", &how).await.unwrap();
        let (_, scheduler) = create_key(&mut tx, Holder::Scheduler, "runner", &how).await.unwrap();
        tx.commit().await.unwrap();
        ground.ended(process);
        sqlx::raw_sql(RULES).execute(&mut *ground.admin.connection().await).await.unwrap();
        for secret in [admin.reveal_text(), scheduler.reveal_text(), signing.reveal_text(), super::PASSWORD] {
            watch_secret(secret);
        }
        let (receiver, receives_at) = Receiver::listen().await;
        let (admin, scheduler) = (admin.reveal_text().to_owned(), scheduler.reveal_text().to_owned());
        let client = Client::new(Allowed::new(vec!["127.0.0.0/8".parse().unwrap()])).unwrap();
        let config = ["app", "--database-url", "unused", "--action-allow-cidrs", "127.0.0.0/8", "--env", "dev"];
        let Settings { config } = Settings::parse_from(config);
        let (instances, idle) = (AtomicUsize::default(), Mutex::default());
        Stage {
            ground,
            receiver,
            receives_at,
            team: team.id,
            ablation,
            config,
            client,
            admin,
            scheduler,
            instances,
            idle,
        }
    }

    /// A new process with random settings and the keys of its stage.
    pub(crate) async fn instance(&self, dice: &Dice, now: DateTime<Utc>) -> Instance {
        let lost_after_secs = dice.pick(&LEASES).copied().unwrap_or(120);
        let (process, tap) = self.way(lost_after_secs).await;
        let config = app::Config {
            key_requests_per_sec: 0,
            bad_keys_per_min: 0,
            lost_after_secs,
            executor_slots: dice.pick(&SLOTS).copied().unwrap_or(256),
            ..self.config.clone()
        };
        let skew = TimeDelta::seconds(self.ablation.skew_secs(dice));
        let app = App::new(config, process.pool.clone(), Clock::fixed(now + skew));
        let panics = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&panics);
        let executor = app.new_executor(self.client.clone()).after_each_action(Arc::new(move || {
            if armed.swap(false, Ordering::SeqCst) {
                // A panic without output on stderr.
                std::panic::resume_unwind(Box::new("torture"));
            }
        }));
        let (offering, batching) = self.ablation.slot_and_batch_chances().unwrap_or_default();
        // Without a chance the dice are left alone, so that the older ablations keep their known seeds.
        let happens = |chance: f64| chance > 0.0 && dice.chance(chance);
        let offers_slots = happens(offering);
        let executor = if happens(batching) { executor.end_in_batches() } else { executor };
        let instance = Instance {
            router: api::build_router(app.clone()),
            app,
            process,
            tap,
            executor,
            offers_slots,
            panics,
            skew,
            admin: self.admin.clone(),
            scheduler: self.scheduler.clone(),
        };
        instance.call(Caller::Operator, Method::GET, "/workflows?limit=1", None).await;
        instance.call(Caller::Runner, Method::POST, "/cron/workflows/999:invoke", None).await;
        instance
    }

    /// A new connection to the database, through its own tap.
    async fn way(&self, lost_after_secs: u64) -> (Process, Tap) {
        if let Some(idle) = self.idle.lock().unwrap().pop() {
            return idle;
        }
        let name = format!("instance {}", self.instances.fetch_add(1, Ordering::Relaxed));
        let tap = Tap::on(self.ground.address(), self.ablation.rewrites(lost_after_secs)).await;
        let process = self.ground.process_by_way_of(tap.address, name);
        (process, tap)
    }

    /// Takes back an instance that is idle.
    pub(crate) async fn ended(&self, instance: Instance) {
        instance.tap.forget();
        // The rewrites of its statements may depend on the length of its leases.
        if self.ablation.depends_on_lease() {
            self.ground.cut(&instance.process.name).await;
        } else {
            self.idle.lock().unwrap().push((instance.process, instance.tap));
        }
    }
}

impl Instance {
    /// The instance reads the database's clock.
    pub(crate) fn sample(&self, now: DateTime<Utc>) {
        self.app.clock.set(now + self.skew);
    }

    pub(crate) async fn call(&self, caller: Caller, method: Method, path: &str, body: Option<Value>) -> Answer {
        let key = if caller == Caller::Runner { &self.scheduler } else { &self.admin };
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("host", "app")
            .header("x-api-key", key);
        let request = request.header("content-type", "application/json");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}
