//! The app that ships, the naive peer, and a server that does nothing. Each is a process, the former two on the backlog's
//! database.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use access::keys::{Holder, create_key};
use access::teams::create_team;
use local::config::target_folder;
use local::postgres::{Login, log_in_as};
use schedule::Clock;
use tests::{Api, Story};
use tokio::process::{Child, Command};
use workflows::audit::Edit;

use crate::backlog::{Backlog, ENVIRONMENT};
use crate::{empty_handler, free_port, program};

/// An app that is ready.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) team: i64,
    pub(crate) admin: String,
    pub(crate) scheduler: String,
    command: Command,
    process: Child,
}

impl Service {
    /// Starts the app. Without executor slots, its runs stay accepted.
    pub(crate) async fn app(backlog: &Backlog, executor_slots: usize) -> Service {
        Service::app_through(backlog, executor_slots, &log_in_as(&backlog.dsn(), Login::App), "none").await
    }

    /// The same, with a DSN that may lead through a pooler of this mode.
    pub(crate) async fn app_through(backlog: &Backlog, executor_slots: usize, dsn: &str, mode: &str) -> Service {
        let mut tx = db::begin_transaction(&backlog.pool).await.unwrap();
        let (team, _) =
            create_team(&mut tx, &format!("bench {mode}"), &workflows::secrets::Secrets::default(), &bench_edit())
                .await
                .unwrap();
        let (_, admin) = create_key(&mut tx, Holder::Admin, "bench", &bench_edit()).await.unwrap();
        let (_, scheduler) = create_key(&mut tx, Holder::Scheduler, "bench", &bench_edit()).await.unwrap();
        tx.commit().await.unwrap();
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let mut command = app_command(address, executor_slots, dsn, mode);
        // The environment of the publishers: another one would hold the database as a clone.
        command.env("CRONBOX_ENV", ENVIRONMENT);
        let (admin, scheduler) = (admin.reveal_text().to_owned(), scheduler.reveal_text().to_owned());
        Service::start(command, address, team.id, admin, scheduler).await
    }

    /// Starts the app on the database of a story, with the keys of the story. It executes no run.
    pub(crate) async fn of_story(story: &Story) -> Service {
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let mut command = app_command(address, 0, &story.dsn(), "none");
        command.env("CRONBOX_ENV", story.app().config.env.to_string());
        let (admin, scheduler) = (story.keys.admin.clone(), story.keys.scheduler.clone());
        Service::start(command, address, story.keys.team_id, admin, scheduler).await
    }

    /// Starts the peer.
    pub(crate) async fn fastapi(backlog: &Backlog) -> Service {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");
        let venv = target_folder().join("bench/venv");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/venv.sh");
        let made = Command::new("sh").arg(script).arg(&venv).arg(format!("{folder}/requirements.txt")).status().await;
        assert!(made.unwrap().success(), "the peer's Python tools cannot be had");
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let mut command = Command::new(venv.join("bin/uvicorn"));
        command.args(["fastapi_invoke:app", "--app-dir", folder, "--no-access-log", "--log-level", "error"]);
        command.args(["--port", &address.port().to_string()]).envs([("CRONBOX_DB_DSN", backlog.dsn())]);
        command.env("API_KEY", "peer");
        Service::start(command, address, 0, String::new(), "peer".to_owned()).await
    }

    /// Starts a server that does nothing but answer.
    pub(crate) async fn empty_handler() -> Service {
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([empty_handler::ARGUMENT, &address.to_string()]);
        Service::start(command, address, 0, String::new(), "none".to_owned()).await
    }

    async fn start(mut command: Command, address: SocketAddr, team: i64, admin: String, scheduler: String) -> Service {
        command.kill_on_drop(true).stdout(Stdio::null());
        let process = command.spawn().unwrap();
        let service = Service { address, team, admin, scheduler, command, process };
        service.until_ready().await;
        service
    }

    /// Kills the process with SIGKILL, and starts it again at the same address.
    pub(crate) async fn restart(&mut self) {
        self.process.kill().await.unwrap();
        self.process = self.command.spawn().unwrap();
        self.until_ready().await;
    }

    /// Stops the app, and waits until the server has ended its sessions, whose statistics are complete then.
    pub(crate) async fn stop(mut self, backlog: &Backlog) {
        self.process.kill().await.unwrap();
        while backlog.scalar::<i64>(SESSIONS).await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    pub(crate) fn as_admin(&self) -> Api {
        Api::new(&format!("http://{}", self.address), &self.admin)
    }

    async fn until_ready(&self) {
        let (api, began) = (Api::without_key(&format!("http://{}", self.address)), Instant::now());
        while !api.try_get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
            assert!(began.elapsed() < Duration::from_secs(20), "it is never ready");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The app without its environment, and without limits, because one key and one team stand for many.
fn app_command(address: SocketAddr, executor_slots: usize, dsn: &str, mode: &str) -> Command {
    let mut command = Command::new(program("cronbox-app"));
    command.arg("serve").envs([("DATABASE_URL", dsn), ("CRONBOX_BIND_ADDR", &address.to_string())]);
    command.envs([("CRONBOX_POOLER", mode), ("RUST_LOG", "error")]);
    command.env("CRONBOX_EXECUTOR_SLOTS", executor_slots.to_string());
    command.envs([
        ("CRONBOX_KEY_REQUESTS_PER_SEC", "0"),
        ("CRONBOX_KEY_REQUESTS_IN_FLIGHT", "0"),
        ("CRONBOX_TEAM_REQUESTS_IN_FLIGHT", "0"),
        ("CRONBOX_TEAM_EDITS_IN_FLIGHT", "0"),
        ("CRONBOX_REQUESTS_IN_FLIGHT", "0"),
        ("CRONBOX_ADDRESS_REQUESTS_IN_FLIGHT", "0"),
    ]);
    // The receivers of the bench are on this machine.
    command.env("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8");
    command
}

/// Sessions of other processes on this database.
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity
                         WHERE datname = current_database() AND backend_type = 'client backend'
                           AND application_name <> 'cronbox-bench'";

/// The actor of the edits that the bench makes without the API.
pub(crate) fn bench_edit() -> Edit {
    Edit::without_request("bench", Clock::System.now())
}
