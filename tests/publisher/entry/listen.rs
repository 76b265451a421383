//! The daemon publishes each edit at once.

#[cfg(debug_assertions)]
use std::sync::Arc;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use db::PgPool;
#[cfg(debug_assertions)]
use futures::FutureExt;
#[cfg(debug_assertions)]
use publisher::{Hook, Point};
#[cfg(debug_assertions)]
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::json;
use tests::PATIENCE;
#[cfg(debug_assertions)]
use tests::Way;
use tokio::sync::oneshot;
#[cfg(debug_assertions)]
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

#[cfg(debug_assertions)]
use crate::converge::schedules::manual_schedule;
use crate::world::{World, name, soon};

/// A poll interval that is longer than any story.
const HOUR: Duration = Duration::from_secs(3600);

/// A daemon in the background, and a channel that stops it.
pub(crate) struct Daemon {
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Daemon {
    pub(crate) async fn start(world: &World) -> Daemon {
        Daemon::of(world.publisher().await)
    }

    pub(crate) fn of(publisher: publisher::Publisher) -> Daemon {
        let (stop, stopped) = oneshot::channel::<()>();
        let running =
            tokio::spawn(
                async move { publisher.publish_on_notification(None, None, async { drop(stopped.await) }).await },
            );
        Daemon { stop, running }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.running.await.unwrap().unwrap();
    }
}

async fn notify(pool: &PgPool) {
    sqlx::query("SELECT pg_notify('cronbox_outbox', '')").execute(pool).await.unwrap();
}

async fn until_visible(world: &World, calls: usize) {
    let (mut seen, began) = (0, Instant::now());
    while seen < calls {
        assert!(began.elapsed() < PATIENCE, "{seen} calls, and never {calls}");
        seen += world.calls().len();
        tokio::task::yield_now().await;
    }
}

/// The poll interval is so long that only the notifications can have caused the publishing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_notification_publishes_an_edit() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let daemon = Daemon::of(world.publisher().await.polling_every(HOUR));
    until_visible(&world, 1).await;
    for minute in 1..=31 {
        world.patch(workflow, json!({"cron_schedule": format!("{minute} 9 * * *")})).await;
        notify(&world.pool).await;
        until_visible(&world, 1).await;
    }
    daemon.stop().await;
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_poll_finds_edits_without_a_notification() {
    let world = World::new().await;
    let daemon = Daemon::start(&world).await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    until_visible(&world, 1).await;
    // Its settle follows. Then nothing is due, and no notification is sent.
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    until_visible(&world, 1).await;
    daemon.stop().await;
    world.assert_settled().await;
}

/// The poll would come much later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_wake_when_a_backoff_ends() {
    let world = World::new().await;
    // A finished sweep also wakes the drain, so this one makes sure that no sweep is due.
    world.publisher().await.sweep_schedules(soon()).await.unwrap();
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [crate::proxy::THROTTLED]);
    let daemon = Daemon::of(world.publisher().await.polling_every(HOUR));
    until_visible(&world, 2).await;
    daemon.stop().await;
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_listen_again_after_lost_connections() {
    let world = World::new().await;
    let daemon = Daemon::start(&world).await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    until_visible(&world, 1).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::query(cut).execute(&world.pool).await.unwrap();
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    notify(&world.pool).await;
    until_visible(&world, 1).await;
    daemon.stop().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
}

/// Moves the daemon's clock on, second by second, so that what falls due on the way is done in its order.
pub(crate) async fn pass_seconds(secs: u64) {
    for _ in 0..secs {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(debug_assertions)]
async fn until_listening(world: &World) {
    let listening = "SELECT EXISTS (SELECT FROM pg_stat_activity
                      WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN%')";
    let began = Instant::now();
    while !sqlx::query_scalar::<_, bool>(listening).fetch_one(&world.pool).await.unwrap() {
        assert!(began.elapsed() < PATIENCE, "nothing listens");
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn until_synced(world: &World, workflow: WorkflowId) {
    let began = Instant::now();
    while world.publication(workflow).await.sync != "synced" {
        assert!(began.elapsed() < PATIENCE, "never published");
        tokio::task::yield_now().await;
    }
}

/// A gate that drains must pass. It opens when a daemon connects in order to listen.
#[cfg(debug_assertions)]
#[derive(Clone)]
struct Gate {
    is_open: Arc<watch::Sender<bool>>,
    drains: Arc<AtomicUsize>,
}

#[cfg(debug_assertions)]
impl Gate {
    fn open() -> Self {
        Gate { is_open: Arc::new(watch::channel(true).0), drains: Arc::default() }
    }

    fn hook(&self) -> Hook {
        let gate = self.clone();
        let at = Arc::new(move |point| {
            let gate = gate.clone();
            async move {
                match point {
                    Point::P0 => gate.enter().await,
                    Point::P12 => _ = gate.drains.fetch_sub(1, Ordering::SeqCst),
                    Point::L1 => _ = gate.is_open.send_replace(true),
                    _ => {}
                }
            }
            .boxed()
        });
        Hook { at, stopwatch: publisher::Stopwatch::default(), seed: 0 }
    }

    async fn enter(&self) {
        let _ = self.is_open.subscribe().wait_for(|is_open| *is_open).await;
        self.drains.fetch_add(1, Ordering::SeqCst);
    }

    /// Closes the gate, and returns when the running drain has ended.
    async fn close(&self) {
        self.is_open.send_replace(false);
        let began = Instant::now();
        while self.drains.load(Ordering::SeqCst) > 0 {
            assert!(began.elapsed() < PATIENCE, "the drain does not end");
            tokio::task::yield_now().await;
        }
    }
}

/// The database's host vanishes. Within a minute, the daemon must reconnect and listen.
///
/// Nothing else can find the edit: no notification arrives, the poll interval is too long, and a drain that is retried
/// waits at the gate.
#[cfg(debug_assertions)]
#[tokio::test]
async fn daemons_listen_anew_after_their_server_vanished() {
    let world = World::new().await;
    // A finished sweep also wakes the drain, so this one makes sure that no sweep is due.
    world.publisher().await.sweep_schedules(soon()).await.unwrap();
    let (way, gate) = (Way::to(&world.dsn).await, Gate::open());
    let publisher = world.publisher_hooked_by_way_of(&way.dsn(&world.dsn), gate.hook()).await;
    let daemon = Daemon::of(publisher.polling_every(HOUR));
    until_listening(&world).await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    notify(&world.pool).await;
    until_synced(&world, workflow).await;

    gate.close().await;
    way.silence();
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    notify(&world.pool).await;
    pass_seconds(60).await;
    until_synced(&world, workflow).await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));

    world.patch(workflow, json!({"cron_schedule": "0 11 * * *"})).await;
    notify(&world.pool).await;
    until_synced(&world, workflow).await;
    daemon.stop().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 11 * * ? *)"));
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_daemon_settles_its_claims() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.delay(&name(workflow));
    let daemon = Daemon::start(&world).await;
    world.front.arrival(&name(workflow)).await;
    let stopping = tokio::spawn(daemon.stop());
    world.front.release();
    stopping.await.unwrap();
    assert_eq!(world.publication(workflow).await.sync, "synced");
    world.assert_settled().await;
}

/// The daemon gets no notification of an edit between its first drain and `LISTEN`.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_before_listening_need_no_poll() {
    let world = World::new().await;
    // A finished sweep also wakes the drain, so this one makes sure that no sweep is due.
    world.publisher().await.sweep_schedules(soon()).await.unwrap();
    let (scanned, may_listen) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (scan, listen) = (Arc::clone(&scanned), Arc::clone(&may_listen));
    let at = Arc::new(move |point| {
        let (scan, listen) = (Arc::clone(&scan), Arc::clone(&listen));
        async move {
            match point {
                Point::P12 => scan.notify_one(),
                Point::L1 => listen.notified().await,
                _ => {}
            }
        }
        .boxed()
    });
    let hook = Hook { at, stopwatch: publisher::Stopwatch::default(), seed: 0 };
    let daemon = Daemon::of(world.publisher_hooked(hook).await.polling_every(HOUR));
    scanned.notified().await;

    // The scan is over and the daemon does not listen yet, so this notification is lost.
    let workflow = world.create("0 9 * * *", "UTC").await;
    notify(&world.pool).await;
    may_listen.notify_one();
    until_visible(&world, 1).await;

    daemon.stop().await;
    assert_eq!(world.publication(workflow).await.sync, "synced");
}

/// So the daemon may make the next call for the same workflow.
#[cfg(debug_assertions)]
#[tokio::test]
async fn daemons_renew_leases_of_slow_calls() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.meddle(Method::POST, workflow, manual_schedule("cron(0 1 * * ? *)")).await;
    world.front.delay(&name(workflow));
    let stopwatch = publisher::Stopwatch::new_stopped();
    let at = Arc::new(|_| std::future::ready(()).boxed());
    let hook = Hook { at, stopwatch: stopwatch.clone(), seed: 0 };
    let daemon = Daemon::of(world.publisher_hooked(hook).await);
    world.front.arrival(&name(workflow)).await;

    // Both clocks of the lease are near its end when the renewal is due.
    world.skip(Duration::from_secs(45)).await;
    stopwatch.advance_by(Duration::from_secs(45));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20)).await;
    tokio::time::resume();
    let left = "SELECT EXTRACT(EPOCH FROM lease_until - cronbox_now())::float8 FROM publications";
    let renewed = async {
        while sqlx::query_scalar::<_, f64>(left).fetch_one(&world.pool).await.unwrap() < 50.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("the lease is renewed");

    // After the first lease would have ended, no publisher takes over, and the next update still has a valid signature.
    world.skip(Duration::from_secs(65)).await;
    stopwatch.advance_by(Duration::from_secs(20));
    assert_eq!(world.publish().await.created, 0);
    world.front.release();
    until_visible(&world, 2).await;
    daemon.stop().await;
    let publication = world.publication(workflow).await;
    assert_eq!((publication.epoch, publication.sync.as_str()), (1, "synced"));
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 9 * * ? *)"));
    world.assert_settled().await;
}

/// A supervisor that restarts only failed processes would not restart a daemon that ends without an error.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_outlives_a_year() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let stopwatch = publisher::Stopwatch::new_stopped();
    let at = Arc::new(|_| std::future::ready(()).boxed());
    let daemon = Daemon::of(world.publisher_hooked(Hook { at, stopwatch: stopwatch.clone(), seed: 0 }).await);
    until_visible(&world, 1).await;

    stopwatch.advance_by(Duration::from_secs(400 * 24 * 3600));
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    notify(&world.pool).await;
    let published = async {
        while world.expression(workflow).await.as_deref() != Some("cron(0 10 * * ? *)") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, published).await.expect("it still publishes");
    daemon.stop().await;
}
