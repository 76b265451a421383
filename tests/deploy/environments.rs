//! The environments differ only in their values, so a change that was tested in dev is the same in prod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use local::config::target_folder;

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

/// RDS and the load balancer refuse at the end of a destroy, when schedules, functions and tasks are gone. The resource that refuses first is
/// tried with modules in which there is nothing else.
#[test]
fn protected_environments_lose_no_part() {
    let folder = target_folder().join("deploy-protection");
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(folder.join("part")).unwrap();
    std::fs::write(folder.join("part/main.tf"), "resource \"terraform_data\" \"part\" {}\n").unwrap();
    let main = read("dev", "main.tf");
    let (_, guard) = main.split_once("resource \"terraform_data\" \"protection\" {").unwrap();
    let (guard, _) = guard.split_once("\n}\n").unwrap();
    let parts = ["network", "service", "cron", "notifier"];
    let parts = parts.map(|name| format!("module \"{name}\" {{\n  source = \"./part\"\n}}\n")).concat();
    let values = "variable \"database\" {\n  type    = object({ is_protected = optional(bool) })\n  default = {}\n}\n\
                  locals {\n  makes_app = true\n}\n";
    let text = format!("{values}{parts}resource \"terraform_data\" \"protection\" {{{guard}\n}}\n");
    std::fs::write(folder.join("main.tf"), text).unwrap();

    let terraform = |arguments: &[&str]| -> (bool, String) {
        let mut command = Command::new("terraform");
        let done = command.current_dir(&folder).args(arguments).arg("-no-color").stdin(Stdio::null()).output().unwrap();
        let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        (done.status.success(), said)
    };
    let expect = |arguments: &[&str], success: bool, words: &str| {
        let (is_done, said) = terraform(arguments);
        assert!(is_done == success && said.contains(words), "terraform {arguments:?}: {said}");
    };
    let unprotected = "-var=database={is_protected=false}";
    expect(&["init", "-input=false"], true, "initialized");
    expect(&["apply", "-auto-approve", "-input=false"], true, "5 added");
    expect(&["destroy", "-auto-approve", "-input=false"], false, "This environment is protected");
    expect(&["destroy", "-auto-approve", "-input=false", unprotected], false, "apply, then destroy");
    expect(&["plan", "-input=false"], true, "No changes");
    expect(&["apply", "-auto-approve", "-input=false", unprotected], true, "1 changed");
    expect(&["destroy", "-auto-approve", "-input=false", unprotected], true, "5 destroyed");
}
