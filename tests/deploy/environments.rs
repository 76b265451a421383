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

/// The values of environments that the three resources from [`PROTECTED`] on read.
const VALUES: &str = "variable \"database\" {
  type    = object({ is_protected = optional(bool), kms_key_arn = optional(string) })
  default = {}
}
";
/// An environment with an app, and one whose app runs elsewhere.
const WITH_APP: &str = "locals {\n  makes_app = true\n}\n";
const WITHOUT_APP: &str = "locals {\n  makes_app = false\n}\n";
const PROTECTED: &str = "resource \"terraform_data\" \"protection\" {";
/// A part of an environment. A load balancer is replaced like this.
const PART: &str = "variable \"is_internal\" {
  type = string
}
resource \"terraform_data\" \"part\" {
  triggers_replace = var.is_internal
}
";

/// Three resources at the end of `main.tf` refuse what would delete parts of an environment. They are tried with modules in which there is
/// nothing else.
struct Protected {
    folder: PathBuf,
}

impl Protected {
    fn written(name: &str, app: &str) -> Protected {
        let folder = target_folder().join(name);
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(folder.join("part")).unwrap();
        std::fs::write(folder.join("part/main.tf"), PART).unwrap();
        let main = read("dev", "main.tf");
        let (_, guards) = main.split_once(PROTECTED).unwrap();
        let variables =
            ["name_prefix", "regional_names", "iam_path", "vpc_id", "network_cidr", "is_internal", "existing_database"];
        let variables = variables
            .map(|name| format!("variable \"{name}\" {{\n  type    = string\n  default = null\n}}\n"))
            .concat();
        let parts = ["network", "service", "cron", "notifier"].map(|name| {
            format!("module \"{name}\" {{\n  source      = \"./part\"\n  is_internal = var.is_internal\n}}\n")
        });
        let text = [VALUES, app, &variables, &parts.concat(), PROTECTED, guards].concat();
        std::fs::write(folder.join("main.tf"), text).unwrap();
        let protected = Protected { folder };
        protected.expect(&["init", "-input=false"], true, "initialized");
        protected.expect(&["apply", "-auto-approve", "-input=false"], true, "0 destroyed");
        protected
    }

    fn expect(&self, arguments: &[&str], success: bool, expected: &str) {
        let mut command = Command::new("terraform");
        command.current_dir(&self.folder).args(arguments).arg("-no-color").stdin(Stdio::null());
        let done = command.output().unwrap();
        let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(done.status.success() == success && said.contains(expected), "terraform {arguments:?}: {said}");
    }
}

const UNPROTECTED: &str = "-var=database={is_protected=false}";

/// The arguments of an apply, or of a destroy, with these ones.
fn without_questions<'a>(command: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&[command, "-auto-approve", "-input=false"][..], arguments].concat()
}

/// RDS and the load balancer refuse at the end of a destroy, when schedules, functions and tasks are gone.
#[test]
fn protected_environments_lose_no_part() {
    let protected = Protected::written("deploy-protection", WITH_APP);
    protected.expect(&without_questions("destroy", &[]), false, "This environment is protected");
    protected.expect(&without_questions("destroy", &[UNPROTECTED]), false, "apply, then destroy");
    protected.expect(&["plan", "-input=false"], true, "No changes");
    protected.expect(&without_questions("apply", &[UNPROTECTED]), true, "3 changed");
    protected.expect(&without_questions("destroy", &[UNPROTECTED]), true, "7 destroyed");
}

/// A load balancer that has to be replaced loses its listener first, and then refuses to be deleted.
#[test]
fn protected_environments_replace_no_part() {
    let protected = Protected::written("deploy-replacement", WITH_APP);
    for change in [
        "is_internal=false",
        "name_prefix=other",
        "network_cidr=10.9.0.0/16",
        "existing_database=other",
        "iam_path=/other/",
        "regional_names=false",
    ] {
        let change = format!("-var={change}");
        protected.expect(&without_questions("apply", &[&change]), false, "This environment is protected");
        // The protection of the last apply counts.
        protected.expect(&without_questions("apply", &[&change, UNPROTECTED]), false, "This environment is protected");
        // Nothing was deleted, and nothing of the change is left. What did not refuse is protected again.
        protected.expect(&without_questions("apply", &[]), true, "0 added");
    }
    protected.expect(&["plan", "-input=false"], true, "No changes");
    protected.expect(&without_questions("apply", &[UNPROTECTED]), true, "3 changed");
    protected.expect(
        &without_questions("apply", &[UNPROTECTED, "-var=is_internal=false"]),
        true,
        "5 added, 0 changed, 5 destroyed",
    );
}

/// Schedules fire with their role, also those of an app that Terraform did not make. Without it each fire is lost, and its dead letter, too.
#[test]
fn environments_without_app_keep_their_roles() {
    let protected = Protected::written("deploy-roles", WITHOUT_APP);
    for change in ["name_prefix=other", "iam_path=/other/", "regional_names=false"] {
        let change = format!("-var={change}");
        protected.expect(&without_questions("apply", &[&change, UNPROTECTED]), false, "This environment is protected");
    }
    protected.expect(&without_questions("destroy", &[UNPROTECTED]), false, "This environment is protected");
    protected.expect(&["plan", "-input=false"], true, "No changes");
    protected.expect(&without_questions("apply", &[UNPROTECTED]), true, "1 changed");
    protected.expect(
        &without_questions("apply", &[UNPROTECTED, "-var=iam_path=/other/"]),
        true,
        "1 added, 0 changed, 1 destroyed",
    );
    protected.expect(&without_questions("destroy", &[UNPROTECTED]), true, "5 destroyed");
}
