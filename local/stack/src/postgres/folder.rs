//! The folder of a database, with its password, its log and its lock.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::binaries::User;

/// A folder that belongs to the user that Postgres runs as.
pub struct Folder {
    root: PathBuf,
    user: Option<User>,
}

/// The content of `postmaster.pid`.
pub struct Postmaster {
    /// The server's process
    pub pid: u32,
    /// Whether it accepts connections
    pub ready: bool,
}

/// Returns the data folder of a workspace: `target/local`, or the system's temporary folder if the user that Postgres
/// runs as cannot enter the workspace.
///
/// # Errors
/// Fails if the folder cannot be created, or if it belongs to another program.
pub fn state_folder(target: &Path) -> Result<Folder> {
    let user = User::find_unprivileged()?;
    let wanted = target.join("local").join("postgres");
    if let Ok(folder) = Folder::create_for(wanted.clone(), user)
        && folder.can_be_entered()
    {
        return Ok(folder);
    }
    let digest = const_hex::encode(Sha256::digest(wanted.as_os_str().as_encoded_bytes()));
    let elsewhere = std::env::temp_dir().join(format!("cronbox-{}", &digest[..12]));
    Folder::create_for(elsewhere, user)
}

impl Folder {
    /// Returns a folder at a given path, created if it is missing.
    ///
    /// # Errors
    /// Fails if it cannot be created, or if the user that Postgres runs as cannot enter it.
    pub fn create_at(root: PathBuf) -> Result<Folder> {
        let folder = Folder::create_for(root, User::find_unprivileged()?)?;
        if !folder.can_be_entered() {
            bail!("the user that Postgres runs as cannot enter {}: choose another --data", folder.root.display());
        }
        Ok(folder)
    }

    /// Creates a folder in the system's temporary folder.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn create_temporary() -> Result<Folder> {
        Folder::create_temporary_in(&std::env::temp_dir())
    }

    /// Creates a folder with a name of its own.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub(crate) fn create_temporary_in(parent: &Path) -> Result<Folder> {
        let name = format!("cronbox-test-{}-{}", std::process::id(), const_hex::encode(rand::random::<[u8; 6]>()));
        Folder::create_for(parent.join(name), User::find_unprivileged()?)
    }

    fn create_for(root: PathBuf, user: Option<User>) -> Result<Folder> {
        let context = || format!("cannot make the folder {}", root.display());
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent).with_context(context)?;
        }
        let owner = match DirBuilder::new().mode(0o700).create(&root) {
            Ok(()) => None,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Some(fs::symlink_metadata(&root).with_context(context)?)
            }
            Err(error) => return Err(error).with_context(context),
        };
        let folder = Folder { root: root.clone(), user };
        match owner {
            None => folder.give_to_user(&root)?,
            // Another user may have placed a file at a path that is known beforehand.
            Some(found) if !found.is_dir() || user.is_some_and(|user| ![0, user.uid].contains(&found.uid())) => {
                bail!("{} belongs to another user: choose another folder with --data", root.display())
            }
            Some(_) => folder.give_to_user(&root)?,
        }
        // An absolute path, because Postgres is started from `/`.
        Ok(Folder { root: fs::canonicalize(&root).with_context(context)?, user })
    }

    /// Changes the owner of a file to the user that Postgres runs as.
    ///
    /// # Errors
    /// Fails if the operating system refuses access to the file.
    pub fn give_to_user(&self, path: &Path) -> Result<()> {
        let Some(user) = self.user else { return Ok(()) };
        chown(path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("cannot give {} to the user that Postgres runs as", path.display()))
    }

    /// Locks the folder against other processes of this kind as long as the file is open.
    ///
    /// # Errors
    /// Fails if another process has the lock.
    pub fn lock_folder(&self) -> Result<File> {
        let path = self.root.join("lock");
        let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "another cronbox-local uses {}: stop it, or choose another folder with --data DIR",
                    self.root.display()
                )
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// What the running server, or the last one before a crash, wrote about itself.
    pub fn read_postmaster(&self) -> Option<Postmaster> {
        let text = fs::read_to_string(self.postmaster_file()).ok()?;
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok()?;
        // A standby accepts queries.
        let is_ready = |state: &str| matches!(state.trim(), "ready" | "standby");
        Some(Postmaster { pid, ready: lines.nth(6).is_some_and(is_ready) })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The user that Postgres runs as, `None` = the current user.
    pub fn user(&self) -> Option<User> {
        self.user
    }

    /// The data folder.
    pub fn data_folder(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The major version of Postgres that made the data; `None` = there are none.
    pub fn data_version(&self) -> Option<u32> {
        fs::read_to_string(self.data_folder().join("PG_VERSION")).ok()?.trim().parse().ok()
    }

    /// The file with the password, 0600.
    pub fn password_file(&self) -> PathBuf {
        self.root.join("password")
    }

    /// The server's log.
    pub fn log_file(&self) -> PathBuf {
        self.root.join("postgres.log")
    }

    /// `postmaster.pid`
    pub fn postmaster_file(&self) -> PathBuf {
        self.data_folder().join("postmaster.pid")
    }

    fn can_be_entered(&self) -> bool {
        let mut command = Command::new("test");
        command.arg("-x").arg(&self.root).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command.status().is_ok_and(|status| status.success())
    }
}

impl Postmaster {
    /// Whether this process is a Postgres on that data; after a crash its id may be another program's.
    pub fn is_running(&self, data: &Path) -> bool {
        let reply = fs::read(format!("/proc/{}/cmdline", self.pid)).or_else(|_| {
            Command::new("ps").args(["-o", "args=", "-p", &self.pid.to_string()]).output().map(|reply| reply.stdout)
        });
        let command_line = reply.map(|reply| String::from_utf8_lossy(&reply).into_owned()).unwrap_or_default();
        command_line.contains("postgres") && command_line.contains(&*data.to_string_lossy())
    }
}
