//! A private Postgres server: from the system's programs, only on this machine, stopped together with this process.
//!
//! The server runs under a small shell that waits on a pipe from this process. When this process ends, also by kill -9,
//! the pipe closes and the shell stops the server.

mod binaries;
mod folder;
mod logins;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::binaries::{Binaries, User};
pub use self::folder::{Folder, state_folder};
use self::logins::ROLE;
pub use self::logins::{Login, log_in_as};

/// `$1` is the signal that stops the server, `$2` what to remove then, the rest the server's command line.
const KEEPER: &str = r#"
signal=$1 leftovers=$2
shift 2
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
# Our parent has the other end of this pipe, which closes when the parent ends, however it ends.
( read -r _ <&3; kill "-$signal" "$server" ) 2>/dev/null &
watcher=$!
exec 3<&-
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
if [ -n "$leftovers" ]; then rm -rf "$leftovers"; fi
exit $status
"#;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the data are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They are kept, and must survive a crash
    Keep,
    /// They are removed with the server, which only has to be fast
    ThrowAway,
}

/// A running server; dropping it stops the server.
pub struct Postgres {
    port: u16,
    password: String,
    keeper: Child,
    pipe: Option<ChildStdin>,
    _lock: File,
}

impl Postgres {
    /// Creates the data folder if it does not exist, and starts the server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Fails if there are no programs, if another process uses the folder, or if the server does not start; the error
    /// names its log.
    pub fn start_server(folder: &Folder, purpose: Purpose) -> Result<Postgres> {
        let binaries = find_binaries(folder)?;
        let lock = folder.lock_folder()?;
        let cluster = Cluster { binaries: &binaries, folder, user: folder.user() };
        let password = if folder.data_folder().join("PG_VERSION").exists() {
            cluster.stop_leftover()?;
            fs::read_to_string(folder.password_file()).context("cannot read the database's password beside its data")?
        } else {
            cluster.init(purpose)?
        };
        for _ in 0..3 {
            let port = free_port()?;
            let (mut keeper, pipe) = cluster.spawn(port, purpose)?;
            if cluster.wait_until_ready(&mut keeper)? {
                return Ok(Postgres { port, password, keeper, pipe: Some(pipe), _lock: lock });
            }
        }
        bail!("Postgres does not start: {}", cluster.last_words())
    }

    /// The DSN of one of its databases.
    pub fn dsn(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// The password of all logins.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The process that supervises the server; for a test that kills it.
    pub fn keeper_id(&self) -> u32 {
        self.keeper.id()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // If waiting for the supervisor fails, there is nothing else to do.
        let _ended = self.keeper.wait();
    }
}

/// The programs with one folder and one user.
struct Cluster<'a> {
    binaries: &'a Binaries,
    folder: &'a Folder,
    user: Option<User>,
}

impl Cluster<'_> {
    fn init(&self, purpose: Purpose) -> Result<String> {
        // With SCRAM each connection costs the client and the server thousands of hashes, and tests open thousands of them.
        let auth = if purpose == Purpose::Keep { "scram-sha-256" } else { "md5" };
        let password = new_password();
        self.write_password(&password)?;
        let made = self
            .command(&self.binaries.program_path("initdb"))
            .arg("--pgdata")
            .arg(self.folder.data_folder())
            .arg("--pwfile")
            .arg(self.folder.password_file())
            .args(["--username", ROLE, "--auth", auth, "--encoding", "UTF8", "--locale", "C", "--no-sync"])
            .output()
            .context("cannot run initdb")?;
        if !made.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim());
        }
        Ok(password)
    }

    fn write_password(&self, password: &str) -> Result<()> {
        let path = self.folder.password_file();
        let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(password.as_bytes())?;
        self.folder.give_to_user(&path)
    }

    fn spawn(&self, port: u16, purpose: Purpose) -> Result<(Child, ChildStdin)> {
        let log = File::create(self.folder.log_file()).context("cannot write Postgres's log")?;
        let (signal, leftovers) = match purpose {
            Purpose::Keep => ("INT", PathBuf::new()),
            Purpose::ThrowAway => ("QUIT", self.folder.root().to_owned()),
        };
        let mut command = self.command(Path::new("sh"));
        command.args(["-c", KEEPER, "postgres-keeper", signal]).arg(leftovers);
        command.arg(self.binaries.program_path("postgres")).arg("-D").arg(self.folder.data_folder());
        for setting in settings(port, purpose, self.binaries) {
            command.arg("-c").arg(setting);
        }
        // A separate process group: Ctrl-C reaches only this process, which stops the server last.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let mut keeper = command.spawn().context("cannot start Postgres")?;
        let pipe = keeper.stdin.take().context("the process that starts Postgres has no standard input")?;
        Ok((keeper, pipe))
    }

    /// Whether the server has started. If it has exited, the caller may try another port.
    #[expect(clippy::disallowed_methods, reason = "the start of a server is waited for on a thread of its own")]
    fn wait_until_ready(&self, keeper: &mut Child) -> Result<bool> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if keeper.try_wait()?.is_some() {
                return Ok(false);
            }
            if self.folder.read_postmaster().is_some_and(|postmaster| postmaster.ready) {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("Postgres is not ready after {} s: {}", PATIENCE.as_secs(), self.last_words())
    }

    /// Stops a server that outlived its supervisor, and removes a file that a crash left behind.
    fn stop_leftover(&self) -> Result<()> {
        let Some(postmaster) = self.folder.read_postmaster() else { return Ok(()) };
        if !postmaster.is_running(&self.folder.data_folder()) {
            return fs::remove_file(self.folder.postmaster_file()).context("cannot remove the stale postmaster.pid");
        }
        let stopped = self
            .command(&self.binaries.program_path("pg_ctl"))
            .arg("--pgdata")
            .arg(self.folder.data_folder())
            .args(["--mode", "fast", "--wait", "--silent", "stop"])
            .output()
            .context("cannot run pg_ctl")?;
        // It may have exited meanwhile.
        if stopped.status.success() || self.folder.read_postmaster().is_none() {
            return Ok(());
        }
        bail!("a Postgres still runs on {}: stop process {}", self.folder.data_folder().display(), postmaster.pid)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.log_file()).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        format!("{last} (see {})", self.folder.log_file().display())
    }
}

fn settings(port: u16, purpose: Purpose, binaries: &Binaries) -> Vec<String> {
    let mut settings = vec![
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "unix_socket_directories=".to_owned(),
        "max_connections=400".to_owned(),
        "log_line_prefix=%m [%p] ".to_owned(),
    ];
    if purpose == Purpose::ThrowAway {
        let fast = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal"];
        settings.extend(fast.map(str::to_owned));
        settings.extend(["max_wal_senders=0", "autovacuum=off"].map(str::to_owned));
        // A library cannot be loaded later. It counts nothing until the settings of a database say so.
        if binaries.has_library("pg_stat_statements") {
            let counting = ["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=none"];
            settings.extend(counting.map(str::to_owned));
        }
    }
    settings
}

fn find_binaries(folder: &Folder) -> Result<Binaries> {
    let Some(major) = folder.data_version() else { return Binaries::find_installed() };
    Binaries::find_version(major).with_context(|| {
        format!(
            "the data in {} are those of Postgres {major}, which is not installed: install it, name another folder with --data DIR, or \
             remove this one",
            folder.root().display()
        )
    })
}

fn new_password() -> String {
    const_hex::encode(rand::random::<[u8; 24]>())
}

/// Returns a port that was free a moment ago; if another program takes it first, the start is repeated.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}
