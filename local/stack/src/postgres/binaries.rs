//! Finds Postgres's programs on this machine, and the user that may run them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The oldest server that the migrations run on.
const OLDEST: u32 = 15;

/// The folders in which distributions install the programs, with a placeholder for the version.
const USUAL_PLACES: [&str; 6] = [
    "/usr/lib/postgresql/{}/bin",
    "/usr/pgsql-{}/bin",
    "/opt/homebrew/opt/postgresql@{}/bin",
    "/usr/local/opt/postgresql@{}/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql@{}/bin",
    "/Library/PostgreSQL/{}/bin",
];

/// The versions to search in these folders, newest first.
const VERSIONS: std::ops::RangeInclusive<u32> = OLDEST..=30;

/// A folder with `initdb`, `postgres` and `pg_ctl` of a supported version.
pub(super) struct Binaries(PathBuf);

/// A user other than root, because Postgres refuses to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User id
    pub uid: u32,
    /// Group id
    pub gid: u32,
}

impl Binaries {
    /// Finds the first supported version.
    ///
    /// # Errors
    /// Returns one sentence that says what to install.
    pub(super) fn find_installed() -> Result<Binaries> {
        match choose_folder(installed(), None) {
            Some(folder) => Ok(Binaries(folder)),
            None => bail!(
                "Postgres {OLDEST} or later is not installed: run `make setup`, which installs the package \
                 `postgresql` (Debian) or `postgresql@17` (Homebrew)"
            ),
        }
    }

    /// Finds a major version: no other one reads its data.
    pub(super) fn find_version(major: u32) -> Option<Binaries> {
        choose_folder(installed(), Some(major)).map(Binaries)
    }

    /// Whether the server can load this library; it comes with Postgres's contrib modules.
    pub(super) fn has_library(&self, name: &str) -> bool {
        // The folders of Debian and PGDG, Homebrew, and Fedora.
        let folders = ["../lib", "../lib/postgresql", "../lib64/pgsql"];
        let endings = ["so", "dylib"];
        let mut files = folders.iter().flat_map(|folder| endings.map(|ending| format!("{folder}/{name}.{ending}")));
        files.any(|file| self.0.join(file).is_file())
    }

    /// The path of one of the programs.
    pub(super) fn program_path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl User {
    /// The user that Postgres must run as: `None` = the current user, unless that is root.
    ///
    /// # Errors
    /// Fails if this process runs as root and neither the user `postgres` nor the user `nobody` exists.
    pub(super) fn find_unprivileged() -> Result<Option<User>> {
        let id = Command::new("id").arg("-u").output().context("cannot run `id -u`")?;
        if id.stdout.trim_ascii() != b"0" {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        match user_in(&passwd, "postgres").or_else(|| user_in(&passwd, "nobody")) {
            Some(user) => Ok(Some(user)),
            None => bail!("Postgres does not run as root: add a user `postgres`, or run this as another user"),
        }
    }
}

/// The folders that have all programs, with their major version: that of PATH, that of `pg_config`, then those of distributions.
fn installed() -> impl Iterator<Item = (PathBuf, u32)> {
    let usual = VERSIONS.rev().flat_map(|version| {
        USUAL_PLACES.iter().map(move |place| PathBuf::from(place.replace("{}", &version.to_string())))
    });
    let fedora = PathBuf::from("/usr/bin");
    let folders = on_path().into_iter().chain(by_pg_config()).chain(usual).chain([fedora]);
    folders.filter_map(|folder| {
        let has_all = ["initdb", "postgres", "pg_ctl"].iter().all(|program| folder.join(program).is_file());
        let version = has_all.then(|| version(&folder.join("postgres")))??;
        Some((folder, version))
    })
}

/// The first folder with the version that made the data, or without data with a version that the migrations run on.
fn choose_folder(installed: impl IntoIterator<Item = (PathBuf, u32)>, made_by: Option<u32>) -> Option<PathBuf> {
    let mut installed = installed.into_iter();
    let found = installed.find(|(_, version)| made_by.map_or(*version >= OLDEST, |made_by| made_by == *version));
    found.map(|(folder, _)| folder)
}

fn on_path() -> Option<PathBuf> {
    let found = Command::new("sh").args(["-c", "command -v postgres"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
    // Follow the link, because the folder of a link such as /usr/local/bin/postgres does not have all programs.
    fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}

fn by_pg_config() -> Option<PathBuf> {
    let found = Command::new("pg_config").arg("--bindir").output().ok()?;
    Some(PathBuf::from(String::from_utf8(found.stdout).ok()?.trim()))
}

/// The major version in the output of `postgres --version`, for example `postgres (PostgreSQL) 15.14 (Debian ..)`.
fn version(postgres: &Path) -> Option<u32> {
    let reply = Command::new(postgres).arg("--version").output().ok()?;
    let reply = String::from_utf8(reply.stdout).ok()?;
    let number =
        reply.split_whitespace().find(|word| word.starts_with(|character: char| character.is_ascii_digit()))?;
    number.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

fn user_in(passwd: &str, name: &str) -> Option<User> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
    Some(User { uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that gets a newer version keeps the older one, whose data the newer one does not read.
    #[test]
    fn data_are_opened_by_their_version() {
        let installed = || [("/new", 17), ("/old", 15)].map(|(folder, version)| (PathBuf::from(folder), version));
        assert_eq!(choose_folder(installed(), None), Some(PathBuf::from("/new")));
        assert_eq!(choose_folder(installed(), Some(15)), Some(PathBuf::from("/old")));
        assert_eq!(choose_folder(installed(), Some(16)), None);
        assert_eq!(choose_folder([(PathBuf::from("/too old"), 14)], None), None);
    }

    #[test]
    fn users_are_found_by_complete_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\npostgres2:x:1:1::/:/bin/sh\npostgres:x:101:104:,,,:/var:/bin/bash";
        assert_eq!(user_in(passwd, "postgres"), Some(User { uid: 101, gid: 104 }));
        assert_eq!(user_in(passwd, "nobody"), None);
    }
}
