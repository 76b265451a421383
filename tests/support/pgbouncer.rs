//! The real pgbouncer, before the server of a database.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use local::postgres::{Folder, Login};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::story::host_of;
use crate::{PATIENCE, find_kept_port};

/// A running pgbouncer; dropping it stops it.
pub struct PgBouncer {
    address: SocketAddr,
    target: String,
    folder: Folder,
    _process: Child,
}

impl PgBouncer {
    /// Starts one before the server of `dsn`, with its defaults; `mode` is `session` or `transaction`.
    pub async fn start(dsn: &str, mode: &str) -> Self {
        Self::start_with(dsn, mode, "").await
    }

    /// The same, with a further line of its configuration.
    pub async fn start_with(dsn: &str, mode: &str, more: &str) -> Self {
        let program = installed();
        let folder = Folder::create_temporary().unwrap_or_else(|error| panic!("no folder: {error:#}"));
        let target = host_of(dsn).to_owned();
        let address = free_address();
        let password = dsn.split([':', '@']).nth(2).unwrap_or_default();
        let logins = ["cronbox"].into_iter().chain(Login::ALL.map(Login::name));
        let users: String = logins.map(|login| format!("\"{login}\" \"{password}\"\n")).collect();
        let users = write(&folder, "users.txt", &users);
        let settings = settings(&target, address, mode, &users, more);
        let settings = write(&folder, "pgbouncer.ini", &settings);
        let mut command = Command::new(program);
        command.arg(settings).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It refuses to run as root.
        if let Some(user) = folder.user() {
            command.uid(user.uid).gid(user.gid);
        }
        let mut process = command.kill_on_drop(true).spawn().unwrap_or_else(|error| panic!("no pgbouncer: {error}"));
        let began = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            assert!(matches!(process.try_wait(), Ok(None)), "pgbouncer ended at its start");
            assert!(began.elapsed() < PATIENCE, "pgbouncer does not listen");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Self { address, target, folder, _process: process }
    }

    /// The same DSN, through pgbouncer.
    pub fn dsn(&self, dsn: &str) -> String {
        dsn.replace(&self.target, &self.address.to_string())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.folder.root()).ok();
    }
}

fn installed() -> PathBuf {
    let places =
        ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/opt/homebrew/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
    let found = places.into_iter().map(PathBuf::from).find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("pgbouncer is not installed: run `make setup`"))
}

fn settings(target: &str, address: SocketAddr, mode: &str, users: &Path, more: &str) -> String {
    let (host, port) = target.rsplit_once(':').unwrap_or((target, "5432"));
    format!(
        "[databases]\n\
         * = host={host} port={port}\n\
         [pgbouncer]\n\
         listen_addr = {}\n\
         listen_port = {}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {}\n\
         pool_mode = {mode}\n\
         default_pool_size = 40\n\
         max_client_conn = 400\n\
         server_login_retry = 1\n\
         {more}\n",
        address.ip(),
        address.port(),
        users.display(),
    )
}

fn write(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let path = folder.root().join(name);
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    folder.give_to_user(&path).unwrap_or_else(|error| panic!("{error:#}"));
    path
}

/// An address that nothing takes before pgbouncer does.
fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, find_kept_port()).into()
}
