//! `make lambdas` refuses a binary that Amazon Linux 2023 could not start.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use local::config::target_folder;
use serde_json::Value;

/// A binary built for `glibc`; `strlcpy` exists since glibc 2.38.
fn built_for(glibc: &str, calls: &str) -> PathBuf {
    // Tests run at the same time, and two of them build the same binary.
    let thread = std::thread::current();
    let folder = target_folder().join("deploy-zips").join(thread.name().unwrap().replace(':', "-"));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join(format!("{calls}-{glibc}.c")), folder.join(format!("{calls}-{glibc}")));
    let code = format!(
        "#include <string.h>\nint main(int n, char **v) {{ char to[9]; return (int)(long){calls}(to, v[0], sizeof to); }}\n"
    );
    std::fs::write(&source, code).unwrap();
    let mut zig = Command::new(target_folder().join("venv-lambdas/bin/python"));
    zig.args(["-m", "ziglang", "cc", "-target", &format!("x86_64-linux-gnu.{glibc}"), "-o"]).arg(&binary).arg(&source);
    let done = zig.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    binary
}

fn zipped(binary: &PathBuf, more: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/zips.py");
    let mut python = Command::new(target_folder().join("venv-lambdas/bin/python"));
    python.arg(script).arg(binary).arg(binary.with_extension("zip")).args(more).output().unwrap()
}

#[test]
fn symbols_of_newer_glibc_are_refused() {
    let refused = zipped(&built_for("2.38", "strlcpy"), &[]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("asks for GLIBC_2.38; there is 2.34"), "{said}");
}

#[test]
fn binaries_of_other_machines_are_refused() {
    let binary = built_for("2.34", "strncpy");
    let packed = zipped(&binary, &[]);
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let refused = zipped(&binary, &["--arch", "arm64"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("built for EM_X86_64, not for arm64"), "{said}");
}

#[test]
fn a_zip_above_the_floor_is_refused() {
    let refused = zipped(&built_for("2.34", "strncpy"), &["--floor-mb", "0.0001"]);
    assert_eq!(refused.status.code(), Some(1));
}

/// The same files give the same bytes, whenever they were written, and in whatever order they are named.
#[test]
fn zips_depend_only_on_their_files() {
    let binary = built_for("2.34", "strncpy");
    let beside = ["b.pem", "a.pem"].map(|name| binary.with_file_name(name));
    let mut zips = Vec::new();
    for order in [[0, 1], [1, 0]] {
        for (nth, file) in beside.iter().enumerate() {
            std::fs::write(file, format!("certificate {nth}")).unwrap();
            let file = std::fs::File::options().write(true).open(file).unwrap();
            // Zips have a resolution of two seconds.
            let years = Duration::from_secs(u64::try_from(zips.len()).unwrap() * 100_000_000);
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000) + years).unwrap();
        }
        let beside = order.map(|nth| beside[nth].to_str().unwrap());
        let packed = zipped(&binary, &["--include", beside[0], "--include", beside[1]]);
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        zips.push(std::fs::read(binary.with_extension("zip")).unwrap());
    }
    assert!(zips[0] == zips[1], "the zip depends on more than its files");
}

/// The digests are of the files that are there, and the provenance names them with the commit and the toolchain.
#[test]
fn the_provenance_has_the_digests_of_the_zips() {
    let folder = target_folder().join("lambdas/x86_64");
    let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let provenance = std::fs::read(folder.join("provenance.json")).unwrap();
    let provenance: Value = serde_json::from_slice(&provenance).unwrap();
    let checked = Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&folder).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let zips = ["publisher", "runner", "notifier"];
    let bills = zips.into_iter().chain(["app", "cli"]).map(|name| format!("{name}.cdx.json"));
    for name in zips.iter().map(|name| format!("{name}.zip")).chain(bills) {
        let line = sums.lines().find(|line| line.ends_with(&format!("  {name}"))).unwrap();
        let subjects = provenance["subject"].as_array().unwrap();
        let subject = subjects.iter().find(|subject| subject["name"] == name).unwrap();
        assert_eq!(subject["digest"]["sha256"], line[..64], "{name}");
    }
    let sources = &provenance["predicate"]["buildDefinition"]["resolvedDependencies"];
    assert!(sources[0]["digest"]["gitCommit"].as_str().is_some_and(|commit| commit.len() >= 40), "{sources}");
    let tools = &provenance["predicate"]["buildDefinition"]["internalParameters"]["tools"];
    assert!(tools["rustc"].as_str().is_some_and(|version| version.starts_with("rustc 1.")), "{tools}");
}

/// The bill of materials of each zip says so, and gives a licence for each crate.
#[test]
fn zips_contain_only_one_tls_stack() {
    for name in ["publisher", "runner", "notifier"] {
        let bill = std::fs::read(target_folder().join(format!("lambdas/x86_64/{name}.cdx.json"))).unwrap();
        let bill: Value = serde_json::from_slice(&bill).unwrap();
        let components = bill["components"].as_array().unwrap();
        let versions = |of: &str| -> Vec<&str> {
            let named = components.iter().filter(|component| component["name"] == of);
            named.map(|component| component["version"].as_str().unwrap()).collect()
        };
        let [rustls] = versions("rustls")[..] else { panic!("{name}: {:?}", versions("rustls")) };
        let [hyper] = versions("hyper")[..] else { panic!("{name}: {:?}", versions("hyper")) };
        assert!(rustls.starts_with("0.23.") && hyper.starts_with("1."), "{name}: rustls {rustls}, hyper {hyper}");
        for other in ["openssl", "native-tls", "ring"] {
            assert!(versions(other).is_empty(), "{name}: {other}");
        }
        let untold = components.iter().find(|component| component["licenses"][0]["expression"].is_null());
        assert_eq!(untold, None, "a crate without a licence");
    }
}
