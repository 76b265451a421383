//! The environments differ only in their values, so a change that was tested in dev is the same in prod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files with an environment's own values.
const OWN: [&str; 2] = ["env.tf", "terraform.tfvars.example"];

fn folder(env: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../terraform/envs").join(env)
}

/// The files of an environment. For those with its own values, only their structure, without comments and values.
fn shape(env: &str) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder(env)).unwrap().map(|file| file.unwrap().path());
    let names = files.map(|file| file.file_name().unwrap().to_str().unwrap().to_owned());
    // `terraform init` and operators create more files there, which are not committed.
    let committed = names.filter(|name| name.ends_with(".tf") || name.ends_with(".example"));
    committed.map(|name| (name.clone(), read(env, &name))).collect()
}

fn read(env: &str, name: &str) -> String {
    let text = std::fs::read_to_string(folder(env).join(name)).unwrap();
    if !OWN.contains(&name) {
        return text;
    }
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.map(|line| line.split('=').next().unwrap().trim()).collect::<Vec<_>>().join("\n")
}

#[test]
fn environments_differ_only_in_values() {
    let dev = shape("dev");
    assert!(OWN.iter().all(|name| dev.contains_key(*name)), "{:?}", dev.keys());
    for env in ["stage", "prod"] {
        assert_eq!(shape(env), dev, "{env}");
    }
}
