//! `cronbox-local up` as a person runs it: it keeps its data, refuses a folder or port in use, and leaves no process
//! behind.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use local::config::target_folder;
use serde_json::{Value, json};
use tests::PATIENCE;

/// A folder that is deleted at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch(std::env::temp_dir().join(format!("cronbox-up-{}", uuid::Uuid::new_v4())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The folder may not exist.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A running `cronbox-local up`.
struct Up {
    process: Child,
    lines: Receiver<String>,
    /// The lines of its output that were read so far
    said: Vec<String>,
    env: HashMap<String, String>,
}

impl Up {
    /// Starts it on `data`, with a new target folder, and reads its output until it is ready.
    fn start(data: &Path) -> Up {
        let mut process = command(data, &[free_port(), free_port()]).stdout(Stdio::piped()).spawn().unwrap();
        let (line, lines) = channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|said| line.send(said)));
        let mut up = Up { process, lines, said: Vec::new(), env: HashMap::new() };
        up.read_until("ready");
        let env = data.join("target/local/env");
        assert_eq!(fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(env).unwrap();
        up.env =
            text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        up
    }

    /// The first line that contains `wanted`, among those already read or still to come.
    fn read_until(&mut self, wanted: &str) -> String {
        if let Some(line) = self.said.iter().find(|line| line.contains(wanted)) {
            return line.clone();
        }
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.said.push(line);
            if let Some(line) = self.said.last().filter(|line| line.contains(wanted)) {
                return line.clone();
            }
        }
        panic!("it never said {wanted:?}: {:?}", self.said);
    }

    async fn call(&self, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}/api/v1{path}", self.env["CRONBOX_URL"]);
        let client = reqwest::Client::new();
        let request = match body {
            Some(body) => client.post(url).json(&body),
            None => client.get(url),
        };
        request.header("X-API-Key", &self.env["CRONBOX_KEY"]).send().await.unwrap().json().await.unwrap()
    }

    async fn until_synced(&self, workflow: &Value) {
        let synced = async {
            while self.call(&format!("/workflows/{workflow}"), None).await["sync"]["status"] != "synced" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, synced).await.expect("it is synced");
    }

    /// The names of the existing schedules.
    async fn schedules(&self) -> Vec<String> {
        let client = local::client::stand_in_client(&self.env["AWS_ENDPOINT_URL_SCHEDULER"]);
        let listed = client.list_schedules().send().await.unwrap();
        listed.schedules().iter().map(|schedule| schedule.name().unwrap().to_owned()).collect()
    }

    /// Sends SIGINT, like Ctrl-C in a terminal.
    fn interrupt(mut self) {
        let sent = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn command(data: &Path, ports: &[u16; 2]) -> Command {
    let program = target_folder().join("debug/cronbox-local");
    assert!(program.exists(), "build the programs first: `make test` does");
    let mut command = Command::new(program);
    command.arg("up").arg("--data").arg(data.join("data"));
    command.args(["--app-port", &ports[0].to_string(), "--scheduler-port", &ports[1].to_string()]);
    command.env("CARGO_TARGET_DIR", data.join("target")).env_remove("RUST_BACKTRACE");
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn server(data: &Path) -> Option<String> {
    let file = fs::read_to_string(data.join("data/data/postmaster.pid")).ok()?;
    file.lines().next().map(str::to_owned)
}

/// The stand-in stores nothing, so it gets the schedules again.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_keep_workflows_keys_and_schedules() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch.0);
    let team: i64 = up.env["CRONBOX_TEAM_ID"].parse().unwrap();
    let body = json!({ "name": "nightly", "team_id": team, "cron_schedule": "0 3 * * *",
                       "action": { "type": "log", "message": "hello" } });
    let made = up.call("/workflows", Some(body)).await;
    up.until_synced(&made["id"]).await;
    let name = format!("wf-{}-dev", made["id"]);
    assert_eq!(up.schedules().await, std::slice::from_ref(&name));
    let before = up.env.clone();
    let secrets_key = fs::metadata(&before["CRONBOX_SECRETS_KEY_FILE"]).unwrap();
    assert_eq!(secrets_key.permissions().mode() & 0o777, 0o600, "the key that encrypts secrets");
    up.interrupt();
    assert_eq!(server(&scratch.0), None, "Postgres is stopped with the rest");

    let mut again = Up::start(&scratch.0);
    for same in ["CRONBOX_KEY", "CRONBOX_SCHEDULER_KEY", "CRONBOX_SECRETS_KEY_FILE", "CRONBOX_TEAM_ID"] {
        assert_eq!(before[same], again.env[same], "{same}");
    }
    let line = again.read_until("schedule wf-");
    assert!(line.contains(&name), "{line}");
    assert_eq!(again.schedules().await, [name]);
    assert_eq!(again.call(&format!("/workflows/{}", made["id"]), None).await["name"], "nightly");
    again.interrupt();
}

/// Its Postgres ends with it, and a new one starts on the same data.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_stack_can_start_again() {
    let scratch = Scratch::new();
    let mut up = Up::start(&scratch.0);
    let pid = server(&scratch.0).unwrap();
    up.process.kill().unwrap();
    up.process.wait().unwrap();
    // At once, while the old server may still be stopping.
    let again = Up::start(&scratch.0);
    assert_ne!(server(&scratch.0).unwrap(), pid);
    again.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stack_says_what_to_do() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch.0);
    let second = command(&scratch.0, &[free_port(), free_port()]).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("stop it, or choose another folder with --data DIR") && said.lines().count() == 1, "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = Scratch::new();
    let third = command(&other.0, &[taken.local_addr().unwrap().port(), free_port()]).output().unwrap();
    let said = String::from_utf8(third.stderr).unwrap();
    assert_eq!(third.status.code(), Some(1));
    assert!(said.contains("choose another port with --app-port") && said.lines().count() == 1, "{said}");
    up.interrupt();
}
