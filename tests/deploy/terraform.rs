//! Terraform in a copy of the operator's folder, so that no files are left in the repository.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use local::config::target_folder;
use regex::Regex;
use serde_json::Value;
use tokio::process::Command;

use crate::account::{Account, REGION};

/// `terraform/envs/dev` with its values filled in.
pub(crate) struct Dev {
    folder: PathBuf,
}

impl Dev {
    /// As docs/deploy.md says: the example copied, the network, the secrets and the app's address filled in.
    pub(crate) async fn filled_in(account: &Account, app: &str) -> Dev {
        let dev = Dev::copied("deploy", account.endpoint()).await;
        let example = std::fs::read_to_string(dev.folder.join("terraform.tfvars.example")).unwrap();
        dev.write("terraform.tfvars", &filled_in(&example, account, app));
        dev
    }

    /// With these values, in a folder of its own.
    pub(crate) async fn with_values(name: &str, endpoint: &str, values: &str) -> Dev {
        let dev = Dev::copied(name, endpoint).await;
        dev.write("terraform.tfvars", values);
        dev
    }

    async fn copied(name: &str, endpoint: &str) -> Dev {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        Dev::of_sources(repository, &target_folder().join("lambdas"), name, endpoint).await
    }

    /// Of these sources and zips, in a folder of its own.
    pub(crate) async fn of_sources(sources: &Path, lambdas: &Path, name: &str, endpoint: &str) -> Dev {
        let copy = target_folder().join(name);
        drop(std::fs::remove_dir_all(&copy));
        std::fs::create_dir_all(copy.join("target")).unwrap();
        // A test of the alarms reads the runbook in docs/.
        let folders = ["terraform", "docs"].map(|name| sources.join(name));
        run(Command::new("cp").arg("-R").args(folders).arg(&copy)).await;
        std::os::unix::fs::symlink(lambdas, copy.join("target/lambdas")).unwrap();
        let folder = copy.join("terraform/envs/dev");
        drop(std::fs::remove_dir_all(folder.join(".terraform")));
        std::fs::write(folder.join("backend.hcl"), backend(endpoint)).unwrap();
        Dev { folder }
    }

    /// Writes a file beside its own.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    pub(crate) async fn init(&self) {
        let mut init = self.terraform(&["init", "-backend-config=backend.hcl"]);
        add_plugins(&mut init);
        run(&mut init).await;
    }

    pub(crate) async fn apply(&self) {
        self.apply_with(&[]).await;
    }

    /// With these variables, which are in no file. Returns what Terraform printed.
    pub(crate) async fn apply_with(&self, variables: &[(&str, &str)]) -> String {
        run(self.terraform(&["apply", "-auto-approve"]).envs(variables.iter().copied())).await
    }

    /// Only this resource and what it needs, with these variables.
    pub(crate) async fn apply_target(&self, target: &str, variables: &[(&str, &str)]) {
        let target = format!("-target={target}");
        run(self.terraform(&["apply", "-auto-approve", &target]).envs(variables.iter().copied())).await;
    }

    /// Removes a resource from the state only.
    pub(crate) async fn forget(&self, address: &str) {
        run(Command::new("terraform").current_dir(&self.folder).args(["state", "rm", address])).await;
    }

    /// Without the zips, because an operator who destroys has built none.
    pub(crate) async fn destroy(&self) {
        std::fs::remove_file(self.folder.join("../../../target/lambdas")).unwrap();
        run(&mut self.terraform(&["destroy", "-auto-approve"])).await;
    }

    /// Runs the tests of a module, whose plans open ephemeral values, against the emulator.
    pub(crate) async fn test_module(&self, name: &str, endpoint: &str) {
        let module = self.folder.join("../../modules").join(name);
        let terraform = |arguments: &[&str]| {
            let mut command = Command::new("terraform");
            command.current_dir(&module).args(arguments).arg("-no-color").stdin(Stdio::null());
            command
        };
        let mut init = terraform(&["init", "-backend=false", "-input=false"]);
        add_plugins(&mut init);
        run(&mut init).await;
        run(terraform(&["test"]).env("AWS_ENDPOINT_URL", endpoint)).await;
    }

    /// The value of an output.
    pub(crate) async fn output(&self, name: &str) -> Value {
        json(&run(Command::new("terraform").current_dir(&self.folder).args(["output", "-json", name])).await)
    }

    /// The resources that this one needs, directly or by others, as `terraform graph` says.
    pub(crate) async fn dependencies_of(&self, resource: &str) -> BTreeSet<String> {
        let mut graph = Command::new("terraform");
        let said = run(graph.current_dir(&self.folder).arg("graph").stdin(Stdio::null())).await;
        let edge = Regex::new(r#""([^"]+)" -> "([^"]+)""#).unwrap();
        let edges: Vec<(String, String)> =
            edge.captures_iter(&said).map(|edge| (edge[1].to_owned(), edge[2].to_owned())).collect();
        let (mut found, mut waiting) = (BTreeSet::new(), vec![resource.to_owned()]);
        while let Some(next) = waiting.pop() {
            let needed = edges.iter().filter(|(from, _)| *from == next).map(|(_, to)| to.clone());
            waiting.extend(needed.filter(|to| found.insert(to.clone())));
        }
        found
    }

    /// The addresses in the state.
    pub(crate) async fn state(&self) -> String {
        run(Command::new("terraform").current_dir(&self.folder).args(["state", "list"])).await
    }

    /// The complete state, as it is stored.
    pub(crate) async fn stored_state(&self) -> String {
        run(Command::new("terraform").current_dir(&self.folder).args(["state", "pull"])).await
    }

    /// What a plan would change: address, attribute, and new value.
    pub(crate) async fn changes(&self) -> Vec<(String, String, Value)> {
        run(&mut self.terraform(&["plan", "-out=again.tfplan"])).await;
        let mut show = Command::new("terraform");
        let plan = json(&run(show.current_dir(&self.folder).args(["show", "-json", "again.tfplan"])).await);
        let resources = plan["resource_changes"].as_array().unwrap();
        let managed = resources.iter().filter(|resource| resource["mode"] == "managed");
        managed.flat_map(changed).collect()
    }

    fn terraform(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("terraform");
        command.current_dir(&self.folder).args(arguments).args(["-input=false", "-no-color"]).stdin(Stdio::null());
        command
    }
}

/// A folder of providers, for machines that cannot reach the registry.
#[expect(clippy::disallowed_methods, reason = "what this machine knows and no configuration does")]
fn add_plugins(init: &mut Command) {
    if let Some(plugins) = std::env::var_os("CRONBOX_TF_PLUGIN_DIR").filter(|folder| !folder.is_empty()) {
        init.arg(format!("-plugin-dir={}", plugins.display()));
    }
}

fn changed(resource: &Value) -> Vec<(String, String, Value)> {
    let change = &resource["change"];
    let address = resource["address"].as_str().unwrap();
    if change["actions"] == serde_json::json!(["no-op"]) {
        return Vec::new();
    }
    let (Some(before), Some(after)) = (change["before"].as_object(), change["after"].as_object()) else {
        return vec![(address.to_owned(), "all of it".to_owned(), change["actions"].clone())];
    };
    let unknown = change["after_unknown"].as_object().unwrap();
    let known = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
    let known = known.map(|(name, value)| (address.to_owned(), name.clone(), value.clone()));
    let unknown = unknown.iter().filter(|(_, is_unknown)| **is_unknown == Value::Bool(true));
    known.chain(unknown.map(|(name, _)| (address.to_owned(), name.clone(), Value::Null))).collect()
}

/// The example, line by line, with this account's values.
fn filled_in(example: &str, account: &Account, app: &str) -> String {
    let [one, other] = &account.subnets;
    let values = [
        ("region", format!("{REGION:?}")),
        ("vpc_id", format!("{:?}", account.vpc)),
        ("subnet_ids", format!("[{one:?}, {other:?}]")),
        ("database_security_group_id", format!("{:?}", account.database_group)),
        ("create_vpc_endpoints", "true".to_owned()),
        ("database_secret_arn", format!("{:?}", account.database_secret)),
        ("scheduler_key_secret_arn", format!("{:?}", account.key_secret)),
        ("app_base_url", format!("{app:?}")),
    ];
    let mut lines: Vec<String> = example.lines().map(str::to_owned).collect();
    for (name, value) in values {
        let line = lines.iter_mut().find(|line| line.split_whitespace().next() == Some(name));
        *line.unwrap_or_else(|| panic!("the example does not have {name}")) = format!("{name} = {value}");
    }
    lines.push(format!("endpoint_url = {:?}", account.endpoint()));
    lines.push("database = { is_protected = false }".to_owned());
    lines.join("\n")
}

/// The state is in S3, as in production. Only an emulator's S3 needs this many settings.
fn backend(endpoint: &str) -> String {
    format!(
        "bucket = \"states\"\nregion = \"{REGION}\"\nendpoints = {{ s3 = \"{endpoint}\" }}\naccess_key = \"emulator\"\n\
         secret_key = \"emulator\"\nuse_path_style = true\nskip_credentials_validation = true\n\
         skip_metadata_api_check = true\nskip_requesting_account_id = true\n"
    )
}

async fn run(command: &mut Command) -> String {
    let done = command.output().await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}\n{said}\n{}", String::from_utf8_lossy(&done.stderr));
    said
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
