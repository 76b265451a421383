//! The deployed functions: the binary from the zip, with the environment that Terraform configured.

use std::path::PathBuf;
use std::process::Stdio;

use local::config::target_folder;
use serde_json::Value;
use tests::Runtime;
use tokio::process::{Child, Command};

use crate::account::{Account, credentials, text};

/// Unpacks like Lambda, with the file modes in the zip.
const UNPACK: &str = "
import base64, hashlib, os, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
for entry in archive.infolist():
    os.chmod(archive.extract(entry, sys.argv[2]), entry.external_attr >> 16)
print(base64.b64encode(hashlib.sha256(open(sys.argv[1], 'rb').read()).digest()).decode())
";

/// A function with its configuration in Lambda.
pub(crate) struct Function {
    name: &'static str,
    environment: Vec<(String, String)>,
    unpacked: PathBuf,
}

impl Function {
    /// `publisher` or `runner`, as deployed.
    pub(crate) async fn deployed(account: &Account, name: &'static str) -> Function {
        let full = format!("cronbox-dev-{name}");
        let deployed = account.aws(["lambda", "get-function-configuration", "--function-name", &full]).await;
        let unpacked = target_folder().join("deploy").join(name);
        std::fs::create_dir_all(&unpacked).unwrap();
        let zip = target_folder().join(format!("lambdas/x86_64/{name}.zip"));
        let done = Command::new("python3").args(["-c", UNPACK]).arg(zip).arg(&unpacked).output().await.unwrap();
        let digest = String::from_utf8(done.stdout).unwrap();
        assert_eq!(deployed["CodeSha256"], digest.trim(), "what was deployed is what was built");
        let variables = deployed["Environment"]["Variables"].as_object().unwrap();
        let environment = variables.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        Function { name, environment, unpacked }
    }

    /// The same function with another value of an environment variable.
    pub(crate) fn with(mut self, variable: &str, value: &str) -> Function {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// The value of an environment variable.
    pub(crate) fn variable(&self, name: &str) -> &str {
        &self.environment.iter().find(|(known, _)| known == name).unwrap().1
    }

    /// Starts a sandbox, which is killed when it is dropped.
    pub(crate) fn start(&self, runtime: &Runtime) -> Child {
        let mut command = self.command();
        command.envs(runtime.environment(self.name)).spawn().unwrap()
    }

    /// The command that Lambda runs, without the runtime API's variables.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.unpacked.join("bootstrap"));
        command.kill_on_drop(true).env_clear().envs(credentials()).envs(self.environment.iter().cloned());
        // Lambda unpacks into /var/task, where a test cannot write.
        let bundle = self.unpacked.join("rds-ca.pem");
        if bundle.exists() {
            assert_eq!(self.variable("CRONBOX_DB_CA_FILE"), "/var/task/rds-ca.pem", "beside bootstrap");
            command.env("CRONBOX_DB_CA_FILE", bundle);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// The memory limit of a sandbox.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// Little more than it already uses, so that no thread can start.
    ForNoThread,
    ForAll,
}

/// Sets the memory limit of a running sandbox.
pub(crate) async fn give_room(sandbox: &Child, room: Room) {
    let pid = sandbox.id().unwrap();
    let bound = match room {
        // The stack of a thread needs four times as much.
        Room::ForNoThread => format!("--as={}:", address_space(pid) + 512 * 1024),
        Room::ForAll => "--as=unlimited:".to_owned(),
    };
    let bounded = Command::new("prlimit").args(["--pid", &pid.to_string(), &bound]).status().await.unwrap();
    assert!(bounded.success());
}

/// The size of the address space, in bytes.
fn address_space(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The event that EventBridge makes of a schedule's input when it fires.
pub(crate) fn fired(input: &str, scheduled_time: &str) -> Value {
    let text = input
        .replace("<aws.scheduler.scheduled-time>", scheduled_time)
        .replace("<aws.scheduler.execution-id>", "d32c5kddcf5bb8c3")
        .replace("<aws.scheduler.attempt-number>", "1")
        .replace(
            "<aws.scheduler.schedule-arn>",
            "arn:aws:scheduler:us-east-1:123456789012:schedule/cronbox-dev/wf-1-dev",
        );
    serde_json::from_str(&text).unwrap()
}
