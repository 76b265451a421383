//! The instances of the app, each with a connection of its own that a history can step, cut or kill.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use app::actions::address::Allowed;
use app::actions::http::Client;
use app::audit::Edit;
use app::keys::Holder;
use app::{App, api, keys, teams};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use clap::Parser;
use schedule::Clock;
use serde_json::Value;
use tower::ServiceExt;

use super::receiver::Receiver;
use crate::canary;
use crate::ground::{Ground, Process};
use crate::tap::Tap;

/// What the histories of one thread share.
pub(crate) struct Stage {
    pub(crate) ground: Ground,
    pub(crate) receiver: Receiver,
    pub(crate) receives_at: SocketAddr,
    pub(crate) team: i64,
    client: Client,
    admin: String,
    scheduler: String,
    instances: AtomicUsize,
}

/// One process of the app.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) app: App,
    pub(crate) process: Process,
    pub(crate) tap: Tap,
    /// For its actions.
    pub(crate) client: Client,
    router: Router,
    admin: String,
    scheduler: String,
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Operator,
    Runner,
}

/// A status and a body.
pub(crate) type Answer = (u16, Value);

#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    config: app::Config,
}

impl Stage {
    pub(crate) async fn new() -> Stage {
        let ground = Ground::new().await;
        let how = Edit { actor: "torture".to_owned(), now: "2026-01-01T00:00:00Z".parse().unwrap(), traceparent: None };
        let mut tx = db::begin(&ground.admin).await.unwrap();
        let (team, signing) = teams::create(&mut tx, "ledger", &how).await.unwrap();
        let (_, admin) = keys::create(&mut tx, Holder::Admin, "operator", &how).await.unwrap();
        let (_, scheduler) = keys::create(&mut tx, Holder::Scheduler, "runner", &how).await.unwrap();
        tx.commit().await.unwrap();
        for secret in [admin.reveal(), scheduler.reveal(), signing.reveal(), super::PASSWORD] {
            canary::watch(secret);
        }
        let (receiver, receives_at) = Receiver::listen().await;
        let (admin, scheduler) = (admin.reveal().to_owned(), scheduler.reveal().to_owned());
        let client = Client::new(Allowed::new(vec!["127.0.0.0/8".parse().unwrap()])).unwrap();
        let instances = AtomicUsize::default();
        Stage { ground, receiver, receives_at, team: team.id, client, admin, scheduler, instances }
    }

    /// A process that has just started; its keys are known to it.
    pub(crate) async fn instance(&self, clock: &Clock) -> Instance {
        let name = format!("instance {}", self.instances.fetch_add(1, Ordering::Relaxed));
        let tap = Tap::on(self.ground.address()).await;
        let process = self.ground.process_by_way_of(tap.address, name);
        let config = ["app", "--database-url", "unused", "--action-allow-cidrs", "127.0.0.0/8", "--env", "dev"];
        let Settings { config } = Settings::parse_from(config);
        let config = app::Config { key_requests_per_sec: 0, bad_keys_per_min: 0, ..config };
        let app = App::new(config, process.pool.clone(), clock.clone());
        let instance = Instance {
            router: api::router(app.clone()),
            app,
            process,
            tap,
            client: self.client.clone(),
            admin: self.admin.clone(),
            scheduler: self.scheduler.clone(),
        };
        instance.call(Caller::Operator, Method::GET, "/workflows?limit=1", None).await;
        instance.call(Caller::Runner, Method::POST, "/cron/workflows/999:invoke", None).await;
        instance
    }
}

impl Instance {
    pub(crate) async fn call(&self, caller: Caller, method: Method, path: &str, body: Option<Value>) -> Answer {
        let key = if caller == Caller::Runner { &self.scheduler } else { &self.admin };
        let request = Request::builder().method(method).uri(format!("/api/v1{path}")).header("x-api-key", key);
        let request = request.header("content-type", "application/json");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}
